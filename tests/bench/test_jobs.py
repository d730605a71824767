"""Only what is missing is trained, and rows that were made in different ways never mix."""

import dataclasses

import pytest
import torch

import labelhedge as lh
from labelhedge.bench.jobs import Job, jobs, missing
from labelhedge.bench.local import work_off
from labelhedge.bench.protocol import PRESETS, Protocol, setting
from labelhedge.bench.run import Machine
from labelhedge.losses import _spec
from labelhedge.results import ResultsStore, load, load_traces

QUICK = Protocol("quick", epochs=2, folds=1)


def job(*noises, protocol=QUICK, dataset="vowel", loss="ce", seed=0):
    return Job(protocol, dataset, loss, seed, tuple(map(setting, noises)))


def do(store, *todo):
    work_off(todo, store, Machine(), workers=1, advance=lambda count: None)


def files(store):
    """The files of networks, with the time of their last change."""
    folder = store.root / "networks"
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}


@pytest.fixture
def store(tmp_path):
    threads = torch.get_num_threads()
    yield ResultsStore(tmp_path)
    torch.set_num_threads(threads)  # the engine takes one


def test_every_combination_is_a_job_and_those_of_a_data_set_stand_together():
    made = jobs(QUICK, ["vowel", "letter"], ["ce", "mae"], [setting("clean"), setting("u0.3")], range(2))
    assert [(job.dataset, job.seed, job.loss) for job in made] == [
        (dataset, seed, loss) for dataset in ("vowel", "letter") for seed in (0, 1) for loss in ("ce", "mae")
    ]
    assert {job.settings for job in made} == {(setting("clean"), setting("u0.3"))}
    assert {job.protocol for job in made} == {QUICK}


@pytest.mark.parametrize(
    ("protocol", "loss", "networks"),
    [("paper", "ce", 3), ("paper", "aldr-kl", 9), ("fair", "ce", 9), ("fair", "ce@l1", 27), ("fair", "sce@l1", 81)],
)
def test_the_number_of_networks_is_the_grid_times_folds_and_noises(protocol, loss, networks):
    protocol = PRESETS[protocol].protocol
    assert job("clean", protocol=protocol, loss=loss).networks == 5 * networks
    fewer = dataclasses.replace(protocol, folds=2)
    assert job("clean", "u0.3", "cd0.1", protocol=fewer, loss=loss).networks == 2 * 3 * networks


def test_a_job_has_a_folder_of_its_own():
    assert job("clean", "u0.3", loss="sce@l1", seed=2).place == f"{QUICK.id}/vowel/sce@l1/seed2"


def test_noises_of_images_are_claimed_apart_unless_they_are_tuned_together():
    protocol = PRESETS["cifar-100"].protocol
    assert job("u0.3", protocol=protocol, dataset="cifar-100").lock.endswith("/seed0/u0.3")
    tuned = dataclasses.replace(protocol, images=dataclasses.replace(protocol.images, tuning_epochs=2))
    one, both = (job(*noises, protocol=tuned, dataset="cifar-100") for noises in (["u0.3"], ["u0.3", "u0.6"]))
    assert one.lock == both.lock == one.place


def test_only_missing_noises_are_trained(store):
    wanted = job("clean", "u0.3", "cd0.1")
    assert missing(wanted, store) == wanted
    do(store, job("u0.3"))
    before = files(store)
    assert missing(job("u0.3"), store) is None
    assert missing(wanted, store) == job("clean", "cd0.1")
    do(store, wanted)
    assert missing(wanted, store) is None
    assert set(files(store)) == {f"{wanted.place}/u0.3.parquet", f"{wanted.place}/clean+cd0.1.parquet"}
    assert before.items() <= files(store).items()
    assert not load(store.root).duplicated(["noise", "rate", "lr", "fold"]).any()
    after = files(store)
    do(store, wanted)
    assert files(store) == after


def test_other_seeds_losses_and_protocols_are_not_what_is_missing(store):
    do(store, job("clean"))
    for other in (
        job("clean", seed=1),
        job("clean", loss="mae"),
        job("clean", protocol=dataclasses.replace(QUICK, folds=2)),
        dataclasses.replace(job("clean"), dataset="letter"),
    ):
        assert missing(other, store) == other


def test_rows_of_another_grid_are_refused_and_stay_as_they_are(store, monkeypatch):
    do(store, job("clean", loss="gce"))
    before = files(store)
    spec = lh.losses.get("gce")
    changed = dataclasses.replace(spec, grid=({"q": 0.5}, {"q": 0.7}))
    monkeypatch.setattr(spec.module, "spec", spec)  # a new specification makes itself that of the module
    monkeypatch.setitem(_spec._REGISTRY, "gce", changed)
    for wanted in (job("clean", loss="gce"), job("u0.3", loss="gce")):
        with pytest.raises(
            ValueError, match=r"clean\.parquet was computed with other hyperparameters or data; choose another"
        ):
            missing(wanted, store)
        with pytest.raises(ValueError, match="other hyperparameters"):
            do(store, wanted)
    assert files(store) == before
    assert missing(job("clean"), store) == job("clean")  # other losses are not concerned


def test_a_changed_protocol_has_a_folder_of_its_own_and_a_column_tells_them_apart(store):
    other = dataclasses.replace(QUICK, momentum=0.5)
    do(store, job("clean"))
    before = files(store)
    do(store, job("clean", protocol=other))
    assert before.items() < files(store).items()
    for table in (load(store.root), load_traces(store.root)):
        one, two = (table[table["protocol"] == protocol.id] for protocol in (QUICK, other))
        assert len(one) == len(two) == len(table) / 2 > 0
        assert not one["val_top1"].reset_index(drop=True).equals(two["val_top1"].reset_index(drop=True))
