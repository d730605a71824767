import csv
import gzip
import os
import re
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from labelhedge.audit import _table
from labelhedge.audit._table import Table, TableError, read_arrays, read_table

GOOD = "size,colour,kind\n1,red,cat\n2,blue,dog\n3,red,cat\n4,blue,dog\n"


@pytest.fixture
def write(tmp_path):
    def write(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def save(tmp_path):
    def save(array, name):
        np.save(tmp_path / name, array)
        return tmp_path / name

    return save


def refusal(path, label="kind"):
    with pytest.raises(TableError) as caught:
        read_table(path, label)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence.replace(str(path), "FILE")


def column_of(labels):
    return "x,kind\n" + "".join(f"{i % 7},{label}\n" for i, label in enumerate(labels))


def test_a_table(write):
    table = read_table(write(GOOD), "kind")
    assert list(table.labels) == ["cat", "dog", "cat", "dog"]
    assert list(table.features.columns) == ["size", "colour"]
    assert list(table.features["size"]) == [1, 2, 3, 4]
    assert pd.api.types.is_integer_dtype(table.features["size"])
    assert (table.label, list(table.rows), table.notes) == ("kind", [0, 1, 2, 3], ())


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("\ufeff" + GOOD, "bom.csv"),
        (GOOD.replace(",", "\t"), "tabs.tsv"),
        (GOOD.replace(",", "\t"), "tabs.TAB"),
        (GOOD.replace(",", "\t"), "tabs.txt"),
        (GOOD.replace(",", ";"), "semicolons.csv"),
        (gzip.compress(GOOD.encode(), mtime=0), "small.csv.gz"),
        (GOOD.replace("\n", "\r\n"), "windows.csv"),
        (GOOD.replace("\n", "\r"), "old-mac.csv"),
        (GOOD.rstrip("\n"), "no-end.csv"),
        (GOOD.replace("\n", "\n\n"), "blank-lines.csv"),
        (GOOD.replace(",", " , "), "blanks.csv"),
        (GOOD.replace("cat", '"cat"'), "quotes.csv"),
    ],
)
def test_the_same_table_in_other_forms(write, content, name):
    table, plain = read_table(write(content, name), "kind"), read_table(write(GOOD), "kind")
    pd.testing.assert_frame_equal(table.features, plain.features)
    assert list(table.labels) == list(plain.labels)


def test_parquet(tmp_path, write):
    frame = pd.read_csv(write(GOOD)).astype({"colour": "category"})
    frame = frame.assign(day=pd.to_datetime(["2024-01-01"] * 4).date, maybe=[True, None, False, True])
    frame.to_parquet(tmp_path / "table.parquet")
    table = read_table(tmp_path / "table.parquet", "kind")
    assert list(table.labels) == ["cat", "dog", "cat", "dog"]
    assert table.features["day"].dtype.kind == "M"
    assert isinstance(table.features["colour"].dtype, pd.CategoricalDtype)


@pytest.mark.parametrize("labels", [[1, 2, 1, 2], [1.0, 2.0, 1.0, 2.0], pd.array([1, 2, 1, 2], dtype="UInt8")])
def test_integer_labels_in_parquet_stay_integers(tmp_path, labels):
    frame = pd.DataFrame({"x": [1, 2, 3, 4, 5], "kind": pd.Series(labels).reindex(range(5))})
    frame.to_parquet(tmp_path / "table.parquet")
    table = read_table(tmp_path / "table.parquet", "kind")
    assert list(table.labels) == ["1", "2", "1", "2"]
    assert table.notes == ("1 row without a label left out",)


@pytest.mark.parametrize(
    "labels", [["1", "2"], ["1.0", "2.0"], ["01", "1"], ["None", "no"], ["1", "one"], ["é", "日本"]]
)
def test_labels_keep_their_form(write, labels):
    table = read_table(write(column_of(labels * 2 + [""])), "kind")
    assert list(table.labels) == labels * 2


def test_rows_without_a_label_are_left_out_and_said(write):
    table = read_table(write(column_of(["", "a", "NA", "b", " ", "a", "b"])), "kind")
    assert list(table.labels) == ["a", "b", "a", "b"]
    assert list(table.rows) == [1, 3, 5, 6]
    assert list(table.features["x"]) == [1, 3, 5, 6]
    assert table.notes == ("3 rows without a label left out (read as no label: 'NA'; rename it if it is a class)",)


def test_classes_with_one_row_are_left_out_and_said(write):
    table = read_table(write(column_of("aabbaabbc")), "kind")
    assert table.notes == ("1 class with one row left out: 'c'",)
    assert list(table.rows) == list(range(8))
    many = [f"rare {i}" for i in range(20)]
    (note,) = read_table(write(column_of(["a", "b"] * 20 + many)), "kind").notes
    assert note.startswith("20 classes with one row each left out: 'rare 0', 'rare 1'")
    assert note.endswith("'rare 9' and 10 more")


def test_types_come_from_all_rows(write):
    rows = "".join(f"{i},{i / 2},{i % 2 == 0},{'x' if i == 99 else i},,{i % 3},ab\n" for i in range(100))
    features = read_table(write("whole,half,even,mixed,none,kind,text\n" + rows), "kind").features
    assert [features[name].dtype.kind for name in ("whole", "half", "even", "none")] == ["i", "f", "b", "f"]
    assert list(features["mixed"][[0, 98, 99]]) == ["0", "98", "x"]


def test_decimal_commas_stand_in_tables_with_semicolons(write):
    features = read_table(write("x;t;kind\n1,5;a,b;a\n2;c;a\n;d;b\n-3,25;e;b\n"), "kind").features
    np.testing.assert_array_equal(features["x"], [1.5, 2, np.nan, -3.25])
    assert list(features["t"]) == ["a,b", "c", "d", "e"]


def test_tabs_separate_in_tsv_whatever_the_names(write):
    table = read_table(write("1,2,3\tkind\n" + "1\ta\n2\tb\n" * 2, "table.tsv"), "kind")
    assert list(table.features) == ["1,2,3"]


def test_unnamed_columns_get_a_number(write):
    assert list(read_table(write(",kind,\n1,a,\n2,a,\n3,b,\n4,b,\n"), "kind").features) == ["column 1", "column 3"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "FILE is empty"),
        ("\n\n", "FILE is empty"),
        ("x,kind", "FILE has a header but no rows"),
        ("x,kind\n", "the label column 'kind' of FILE has no rows"),
        (GOOD + "5,red\n", "FILE, line 6: 2 fields, but the header has 3"),
        (GOOD + "5,red,cat,1\n6,red,cat\n", "FILE, line 6: 4 fields, but the header has 3"),
        ('x,kind\n"1\n\n2",a\n3\n', "FILE, line 5: 1 field, but the header has 2"),
        (GOOD.encode() + "5,röd,cat\n".encode("latin-1"), "FILE, line 6: byte 62 is not UTF-8; save the table as CSV"),
        (GOOD.encode("utf-16"), "FILE, line 1: byte 0 is not UTF-8"),
        (GOOD + "5,r\0d,cat\n", "FILE, line 6: byte 62 holds a NUL"),
        (GOOD.encode() + b"5,red,\xc3", "FILE, line 6: byte 65 is not UTF-8"),
        (GOOD.replace("kind", "Kind"), "FILE has no column 'kind'; did you mean 'Kind'?"),
        (GOOD.replace("kind", "KIND"), "FILE has no column 'kind'; did you mean 'KIND'?"),
        (GOOD.replace("kind", "kinds").replace("size", "king"), "no column 'kind'; did you mean 'kinds' or 'king'?"),
        (GOOD.replace("kind", "y"), "FILE has no column 'kind'; it has 'size', 'colour', 'y'"),
        (",".join(f"x{i}" for i in range(30)) + "\n", "'x8', 'x9' and 20 more"),
        ("x, x,kind\n1,2,a\n", "FILE has more than one column called 'x'; rename or remove the copies"),
        ("kind,x,kind\na,2,a\n", "FILE has more than one column called 'kind'"),
        (column_of(["", " ", "NA"]), "the label column 'kind' of FILE is empty in all 3 rows"),
        (column_of(["a", "a", ""]), "has one class only, 'a'; at least 2 are needed"),
        (
            column_of(["a", "a", "null", " N/A"]),
            "are needed (read as no label: 'N/A', 'null'; rename it if it is a class)",
        ),
        (column_of("aaab"), "has 2 classes, but fewer than 2 of them have at least 2 rows"),
        (column_of(range(500)), "has 500 different values in 500 rows and looks like an id or a number to predict"),
        (column_of([*range(2000)] * 2), "has 2,000 different values in 4,000 rows and looks like an id"),
        (column_of(i / 7 for i in range(300)), "has 300 different values in 300 rows"),
    ],
)
def test_bad_tables(write, content, sentence):
    assert sentence in refusal(write(content))


@pytest.mark.parametrize("before", ["", '"5"" pipe",red,cat\n', '7,5" pipe,cat\n'])
@pytest.mark.parametrize("rest", ["\n", "\n6,red,cat\n7,red,cat\n"])
def test_an_open_quote_is_told_with_its_line(write, before, rest):
    sentence = refusal(write(GOOD + before + '5,red,"cat' + rest))
    assert sentence.startswith(f"FILE, line {7 if before else 6}: a quote is not closed")


def test_an_open_quote_in_the_last_field(write):
    assert refusal(write(GOOD + '5,red,"cat')).startswith("FILE, line 6: a quote is not closed")


def test_text_after_a_closing_quote_next_to_an_open_one(write):
    assert refusal(write(GOOD + '5,"red"dish,"cat\n')).startswith("FILE, line 6: text follows a closing quote")


def test_the_line_is_right_in_a_file_of_many_blocks(write, monkeypatch):
    monkeypatch.setattr(_table, "_BLOCK", 1 << 12)
    quoted = read_table(write("x,kind\n" + '"1\n,",a\n2,"b\n\n""c"\n' * 5_000), "kind")
    assert list(quoted.labels) == ["a", 'b\n\n"c'] * 5_000
    good = "x,kind\n" + "1.5,é\n2.5,b\n" * 20_000
    assert len(read_table(write(good), "kind").labels) == 40_000
    assert refusal(write(good + "1\n")) == "FILE, line 40002: 1 field, but the header has 2"
    assert refusal(write(good + '1,"a\n')).startswith("FILE, line 40002: a quote is not closed")
    broken = good.encode() + b"1,\xe9\n"
    assert f"line 40002: byte {len(broken) - 2} is not UTF-8" in refusal(write(broken))


def test_a_file_that_cannot_be_read(tmp_path, write):
    assert refusal(tmp_path / "none.csv") == "FILE does not exist"
    assert refusal(tmp_path) == "FILE is not a file"
    assert refusal(write(GOOD, "table.xlsx")).startswith("FILE is in a format that is not known; known are .csv, .tsv")
    assert refusal(write("no parquet", "table.parquet")).startswith("FILE cannot be read: ")
    assert refusal(write("not compressed", "table.csv.gz")).startswith("FILE cannot be read: ")
    assert refusal(write(gzip.compress(os.urandom(99))[:60], "table.csv.gz")).startswith("FILE cannot be read: ")


def test_nested_labels_in_parquet(tmp_path):
    pd.DataFrame({"x": [1, 2], "kind": [[1], [2]]}).to_parquet(tmp_path / "table.parquet")
    assert refusal(tmp_path / "table.parquet").startswith("FILE cannot be read: Unsupported cast from list")


@pytest.mark.parametrize("labels", [[3, 1, 3, 1], ["b", "a", "b", "a"], [b"b", b"a", b"b", b"a"], [True, False] * 2])
@pytest.mark.parametrize("dtype", ["float32", ">f4", "float16", "longdouble", "int8", "bool"])
def test_arrays(save, labels, dtype):
    x = np.arange(8).reshape(4, 2).astype(dtype)
    table = read_arrays(save(x, "x.npy"), save(np.array(labels), "y.npy"))
    np.testing.assert_array_equal(table.features.to_numpy(), x)
    assert list(table.features) == ["feature 0", "feature 1"]
    expected = [label.decode() if isinstance(label, bytes) else str(label) for label in labels]
    assert [str(label).lower() for label in table.labels] == [label.lower() for label in expected]
    assert table.label == "y"


def test_array_rows_of_rare_classes_are_left_out(save):
    table = read_arrays(save(np.arange(12.0).reshape(6, 2), "x.npy"), save(np.array([9, 1, 1, 2, 2, 2]), "y.npy"))
    assert table.notes == ("1 class with one row left out: '9'",)
    np.testing.assert_array_equal(table.features.to_numpy()[:, 0], [2, 4, 6, 8, 10])


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (
            np.ones(4),
            np.array([0, 1] * 2),
            r"features must be \(n, d\) real numbers, but .* the shape \(4,\) and the type",
        ),
        (np.ones((4, 2, 2)), np.array([0, 1] * 2), r"the shape \(4, 2, 2\)"),
        (np.ones((4, 2), complex), np.array([0, 1] * 2), "the type complex128"),
        (np.full((4, 2), "a"), np.array([0, 1] * 2), "the type <U1"),
        (np.ones((4, 2)), np.ones((4, 1), int), r"labels must be \(n,\) integers or texts, but .* \(4, 1\)"),
        (np.ones((4, 2)), np.ones(4), "the type float64"),
        (np.ones((4, 2)), np.array([0, 1, 0]), r"x.npy has 4 rows, but .*y.npy has 3"),
        (
            np.array([[0, 1], [2, np.nan]] * 2),
            np.array([0, 1] * 2),
            "must be finite, but .* has nan in row 1, column 1",
        ),
        (np.array([[0, 1], [-np.inf, 0]] * 2), np.array([0, 1] * 2), "has -inf in row 1, column 0"),
        (np.ones((4, 2), object), np.array([0, 1] * 2), "x.npy cannot be read: .*Python objects"),
        (np.ones((4, 2)), np.array([0, "1"] * 2, object), "y.npy cannot be read: .*Python objects"),
        (np.ones((0, 2)), np.ones(0, int), "y.npy has no rows"),
        (np.ones((4, 2)), np.zeros(4, int), "y.npy has one class only, '0'"),
        (np.ones((99, 2)), np.arange(99), "has 99 different values in 99 rows and looks like an id"),
    ],
)
def test_bad_arrays(save, x, y, sentence):
    with pytest.raises(TableError, match=sentence):
        read_arrays(save(x, "x.npy"), save(y, "y.npy"))


def test_files_that_are_no_arrays(save, write, tmp_path):
    y = save(np.array([0, 1]), "y.npy")
    for content in (b"", b"\x93NUMPY", b"PK\x03\x04", b"random"):
        with pytest.raises(TableError, match=r"x\.npy cannot be read"):
            read_arrays(write(content, "x.npy"), y)
    with pytest.raises(TableError, match=r"none\.npy does not exist"):
        read_arrays(tmp_path / "none.npy", y)


def read_or_refuse(path, label):
    try:
        table = read_table(path, label)
    except TableError:
        return None
    assert isinstance(table, Table)
    assert len(table.features) == len(table.labels) == len(table.rows) > 3
    assert table.labels.value_counts().min() >= 2
    assert (np.diff(table.rows) > 0).all()
    return table


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FIELD = st.one_of(
    st.sampled_from(["", "a", "b", '"', '""', '"x,y"', "1", "-2.5", "1e999", "NA", "2024-01-01", "\r", "é", "\ufeff"]),
    st.text(max_size=4),
)


@FUZZ
@given(st.binary(max_size=200), st.sampled_from([".csv", ".tsv", ".txt", ".csv.gz", ".parquet"]))
@example(b'"', ".csv")
@example(b"kind\r\ra\n", ".csv")
def test_random_bytes_are_read_or_refused(tmp_path, content, suffix):
    path = tmp_path / f"table{suffix}"
    path.write_bytes(content)
    read_or_refuse(path, "kind")


@FUZZ
@given(st.lists(st.tuples(FIELD, FIELD, st.sampled_from("aab")), max_size=12), st.sampled_from(",;\t"), FIELD)
def test_random_tables_are_read_or_refused(tmp_path, rows, delimiter, name):
    path = tmp_path / "table.csv"
    lines = [(name, "x", "kind"), *[("1", "2", "a"), ("3", "", "b")] * 2, *rows]
    path.write_bytes("\n".join(map(delimiter.join, lines)).encode("utf-8", "surrogatepass"))
    table = read_or_refuse(path, "kind")
    if table is not None:
        with path.open(encoding="utf-8-sig", newline="") as file:
            _, *records = filter(None, csv.reader(file, delimiter=delimiter))
        assert list(table.labels) == [records[row][2].strip() for row in table.rows]


@FUZZ
@given(st.binary(max_size=150))
def test_random_arrays_are_refused(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY" + content)
    with pytest.raises(TableError, match=re.escape(str(path))):
        read_arrays(path, path)


def test_a_row_without_an_end_is_refused_before_it_is_in_memory(write, monkeypatch):
    bomb = gzip.compress(b"a" * (100 << 20), 1)
    path = write(bomb, "table.csv.gz")
    monkeypatch.setattr(_table, "_records", lambda *_: pytest.fail("a line was read"))
    tracemalloc.start()
    assert refusal(path) == "FILE, line 1 has more than 4,194,304 bytes, too many for a row"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 << 20


def test_a_file_that_becomes_many_times_as_large_is_refused(write, monkeypatch):
    path = write(gzip.compress(GOOD.encode() + b"1,red,cat\n" * 2_000_000), "table.csv.gz")
    monkeypatch.setattr(_table, "_LARGE", 1 << 22)
    assert refusal(path) == "FILE becomes more than 100 times as large; unpack it, if it is meant to be"
    monkeypatch.setattr(_table, "_LARGE", 1 << 30)
    assert len(read_table(path, "kind").labels) == 2_000_004


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_bug_is_no_damage(write, monkeypatch, suffix):
    def fails(*_):
        raise ValueError("a bug")

    monkeypatch.setattr(_table, "_typed", fails)
    pd.read_csv(write(GOOD)).to_parquet(write("", "table.parquet"))
    with pytest.raises(ValueError, match=r"^a bug$") as caught:
        read_table(write("", "other").with_name(f"table{suffix}"), "kind")
    assert not isinstance(caught.value, TableError)
