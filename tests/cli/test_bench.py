"""The command ``labelhedge bench`` as people and programs meet it."""

import json
import re
import subprocess
import sys
from contextlib import nullcontext

import pytest
from pandas.testing import assert_frame_equal
from typer.testing import CliRunner

import labelhedge as lh
from labelhedge.bench import ray
from labelhedge.bench.protocol import PRESETS, Protocol
from labelhedge.cli.app import app
from labelhedge.results import load, load_traces
from tests.cli.commands import JOBS, QUICK, assert_same_bits, last_line, result_files

PEAK = """
import re
from pathlib import Path
from labelhedge.cli import main

try:
    main()
finally:
    print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def test_a_plan_with_an_estimate_comes_first_and_then_where_the_results_are(whole):
    out, answer = whole
    assert answer.stdout == ""
    plan, machine, *training, end = answer.stderr.splitlines()
    assert re.fullmatch(rf"protocol paper-[0-9a-f]{{8}}: 6 jobs, 168 networks × 10 epochs, into {out}", plan)
    assert re.fullmatch(r"CPU .+, 1 worker, up to 36 networks at once; about \d+ s", machine)
    assert training[0] == "training: 1,680 network-epochs"
    assert training[-1].startswith("training: done in ")
    assert end == f"results are in {out}; now: labelhedge report {out}"
    assert len(load(out)) == 168


def test_a_plan_as_json_trains_nothing_and_tells_what_is_finished(forker, whole, tmp_path):
    out, _ = whole
    before = result_files(out)
    answer = forker.start("--json", *QUICK, "--seeds", "3", "--out", out).finish()
    assert (answer.returncode, answer.stderr) == (0, "")
    told = json.loads(answer.stdout)
    assert [(job["seed"], job["loss"]) for job in told] == [
        (s, loss) for s in range(3) for loss in ("ce", "ww", "aldr-kl")
    ]
    assert [job["finished"] for job in told] == [True] * JOBS + [False] * 3
    assert [job["networks"] for job in told] == [12, 36, 36] * 3
    assert told[0] == {
        "protocol": load(out)["protocol"][0],
        "dataset": "vowel",
        "loss": "ce",
        "seed": 0,
        "noise": ["clean", "u0.3"],
        "networks": 12,
        "epochs": 10,
        "finished": True,
    }
    assert result_files(out) == before


@pytest.mark.parametrize(
    ("arguments", "jobs", "networks"),
    [
        ([], 15, 4095),
        (["--preset", "paper-tabular"], 4 * 15, 4 * 4095),
        (["--preset", "fair"], 3 * 3 * 28, 3 * 3 * 5 * 7 * 9 * (39 + 3 * 33)),
        (["--preset", "fair", "--loss", "paper", "--noise", "paper", "--seeds", "1"], 3 * 15, 3 * 3 * 4095),
        (["--preset", "fair", "--dataset", "letter", "--loss", "ce, sce@l1,ce"], 3 * 2, 3 * 5 * 7 * (9 + 81)),
    ],
)
def test_presets_say_what_to_compare_and_options_change_it(forker, tmp_path, arguments, jobs, networks):
    out = tmp_path / "results"
    told = json.loads(forker.start("--json", *arguments, "--out", out).finish().stdout)
    assert (len(told), sum(job["networks"] for job in told)) == (jobs, networks)
    preset = PRESETS["fair" if "fair" in arguments else "demo"]
    assert {job["protocol"] for job in told} == {preset.protocol.id}
    assert not out.exists()


def test_learning_rates_to_choose_from_are_part_of_the_protocol(forker):
    (told,) = json.loads(forker.start("--json", "--loss", "ce", "--lr", "0.01, 0.001").finish().stdout)
    assert told["networks"] == 2 * 7 * 5
    assert told["protocol"] == Protocol("paper", learning_rates=(0.01, 0.001)).id


def test_the_paper_stands_for_its_losses_and_noises(forker):
    told = json.loads(forker.start("--json", "--loss", "paper", "--noise", "paper").finish().stdout)
    assert [job["loss"] for job in told] == list(lh.losses.PAPER)
    assert told[0]["noise"] == ["clean", "u0.3", "u0.6", "u0.9", "cd0.1", "cd0.3", "cd0.5"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "papre"], "unknown preset 'papre'; known presets: demo, paper-tabular, paper, fair"),
        (["--loss", "ce,cee"], "unknown loss 'cee'; known losses: agce, "),
        (["--loss", "aldr-kl@l1"], "aldr-kl is on L1-normalised logits by itself; there is no aldr-kl@l1"),
        (["--noise", "clean,x0.3"], "unknown noise 'x0.3'; it is clean, uR or cdR with a rate R such as u0.3"),
        (["--noise", "u1.5"], "the rate of noise 'u1.5' must be in [0, 1]"),
        (["--dataset", "vowle"], "unknown data set 'vowle'; known data sets: vowel, letter"),
        (["--dataset", "vowel", "--tuning-epochs", "2"], "--tuning-epochs is for images, and these are tables: vowel"),
        (["--dataset", "cifar-10", "--tuning-epochs", "30"], "tuning_epochs must be in [1, 29], got 30"),
        (["--lr", "0.1,fast"], "--lr must be positive numbers with commas between, got '0.1,fast'"),
        (["--lr", "0"], "--lr must be positive numbers with commas between, got '0'"),
        (["--lr", "0.1,"], "--lr must be positive numbers with commas between, got '0.1,'"),
        (["--device", "tpu"], "device must be cpu or cuda, got 'tpu'"),
        (["--device", "meta"], "device must be cpu or cuda, got 'meta'"),
        (["--memory", "lots"], "an amount of memory is a number with kB, MB, GB or TB behind it, got 'lots'"),
        (["--memory", "-1GB"], "an amount of memory is a number with kB, MB, GB or TB behind it, got '-1GB'"),
        (["--loss", "ce,,mae"], "empty name in the list 'ce,,mae'"),
        (["--noise", "clean,"], "empty name in the list 'clean,'"),
        (["--dataset", ""], "empty name in the list ''"),
        (["--engine", "spark"], "unknown engine 'spark'; known engines: local, ray"),
        (["--address", "localhost:6379"], "--address is for --engine ray, and the engine is local"),
        (["--cpus-per-job", "1"], "--cpus-per-job is for --engine ray, and the engine is local"),
        (["--gpus-per-job", "0"], "--gpus-per-job is for --engine ray, and the engine is local"),
        (["--retries", "0"], "--retries is for --engine ray, and the engine is local"),
        (["--engine", "ray", "--workers", "2"], "--workers is for --engine local, and the engine is ray"),
        (["--engine", "ray", "--memory", "1GB"], "--memory is for --engine local, and the engine is ray"),
        (["--engine", "ray", "--device", "cuda:1"], "device must be cpu or cuda on Ray, got 'cuda:1'"),
        (
            ["--engine", "ray", "--device", "cuda", "--gpus-per-job", "0"],
            "--device cuda and --gpus-per-job 0 do not go",
        ),
        (["--engine", "ray", "--device", "cpu", "--gpus-per-job", "1"], "--device cpu and --gpus-per-job 1 do not go"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(forker, tmp_path, arguments, message):
    answer = forker.start(*arguments, "--out", tmp_path / "results").finish()
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert last_line(answer.stderr).startswith(f"labelhedge: {message}")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--folds", "6"), ("--epochs", "0"), ("--seeds", "0"), ("--workers", "many")]
)
def test_a_wrong_number_is_exit_code_2(forker, option, value):
    answer = forker.start(option, value).finish()
    assert (answer.returncode, answer.stdout) == (2, "")
    assert option in last_line(answer.stderr)


def test_too_little_memory_is_one_sentence_and_exit_code_2(forker, tmp_path):
    answer = forker.start(*QUICK, "--workers", "1", "--memory", "10MB", "--out", tmp_path).finish()
    assert (answer.returncode, answer.stdout) == (2, "")
    sentence = last_line(answer.stderr)
    assert re.match("labelhedge: .*memory.* at least ", sentence)
    assert not re.search(r"-\d", sentence)  # nobody has asked for less than nothing
    assert not result_files(tmp_path)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "nonsense", "ray://nowhere.invalid:10001"])
def test_a_cluster_that_is_not_there_is_one_sentence_and_exit_code_2(forker, tmp_path, address):
    answer = forker.start(*QUICK, "--engine", "ray", "--address", address, "--out", tmp_path).finish()
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 2  # after the plan
    assert last_line(answer.stderr).startswith(f"labelhedge: cannot join the Ray cluster {address}: ")
    assert not result_files(tmp_path)


def test_without_ray_there_is_a_sentence_that_says_how_to_get_it(tmp_path):
    code = "import sys; sys.modules['ray'] = None; from labelhedge.cli import main; main()"
    line = [sys.executable, "-c", code, "bench", *QUICK, "--engine", "ray", "--out", str(tmp_path)]
    answer = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert answer.returncode == 2
    expected = "labelhedge: ray is not installed; get it with: pip install 'labelhedge[ray]'"
    assert last_line(answer.stderr) == expected


@pytest.mark.parametrize(
    ("arguments", "share"),
    [
        ([], ("cpu", 1, 0)),
        (["--cpus-per-job", "3"], ("cpu", 3, 0)),
        (["--device", "cuda"], ("cuda", 1, 1)),
        (["--gpus-per-job", "0.25"], ("cuda", 1, 0.25)),
        (["--device", "cpu", "--gpus-per-job", "0"], ("cpu", 1, 0)),
    ],
)
def test_a_job_on_ray_has_a_cpu_and_on_cuda_a_gpu_unless_said_otherwise(monkeypatch, tmp_path, arguments, share):
    told = []

    def work_off(jobs, store, machine, share, retries, advance):
        told.append((machine.device, share.cpus, share.gpus))

    monkeypatch.setattr(ray, "work_off", work_off)
    monkeypatch.setattr(ray, "cluster", lambda address: nullcontext())
    monkeypatch.setattr(ray.Share, "at_once", lambda share: 1)
    answer = CliRunner().invoke(app, ["bench", *QUICK, "--engine", "ray", *arguments, "--out", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    assert told == [share]


def test_two_processes_share_a_folder_behind_a_url_and_train_every_job_once(forker, whole, tmp_path):
    url = f"dir::file://{tmp_path}"
    commands = [forker.start(*QUICK, "--workers", "1", "--out", url) for _ in range(2)]
    for command in commands:
        answer = command.finish()
        assert (answer.returncode, answer.stdout) == (0, ""), answer.stderr
        assert last_line(answer.stderr) == f"results are in {url}; now: labelhedge report {url} --out report"
    assert len(forker.trained(url)) == JOBS
    assert_same_bits(url, whole[0])


def test_results_of_another_grid_are_refused(forker, whole, tmp_path):
    out, _ = whole
    source = next((out / "networks").rglob("ce/seed0/*.parquet"))
    target = tmp_path / source.relative_to(out).parent.parent.parent / "aldr-kl" / "seed0" / source.name
    target.parent.mkdir(parents=True)
    target.write_bytes(source.read_bytes())
    answer = forker.start(*QUICK, "--out", tmp_path).finish()
    assert (answer.returncode, answer.stdout) == (2, "")
    expected = f"labelhedge: {target} was computed with other hyperparameters or data; choose another --out"
    assert answer.stderr == f"{expected}\n"
    assert list(result_files(tmp_path)) == [target]


def test_a_noise_under_two_names_is_trained_once(forker, tmp_path):
    told = json.loads(forker.start("--json", "--loss", "ce", "--noise", "u0.3,u0.30,u.3").finish().stdout)
    assert [job["noise"] for job in told] == [["u0.3"]]


def test_help_shows_an_example(forker):
    answer = forker.start("--help").finish()
    assert (answer.returncode, answer.stderr) == (0, "")
    words = " ".join(answer.stdout.split())
    assert "Example: labelhedge bench --dataset vowel --loss aldr-kl,ce --noise clean,u0.3 --out results" in words
    for option in ("--preset", "--seeds", "--epochs", "--folds", "--device", "--workers", "--memory", "--json"):
        assert option in words
    for option in ("--engine", "--address", "--cpus-per-job", "--gpus-per-job", "--retries"):
        assert option in words


@pytest.fixture(scope="module")
def limited(forker, tmp_path_factory):
    """A folder filled within little memory, how many bytes, what was said, and a folder filled without a limit."""
    one, other = (tmp_path_factory.mktemp(name) for name in ("limited", "unlimited"))
    noises = ",".join(f"u{rate / 100:g}" for rate in range(1, 41))
    line = ["--preset", "fair", "--dataset", "vowel", "--loss", "aldr-kl", "--noise", noises, "--seeds", "1"]
    line += ["--epochs", "1", "--workers", "1", "--out"]
    unlimited = forker.start(*line, other)

    def within(memory):
        # a shell in between, since what a program has at most had in memory counts that of the program which started it
        start = ["sh", "-c", '"$@"; exit', "sh", sys.executable, "-c", PEAK, "bench", *line, one, "--memory", memory]
        return subprocess.run(start, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    least = int(re.search(r"at least (\d+) MB with 1 worker, got 1 MB", within("1MB").stderr)[1])
    answer = within(f"{least + 10}MB")
    assert unlimited.finish().returncode == answer.returncode == 0, answer.stderr
    return one, least + 10, answer, other


def test_a_stack_too_big_for_the_memory_is_split_and_ends_with_the_same_accuracies(limited):
    one, megabytes, answer, other = limited
    told = re.search(rf"up to ([\d,]+) networks at once within {megabytes} MB;", answer.stderr)
    assert 1 < int(told[1].replace(",", "")) < 5400
    origin = ["seconds", "commit"]
    assert_frame_equal(load(one).drop(columns=origin), load(other).drop(columns=origin), rtol=0, atol=0.02)
    assert_frame_equal(load_traces(one), load_traces(other), rtol=0, atol=0.02)


def test_a_run_stays_within_the_memory(limited):
    _, megabytes, answer, _ = limited
    assert int(answer.stdout) * 1024 <= megabytes * 10**6
