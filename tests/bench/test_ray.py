"""Jobs on a Ray cluster of two nodes end with the results of one process, whatever is lost on the way."""

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from labelhedge.bench import local, ray
from labelhedge.bench.jobs import jobs
from labelhedge.bench.protocol import Protocol, setting
from labelhedge.bench.run import Machine
from labelhedge.results import ResultsStore
from tests.cli.commands import Forker, assert_same_bits, finished_files, last_line, places, result_files, wait_until

Cluster = pytest.importorskip("ray.cluster_utils").Cluster
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
LARGER = {**NODE, "num_cpus": 2}
QUICK = ("--dataset", "vowel", "--loss", "ce,mae,mse,ww", "--noise", "clean,u0.3", "--epochs", "60", "--folds", "2")
ONE = ("--engine", "ray", "--dataset", "vowel", "--loss", "ce", "--noise", "clean", "--epochs")


@pytest.fixture(scope="module")
def nodes():
    soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500}  # is a lost node seen to be lost
    level = {"worker_niceness": 0}  # with the tests that run beside these
    head = {**NODE, "include_dashboard": False, "_system_config": {**soon, **level}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def driver(nodes):
    with ray.cluster(nodes.address):
        yield


@pytest.fixture(scope="module")
def forker(nodes, tmp_path_factory):
    """Starts commands whose cluster is that of ``nodes``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.address)
        forker = Forker(tmp_path_factory.mktemp("commands"))
    with forker:
        yield forker


@pytest.fixture(scope="module")
def whole(forker, tmp_path_factory):
    """A folder that was filled without Ray."""
    out = tmp_path_factory.mktemp("whole")
    answer = forker.start(*QUICK, "--workers", "1", "--out", out).finish()
    assert answer.returncode == 0, answer.stderr
    return out


@pytest.fixture
def start(forker):
    """Starts a command, and ends it if it is still there after the test."""
    started = []

    def start(*arguments):
        started.append(forker.start(*arguments))
        return started[-1]

    yield start
    for command in started:
        for pid in command.processes():
            os.kill(pid, signal.SIGKILL)


def workers(out):
    """The processes that have a job in hand: those which hold its lock."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # just closed
            if link.readlink().is_relative_to(out / "locks"):
                found.append(int(link.parts[2]))
    return found


def first_worker(out):
    wait_until(lambda: workers(out))
    assert not result_files(out)
    return workers(out)[0]


def some_jobs(*losses, epochs=4):
    return jobs(Protocol("quick", epochs=epochs, folds=2), ["vowel"], losses, [setting("clean"), setting("u0.3")], [0])


def work_off(todo, root):
    """What the driver was told on the way."""
    told = []
    ray.work_off(todo, ResultsStore(root), Machine(), ray.Share(), 0, told.append)
    return told


@pytest.mark.parametrize("url", ["file://{}", "dir::file://{}"])  # a path, and what is no path to us
def test_the_results_are_those_of_one_process(driver, tmp_path, url):
    todo = some_jobs("ce", "ww", "aldr-kl")
    root = url.format(tmp_path / "ray")
    told = work_off(todo, root)
    assert sorted(told) == [0, *sorted(job.networks * 4 for job in todo)]
    local.work_off(todo, ResultsStore(tmp_path / "local"), Machine(), 1, lambda count: None)
    assert_same_bits(root, tmp_path / "local")


def test_only_what_is_missing_is_trained(driver, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    todo = some_jobs("ce", "mae")
    work_off(todo[:1], "here")
    before = result_files(tmp_path)
    work_off(todo, "here")
    assert before.items() < result_files(tmp_path).items()
    assert places(tmp_path / "here") == {job.place for job in todo}


def test_results_that_do_not_arrive_are_an_error(driver, monkeypatch):
    monkeypatch.setattr(ray, "_ARRIVE", 0)
    with pytest.raises(FileNotFoundError, match="are not in memory://unshared: --out must be a folder that all nodes"):
        work_off(some_jobs("ce"), "memory://unshared")


def test_what_fails_in_a_job_is_one_sentence_and_ends_the_others(driver, tmp_path):
    endless = some_jobs("mae", epochs=1_000_000)
    (tmp_path / "traces").write_text("not a folder")
    with pytest.raises(OSError, match="traces") as caught:
        work_off([*endless, *some_jobs("ce")], tmp_path)
    assert re.fullmatch(rf".*{tmp_path / 'traces'}.*", str(caught.value))  # and no more lines, of Ray's
    assert any("in _do\n" in note for note in caught.value.__notes__)
    wait_until(lambda: not workers(tmp_path))


def test_a_job_whose_worker_is_killed_is_done_again(start, whole, tmp_path):
    command = start("--engine", "ray", *QUICK, "--out", tmp_path)
    os.kill(first_worker(tmp_path), signal.SIGKILL)
    answer = command.finish()
    assert (answer.returncode, answer.stdout) == (0, ""), answer.stderr
    assert_same_bits(tmp_path, whole)


def test_a_job_whose_worker_is_killed_once_too_often_is_given_up(start, tmp_path):
    command = start(*ONE, "1000000", "--retries", "0", "--out", tmp_path)
    os.kill(first_worker(tmp_path), signal.SIGKILL)
    answer = command.finish()
    assert (answer.returncode, answer.stdout) == (1, "")
    sentence = r"vowel/ce/seed0 was given up: its worker was lost \(.+\), and --retries is 0; the same command goes on"
    assert re.fullmatch(f"labelhedge: paper-.{{8}}/{sentence}", last_line(answer.stderr))


def test_a_job_whose_node_is_lost_is_done_by_the_next_that_is_large_enough(start, nodes, tmp_path):
    command = start(*ONE, "60", "--cpus-per-job", "2", "--out", tmp_path)
    wait_until(lambda: "0 jobs at once with 2 CPUs each; waiting for a node\n" in command.err.read_text())
    node = nodes.add_node(**LARGER)
    first_worker(tmp_path)
    nodes.remove_node(node, allow_graceful=False)
    other = nodes.add_node(**LARGER)
    answer = command.finish()
    nodes.remove_node(other)
    assert (answer.returncode, answer.stdout) == (0, ""), answer.stderr
    assert len(places(tmp_path)) == 1


def test_a_killed_driver_takes_its_tasks_along_and_the_same_command_goes_on(start, whole, tmp_path):
    line = ("--engine", "ray", *QUICK, "--out", tmp_path)
    command = start(*line)
    wait_until(lambda: places(tmp_path))
    os.kill(command.pid, signal.SIGKILL)
    command.finish()
    wait_until(lambda: not workers(tmp_path))
    before, done = finished_files(tmp_path), len(places(tmp_path))
    assert 0 < done < 4
    answer = start(*line).finish()
    assert (answer.returncode, answer.stdout) == (0, ""), answer.stderr
    assert answer.stderr.splitlines()[1:3] == [
        f"{done} of them are there already",
        "Ray cluster, 2 jobs at once with 1 CPU each",
    ]
    assert before.items() < finished_files(tmp_path).items()
    assert_same_bits(tmp_path, whole)


@pytest.mark.parametrize("where", [(), ("--address", "local")], ids=["of others", "for this command alone"])
@pytest.mark.parametrize("end", [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM)], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupt_says_how_to_go_on_and_ends_the_tasks_on_a_cluster(start, tmp_path, where, end):
    command = start(*ONE, "1000000", *where, "--out", tmp_path)
    first_worker(tmp_path)
    kill, number = end  # a terminal sends it to all, a scheduler to the command
    kill(command.pid, number)
    answer = command.finish()
    assert (answer.returncode, answer.stdout) == (130, "")
    assert "***" not in answer.stderr  # Ray's dump
    assert last_line(answer.stderr) == "interrupted: 0 of 1 jobs are finished; the same command goes on"
    wait_until(lambda: not workers(tmp_path))
    wait_until(lambda: not command.processes())
