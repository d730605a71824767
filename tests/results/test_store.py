"""Results are on disk whole or not at all, and other programs can read them."""

import re
import subprocess
import sys
from pathlib import Path

import duckdb
import fsspec
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from labelhedge._errors import UserError
from labelhedge.results import ResultsStore, load, load_traces
from labelhedge.results.schema import NETWORKS, TRACES

CHECKOUT = Path(__file__).parents[2]
PLACE = "paper-1/vowel/nce+rce@l1/seed0"
EXAMPLES = {"string": "text", "int64": 3, "float64": 0.1 + 0.2}
KILLED = """
import os, random, signal, sys, time
from labelhedge.results import ResultsStore, load, load_traces
from tests.results.test_store import PLACE, rows

store, random = ResultsStore(sys.argv[1]), random.Random(0)
networks, traces = rows(count=400), rows(table="traces", count=400)
store.write(PLACE, ["clean"], "", networks.assign(noise="clean"), traces.assign(noise="clean"))
start, finished = 0, set()
while start < 15 or len(finished) < 4:
    start += 1
    if not (writer := os.fork()):
        for version in range(start, 10**9):
            noise = f"u0.{version % 7}"
            own = networks.assign(noise=noise, best_epoch=version), traces.assign(noise=noise, epoch=version)
            store.write(PLACE, [noise], "", *own)
    time.sleep(random.uniform(0.005, 0.05 + start / 1000))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    finished = store.finished(PLACE, "")
    for table, version in ((load(store.root), "best_epoch"), (load_traces(store.root), "epoch")):
        groups = table.groupby("noise")
        assert (groups.size() == 400).all() and (groups[version].nunique() == 1).all(), table
        assert finished <= set(table["noise"]), finished  # a finished job has its traces
"""


def rows(protocol="paper-1", table="networks", count=1, **values):
    columns = NETWORKS if table == "networks" else TRACES
    example = {name: EXAMPLES[kind] for name, kind in columns.items()} | {"protocol": protocol} | values
    return pd.DataFrame(example, index=range(count))


def write(root, noises, place=PLACE, configuration="[]", **values):
    ResultsStore(root).write(place, noises, configuration, rows(**values), rows(table="traces"))


def test_what_was_written_is_loaded_with_the_columns_and_types_of_the_schema(tmp_path):
    write(tmp_path, ["clean", "u0.3"], best_epoch=7)
    table, traces = load(tmp_path), load_traces(tmp_path)
    assert list(table) == list(NETWORKS)
    assert list(traces) == list(TRACES)
    for name, kind in (NETWORKS | TRACES).items():
        told = (table if name in table else traces)[name]
        assert told.dtype == ("str" if kind == "string" else kind), name
        assert told.item() == (7 if name == "best_epoch" else "paper-1" if name == "protocol" else EXAMPLES[kind])


def test_there_is_one_file_per_job_beside_its_traces(tmp_path):
    write(tmp_path, ["clean", "u0.3"])
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {f"networks/{PLACE}/clean+u0.3.parquet", f"traces/{PLACE}/clean+u0.3.parquet"}


def test_a_missing_accuracy_stays_empty(tmp_path):
    write(tmp_path, ["clean"], test_top5=float("nan"))
    assert load(tmp_path)["test_top5"].isna().all()
    assert load(tmp_path)["test_top4"].notna().all()


def test_noises_are_finished_once_written(tmp_path):
    store = ResultsStore(tmp_path)
    assert store.finished(PLACE, "[]") == set()
    write(tmp_path, ["clean", "u0.3"])
    write(tmp_path, ["cd0.1"])
    write(tmp_path, ["u0.9"], place=PLACE.replace("seed0", "seed1"))
    assert store.finished(PLACE, "[]") == {"clean", "u0.3", "cd0.1"}


def test_rows_of_another_configuration_are_refused_and_named(tmp_path):
    write(tmp_path, ["clean"], configuration="[0.1]")
    with pytest.raises(
        ValueError, match=r"clean\.parquet was computed with other hyperparameters or data; choose another --out"
    ):
        ResultsStore(tmp_path).finished(PLACE, "[0.2]")


def test_the_order_of_rows_does_not_depend_on_the_order_of_writing(tmp_path):
    jobs = [(place, noise) for place in (PLACE, "paper-1/letter/ce/seed0", "fair-1/vowel/ce/seed2") for noise in "ab"]
    for name, order in (("one", jobs), ("other", jobs[::-1])):
        for place, noise in order:
            write(tmp_path / name, [noise], place=place, dataset=place, noise=noise)
    one, other = load(tmp_path / "one"), load(tmp_path / "other")
    assert len(one) == 6
    assert_frame_equal(one, other, check_exact=True)


def test_pandas_and_duckdb_read_the_same(tmp_path):
    for noise in ("clean", "u0.3"):
        write(tmp_path, [noise], noise=noise, rate=0.1, seed=5)
    write(tmp_path, ["clean"], place="fair-1/letter/ce/seed0", noise="z", test_top5=float("nan"))
    (tmp_path / "networks" / PLACE / ".u0.9.1.part").write_bytes(b"half a file")
    expected = load(tmp_path)
    assert len(expected) == 3
    by_pandas = pd.read_parquet(tmp_path / "networks")
    by_duckdb = duckdb.sql(f"select * from read_parquet('{tmp_path}/networks/**/*.parquet')").arrow().read_all()
    for told in (by_pandas, by_duckdb.to_pandas()):
        told = told.sort_values("noise", ignore_index=True)
        assert_frame_equal(told, expected.sort_values("noise", ignore_index=True), check_exact=True)


def test_behind_a_url_is_the_same_as_in_a_folder(tmp_path):
    url = f"memory:/{tmp_path}"
    for root in (tmp_path, url):
        for place in (PLACE, PLACE.replace("vowel", "vowel-2"), "fair-1/letter/ce/seed0"):
            write(root, ["u0.3", "clean"], place=place, dataset=place)
        write(root, ["cd0.1"], best_epoch=1)
        write(root, ["cd0.1"], best_epoch=2)
    for read in (load, load_traces):
        assert_frame_equal(read(url), read(tmp_path), check_exact=True)
    assert sorted(load(url)["best_epoch"]) == [2, 3, 3, 3]
    store = ResultsStore(url)
    assert store.root == url
    assert store.finished(PLACE, "[]") == {"clean", "u0.3", "cd0.1"}
    assert store.finished("paper-1/vowel", "[]") == {"clean", "u0.3", "cd0.1"}
    with pytest.raises(ValueError, match=r"cd0\.1\.parquet was computed with other hyperparameters"):
        store.finished(PLACE, "[0.2]")


def test_what_is_no_result_behind_a_url_is_skipped(tmp_path):
    folder = fsspec.filesystem("memory")
    folder.pipe_file(f"{tmp_path}/networks/{PLACE}/.clean.parquet", b"somebody's copy in the making")
    folder.pipe_file(f"{tmp_path}/networks/{PLACE}/notes.txt", b"somebody's notes")
    url = f"memory:/{tmp_path}"
    assert ResultsStore(url).finished(PLACE, "[]") == set()
    with pytest.raises(ValueError, match=f"no results in {url}; fill it with: labelhedge bench --out {url}"):
        load(url)


def test_the_url_of_a_file_is_a_path(tmp_path):
    write(f"file://{tmp_path}", ["clean"])
    assert ResultsStore(f"file://{tmp_path}").root == tmp_path
    assert len(load(tmp_path)) == len(load(f"file://{tmp_path}")) == 1


def test_an_unknown_kind_of_url_is_refused():
    with pytest.raises(ValueError, match="Protocol not known: nowhere"):
        ResultsStore("nowhere://results")


@pytest.mark.parametrize("read", [load, load_traces])
@pytest.mark.parametrize("folder", ["", "nowhere"])
def test_a_folder_without_results_says_how_to_fill_it(tmp_path, read, folder):
    with pytest.raises(ValueError, match=r"no results in .*; fill it with: labelhedge bench --out "):
        read(tmp_path / folder)


def test_a_half_written_file_is_not_a_result(tmp_path):
    folder = tmp_path / "networks" / PLACE
    folder.mkdir(parents=True)
    (folder / ".clean.17.part").write_bytes(b"half a file")
    (folder / ".clean.parquet").write_bytes(b"somebody's copy in the making")
    assert ResultsStore(tmp_path).finished(PLACE, "[]") == set()
    with pytest.raises(ValueError, match="no results"):
        load(tmp_path)


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    write(tmp_path, ["clean"], best_epoch=1)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    store = ResultsStore(tmp_path)
    with pytest.raises(KeyError, match="val_top1"):
        store.write(PLACE, ["clean"], "[]", rows(), rows(table="traces").drop(columns="val_top1"))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_writer_killed_at_any_moment_leaves_whole_files_only(tmp_path):
    line = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(line, cwd=CHECKOUT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("url", ["", "memory:/"])
def test_a_place_is_claimed_by_one_process_until_it_is_gone(tmp_path, url):
    root = f"{url}{tmp_path}"
    hold = "import sys; from labelhedge.results import ResultsStore\n"
    hold += "with ResultsStore(sys.argv[1]).claim('p') as ours: print(ours, flush=True); sys.stdin.read()"
    line = [sys.executable, "-c", hold, root]
    store = ResultsStore(root)
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "True\n"
        with store.claim("p") as ours, store.claim("q") as another:
            assert (ours, another) == (False, True)
        other.kill()
        other.wait()
    for _ in range(2):
        with store.claim("p") as ours:
            assert ours


def overwritten(path):
    content = path.read_bytes()
    path.write_bytes(content[:8] + b"\xff" * 400 + content[408:])


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "overwritten": overwritten,
    "no rows": lambda path: pd.read_parquet(path).head(0).to_parquet(path),
    "no columns": lambda path: pd.DataFrame(index=range(3)).to_parquet(path),
    "other columns": lambda path: pd.DataFrame({"a": [1]}).to_parquet(path),
    "a null": lambda path: pd.read_parquet(path).assign(loss=None).to_parquet(path),
    "text for numbers": lambda path: pd.read_parquet(path).assign(seed="a").to_parquet(path),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("table", ["networks", "traces"])
def test_a_damaged_file_is_named(tmp_path, damage, table):
    write(tmp_path, ["clean", "u0.3"])
    write(tmp_path, ["u0.6"])
    path = tmp_path / table / PLACE / "u0.6.parquet"
    DAMAGE[damage](path)
    with pytest.raises(UserError, match=f"^{re.escape(str(path))} is no file of results, or a damaged one "):
        load(tmp_path) if table == "networks" else load_traces(tmp_path)


def test_a_damaged_file_is_not_taken_for_finished(tmp_path):
    write(tmp_path, ["clean"])
    path = tmp_path / "networks" / PLACE / "clean.parquet"
    path.write_bytes(b"")
    with pytest.raises(UserError, match=f"^{re.escape(str(path))} is no file of results"):
        ResultsStore(tmp_path).finished(PLACE, "[]")
