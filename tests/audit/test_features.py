import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from labelhedge.audit._features import MAX_CATEGORIES, encode
from labelhedge.audit._table import TableError, read_table

N = 200
RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=N)


def encode_one(values):
    encoded = encode(pd.DataFrame({"x": values}))
    assert encoded.left_out == ()
    ((name, kind),) = encoded.used
    assert name == "x"
    assert encoded.matrix.dtype == np.float32
    assert np.isfinite(encoded.matrix).all()
    return kind, encoded.matrix


def reason(values):
    encoded = encode(pd.DataFrame({"x": values, "good": np.resize([0.5, 1.5, 1.0], len(values))}))
    assert encoded.used == (("good", "number"),)
    ((name, why),) = encoded.left_out
    assert name == "x"
    return why


def standard(values):
    values = np.asarray(values, dtype=np.float64)
    return ((values - values.mean()) / values.std()).astype(np.float32)


def test_known_numbers():
    # median 0, typical distance 1: z / sqrt(1 + (z / 5)²)
    values = np.array([-1.0, 0, 1, 0, 5, -1])
    kind, matrix = encode_one(values * 1000 + 7)
    assert kind == "number"
    np.testing.assert_allclose(matrix[:, 0], standard(values / np.sqrt(1 + (values / 5) ** 2)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float32", "Int64", "Float32", "int64[pyarrow]"])
def test_every_kind_of_number(dtype):
    kind, matrix = encode_one(pd.Series(np.resize([3, 1, 2, 2], N)).astype(dtype))
    assert kind == "number"
    np.testing.assert_allclose(matrix[:, 0], standard(np.resize([1, -1, 0, 0], N) / np.sqrt(1.04)), atol=1e-6)


def test_an_outlier_does_not_press_the_others_together():
    spoilt = NUMBERS.copy()
    spoilt[0] = 1e300
    _, matrix = encode_one(spoilt)
    _, clean = encode_one(NUMBERS)
    np.testing.assert_allclose(matrix[1:], clean[1:], atol=0.3)
    assert np.abs(matrix).max() < 6
    assert (np.argsort(matrix[:, 0]) == np.argsort(spoilt)).all()


def test_the_order_is_kept_over_all_magnitudes():
    values = np.array([1e-320, 0, 2e-320, 1e-320, 1.5, -1.5, 3e-320])
    _, matrix = encode_one(values)
    assert matrix[:, 0].argmax() == 4
    assert matrix[:, 0].argmin() == 5


def test_missing_and_infinite_numbers():
    values = NUMBERS.copy()
    values[:3] = np.nan, np.inf, -np.inf
    kind, matrix = encode_one(values)
    assert kind == "number with missing values"
    assert matrix.shape == (N, 2)
    middle = np.argmin(np.abs(values[3:] - np.median(values[3:]))) + 3
    np.testing.assert_allclose(matrix[:3, 0], matrix[middle, 0], atol=0.02)
    np.testing.assert_allclose(matrix[:, 1], standard(np.arange(N) >= 3), rtol=1e-5)


def test_a_number_that_is_there_or_not():
    kind, matrix = encode_one(np.resize([7.0, np.nan, 7.0], N))
    assert kind == "number with missing values"
    np.testing.assert_allclose(matrix[:, 0], standard(np.resize([1, 0, 1], N)), rtol=1e-5)


def test_a_rare_value_is_cut():
    _, matrix = encode_one(np.array([1.0] + [0.0] * 9999))
    assert matrix[0] == 10
    assert abs(matrix[1]) < 0.02


@pytest.mark.parametrize("values", [[True, False, True], ["true", "False", "TRUE"]])
def test_booleans(values):
    kind, matrix = encode_one(np.resize(values, N))
    assert kind == "boolean"
    np.testing.assert_allclose(matrix[:, 0], standard(np.resize([1, 0, 1], N)), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["boolean", object])
def test_booleans_with_missing_values(dtype):
    kind, matrix = encode_one(pd.Series([True, None, False, True] * 9, dtype=dtype))
    assert kind == "boolean with missing values"
    assert matrix.shape == (36, 2)
    np.testing.assert_allclose(matrix[:, 1], standard([1, 0, 1, 1] * 9), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["str", object, "category"])
def test_categories(dtype):
    colours = ["red"] * 100 + ["blue"] * 60 + ["green"] * 40
    kind, matrix = encode_one(pd.Series(colours, dtype=dtype))
    assert kind == "category"
    expected = [standard([colour == name for colour in colours]) for name in ("red", "blue", "green")]
    np.testing.assert_allclose(matrix, np.stack(expected, 1), rtol=1e-5)


def test_two_categories_need_one_column():
    assert encode_one(["a", "b", "a"] * 20)[1].shape == (60, 1)


def test_infrequent_categories_are_one():
    kind, matrix = encode_one(["a"] * 100 + ["b"] * 90 + ["c"] * 4 + ["d"] * 3 + [None] * 3)
    assert kind == "category with missing values"
    assert matrix.shape == (200, 4)
    assert len(np.unique(matrix[190:197], axis=0)) == 1
    assert len(np.unique(matrix, axis=0)) == 4


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("count", [MAX_CATEGORIES - 1, MAX_CATEGORIES, MAX_CATEGORIES + 1, 99])
def test_categories_are_capped(missing, count):
    _, matrix = encode_one([f"c{i}" for i in range(count)] * 10 + [None] * 10 * missing)
    assert matrix.shape[1] == min(MAX_CATEGORIES, count + missing)


DAYS = pd.date_range("2023-12-31", periods=N, freq="D")


@pytest.mark.parametrize("form", [DAYS, DAYS.tz_localize("Europe/Zurich"), DAYS.astype(str), DAYS.as_unit("ns")])
def test_dates(form):
    kind, matrix = encode_one(form)
    assert kind == "date"
    assert matrix.shape == (N, 3)
    assert (np.diff(matrix[:, 0]) > 0).all()
    assert len(np.unique(matrix[:, 1])) == 8  # months
    assert len(np.unique(matrix[:, 2])) == 7  # weekdays
    np.testing.assert_array_equal(matrix[7:, 2], matrix[:-7, 2])


def test_times_of_the_day():
    stamps = [f"2024-05-05T{hour:02}:30:00" for hour in range(24)] * 3
    kind, matrix = encode_one([*stamps, None, "0001-01-01", "not a date"])
    assert kind == "date with missing values"
    assert matrix.shape == (75, 5)
    kind, matrix = encode_one(stamps)
    assert matrix.shape == (72, 2)  # seconds and hours


def test_dates_centuries_apart_in_nanoseconds():
    assert encode_one(pd.to_datetime(["1700-01-01", "2200-01-01"] * 5).as_unit("ns"))[1].shape[1] == 2


def test_durations():
    kind, matrix = encode_one(pd.to_timedelta(np.resize([3, 1, 2, 2], N), unit="h"))
    assert kind == "number"
    np.testing.assert_allclose(matrix[:, 0], encode_one(np.resize([3, 1, 2, 2], N))[1][:, 0], rtol=1e-5)


def test_texts_that_are_nearly_all_numbers():
    texts = ["3.5", "1", " 2", "2"] * 20
    assert encode_one(texts)[0] == "number"
    kind, matrix = encode_one([*texts, "unknown", "n. a."])
    assert kind == "number with missing values; 2 that are no numbers count as missing"
    assert matrix.shape == (82, 2)


WRITTEN = np.array([5100.0, -0.25, 1234567.5, 12.0, 0.5] * 8)


@pytest.mark.parametrize(
    "form",
    ["{:,}", "{:+,.2f}", "${:,}", "{:,}€", "£ {:,.2f}", "{:,} %", "{:.1%}", "{:e}"],
)
@pytest.mark.parametrize("decimal_comma", [False, True])
def test_numbers_as_people_write_them(form, decimal_comma):
    texts = [form.format(number).replace("$-", "-$") for number in WRITTEN]
    if decimal_comma:
        texts = [text.translate(str.maketrans(",.", ".,")) for text in texts]
    kind, matrix = encode_one(texts)
    assert kind == "number"
    np.testing.assert_allclose(matrix, encode_one(WRITTEN)[1], atol=1e-5)


def test_a_few_numbers_that_are_written_in_another_way():
    texts = ["999", "3.5", "12"] * 20 + ["1,200", "5 %"]
    np.testing.assert_array_equal(encode_one(texts)[1], encode_one([999, 3.5, 12] * 20 + [1200, 0.05])[1])


@pytest.mark.parametrize("texts", [["5 €", "6 $"], ["5,1,2", "6,1,2"], ["5 kg", "6 kg"], ["1,2345.5", "12,34.5"]])
def test_texts_that_are_no_numbers(texts):
    assert encode_one(texts * 20)[0] == "category"


def test_mixed_types_are_categories():
    kind, matrix = encode_one(pd.Series([1, "1", "a", None, 2.5, "a "] * 20, dtype=object))
    assert kind == "category with missing values"
    assert matrix.shape == (120, 4)
    np.testing.assert_array_equal(matrix[0], matrix[1])
    np.testing.assert_array_equal(matrix[2], matrix[5])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([None] * N, "has no values"),
        ([np.nan] * N, "has no values"),
        ([np.inf] * N, "has no values"),
        ([pd.NaT] * N, "has no values"),
        ([3] * N, "has the same value in all rows"),
        (["a"] * N, "has the same value in all rows"),
        ([True] * N, "has the same value in all rows"),
        (["2024-01-01"] * N, "has the same value in all rows"),
        (range(N), "counts the rows like an id"),
        (range(N, 0, -1), "counts the rows like an id"),
        (np.cumsum(RNG.integers(1, 50, N)), "counts the rows like an id"),
        (-np.cumsum(RNG.integers(1, 50, N)), "counts the rows like an id"),
        (RNG.permutation(N) + 1000, "counts the rows like an id"),
        ([str(i) for i in range(N)], "counts the rows like an id"),
        ([f"user {i}" for i in range(N)], "has 200 different texts in 200 rows, like an id or free text"),
        ([f"words {i % 120}" for i in range(N)], "has 120 different texts in 200 rows, like an id or free text"),
        ([f"name {i % 80}" for i in range(N)], "has no text in 5 or more rows"),
        ([[1, 2]] * N, "has lists or records rather than single values"),
        (NUMBERS * 1j, "has complex numbers"),
    ],
)
def test_columns_of_no_use(values, why):
    assert reason(pd.Series(values)) == why


@pytest.mark.parametrize(
    "values", [RNG.integers(0, 150, N), RNG.permutation(N) * 1.5, RNG.permutation(N) ** 2, np.arange(N) / 4]
)
def test_numbers_that_are_no_ids(values):
    assert encode_one(values)[0] == "number"


def test_no_column_is_left():
    with pytest.raises(
        TableError, match="no column can be used as a feature: 'a' has no values; 'b' counts the rows like"
    ):
        encode(pd.DataFrame({"a": [None] * N, "b": range(N)}))
    with pytest.raises(TableError, match="there is none beside the label"):
        encode(pd.DataFrame(index=range(N)))


def test_columns_of_a_file(tmp_path):
    path = tmp_path / "table.csv"
    rows = [
        f"{i},{i % 5},{'rgb'[i % 3]},{i % 2 == 0},2024-01-{i % 28 + 1:02},{'' if i % 9 else i},"
        f'"${700.5 * (i % 13):,}",{i % 2}'
        for i in range(90)
    ]
    path.write_text("\n".join(["id,size,colour,new,day,note,price,kind", *rows]))
    table = read_table(path, "kind")
    encoded = encode(table.features)
    kinds = {
        "size": "number",
        "colour": "category",
        "new": "boolean",
        "day": "date",
        "note": "number with missing values",
        "price": "number",
    }
    assert dict(encoded.used) == kinds
    assert encoded.left_out == (("id", "counts the rows like an id"),)
    assert encoded.widths == (1, 3, 1, 2, 2, 1)
    assert encoded.matrix.shape == (90, sum(encoded.widths))
    np.testing.assert_allclose(encoded.matrix.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(encoded.matrix.std(0), 1, rtol=1e-5)


def test_the_table_is_not_changed():
    frame = pd.DataFrame({"x": [1.0, np.inf, np.nan, 2.0] * 9, "y": ["a", None, "b", " a"] * 9})
    before = frame.copy(deep=True)
    encode(frame)
    pd.testing.assert_frame_equal(frame, before)


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.dates(),
    st.datetimes(),
    st.binary(max_size=2),
)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.lists(st.floats(), min_size=2, max_size=30),
        st.lists(ANYTHING, min_size=2, max_size=30),
        st.lists(st.sampled_from(["a", "b", "1", "2024-01-01", "9999-12-31", None]), min_size=2, max_size=30),
    )
)
@example([5e-324, 1.7e308, -1.7e308, 0.0])
@example([1.7e308, 1.7e308, 1.7e308, -1.7e308, 0.5])
@example([5e-324, 1e-323, 0.0])
@example([0.0, 1.7e308, -1.7e308])
@example([0.0] * 20 + [1e-320, 1.0])
def test_anything_is_finite_or_left_out(values):
    values = pd.Series(values, dtype=object).infer_objects()
    encoded = encode(pd.DataFrame({"x": values, "good": np.arange(len(values)) == 0}))
    assert np.isfinite(encoded.matrix).all()
    assert np.abs(encoded.matrix).max() <= 10
    assert {name for name, _ in (*encoded.used, *encoded.left_out)} == {"x", "good"}
