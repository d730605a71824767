"""What ``labelhedge train`` refuses, in one sentence, and without leaving anything behind."""

import shutil

import pytest
import torch
from PIL import Image

from labelhedge.results import ResultsStore
from tests.cli.commands import last_line
from tests.cli.pets import LINE, contents

KNOWN = "aldr-kl has no hyperparameter 'lam'; it has: lambda0, alpha, margin"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--model", "resnet34"), 2, "unknown model 'resnet34'; known models: resnet18, resnet50"),
        (("--loss", "cee"), 2, "unknown loss 'cee'; known losses: agce, aldr-kl, "),
        (("--loss", "ce@l3"), 2, "unknown normaliser 'l3' in 'ce@l3'; known normalisers: l1, softplus"),
        (("--param", "lam=1"), 2, KNOWN),
        (("--param", "lambda0=much"), 2, "a hyperparameter is given as NAME=NUMBER, got 'lambda0=much'"),
        (("--param", "lambda0"), 2, "a hyperparameter is given as NAME=NUMBER, got 'lambda0'"),
        (("--param", "lambda0=-1"), 2, "lambda0 must be a number in (0, inf], got -1.0"),
        (("--loss", "topk-svm", "--param", "k=1.5"), 2, "k must be an integer in [1, inf), got 1.5"),
        (("--loss", "topk-svm", "--param", "k=5"), 2, "k must be an integer in [1, 3], the number of classes, got 5"),
        (
            ("--loss", "ce", "--exact"),
            2,
            "--exact is for a loss that keeps something of every image, and ce keeps nothing",
        ),
        (("--noise", "x0.3"), 2, "unknown noise 'x0.3'; it is clean, uR or cdR with a rate R such as u0.3, or "),
        (("--noise", "u1.3"), 2, "the rate of noise 'u1.3' must be in [0, 1]"),
        (("--noise", "worse"), 2, "there are no human labels 'worse'; there are: none"),
        (("--lr", "nan"), 2, "--lr must be a number of at least 0, got nan"),
        (("--decay", "-1"), 2, "--decay must be a number of at least 0, got -1.0"),
        (("--momentum", "0", "--nesterov"), 2, "--nesterov needs a --momentum above 0"),
        (("--dataset", "vowel"), 2, "vowel is a table; labelhedge bench trains on those"),
        (("--dataset", "pet"), 2, "unknown data set 'pet'; known data sets: vowel, "),
        (("--dataset", "./nowhere"), 1, "there is no folder "),
        (("--augment", "zoom=2"), 2, "--augment takes crop=4, flip, shift=0.1 and jitter=0.2, or none, got 'zoom=2'"),
        (("--augment", "flip=1"), 2, "--augment takes crop=4, flip, shift=0.1 and jitter=0.2, or none, got 'flip=1'"),
        (("--augment", "crop=x"), 2, "--augment crop must be a number, got 'x'"),
        (("--augment", "shift=1.5"), 2, "shift must be in [0, 1), got 1.5"),
        (("--decay-after", "0"), 2, "--decay-after must be epochs in 1 … 40 with commas between, or every, got '0'"),
        (("--decay-after", "10,41"), 2, "--decay-after must be epochs in 1 … 40 with commas between, or every, got "),
        (("--validation", "0.9"), 2, "--validation must be 0, 1/2, 1/3, 1/4 and so on, as a number such as 0.25, got"),
        (("--validation", "0.4"), 2, "--validation must be 0, 1/2, 1/3, 1/4 and so on, as a number such as 0.25, got"),
        (("--validation", "nan"), 2, "--validation must be 0, 1/2, 1/3, 1/4 and so on, as a number such as 0.25, got"),
        (("--lr", "1e30"), 2, "the loss is nan after epoch 1; lower --lr"),
        (("--image-size", "9"), 2, "image_size must be at most the 8 pixels of the images, got 9; --resize makes "),
        (("--device", "tpu"), 2, "device must be cpu or cuda, got 'tpu'"),
        (("--weights", "nowhere.pt"), 2, "cannot read the weights nowhere.pt: No such file or directory"),
        (("--weights", __file__), 2, f"{__file__} has no weights that can be read (UnpicklingError)"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing_behind(trainer, pets, tmp_path, arguments, code, message):
    out = tmp_path / "out"
    answer = trainer.run("--dataset", pets, *LINE, *arguments, "--out", out)
    assert (answer.returncode, answer.stdout) == (code, "")
    assert last_line(answer.stderr).startswith(f"labelhedge: {message}")
    assert not out.exists()


def no_images_of_a_class(pets):
    shutil.rmtree(pets / "test" / "owl")


def a_class_to_test_alone(pets):
    shutil.copytree(pets / "test" / "owl", pets / "test" / "yak")


def nothing_to_test(pets):
    shutil.rmtree(pets / "test")


def half_an_image(pets):
    path = pets / "train" / "dog" / "07.png"
    path.write_bytes(path.read_bytes()[:100])


def a_test_image_that_is_none(pets):
    (pets / "test" / "owl" / "05.png").write_text("no image")


def larger_test_images(pets):
    for path in (pets / "test").rglob("*.png"):
        Image.new("RGB", (9, 12)).save(path)


def larger_images_among_others(pets):
    Image.new("RGB", (9, 12)).save(pets / "train" / "owl" / "03.png")


@pytest.mark.parametrize(
    ("damage", "code", "message"),
    [
        (no_images_of_a_class, 1, "pets/test has no folder owl; put images of that class into "),
        (a_class_to_test_alone, 1, "pets/test/yak is a class that "),
        (nothing_to_test, 1, "pets has no folder for testing; put images into "),
        (half_an_image, 1, "pets/train/dog/07.png is not a whole JPEG or PNG image (replace it or leave it out)"),
        (a_test_image_that_is_none, 1, "pets/test/owl/05.png is not a whole JPEG or PNG image (replace it or leave it"),
        (larger_images_among_others, 2, "images have different sizes, such as 8 × 8 and 12 × 9; use --resize"),
        (larger_test_images, 2, "images to train on have 8 × 8 × 3 values, those to test on 12 × 9 × 3; use --resize"),
    ],
)
def test_images_that_cannot_be_used_are_named(trainer, pets, tmp_path, damage, code, message):
    damaged, out = shutil.copytree(pets, tmp_path / "pets"), tmp_path / "out"
    damage(damaged)
    answer = trainer.run("--dataset", damaged, *LINE, "--out", out)
    assert (answer.returncode, answer.stdout) == (code, "")
    assert last_line(answer.stderr).startswith(f"labelhedge: {message.replace('pets', str(damaged), 1)}")
    assert not out.exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, 2], "has no weights: it must hold tensors by their name, as a state_dict does"),
        ({"conv1.weight": torch.zeros(3)}, "the weights do not fit the network: "),
    ],
)
def test_weights_of_something_else_are_refused(trainer, pets, tmp_path, given, message):
    torch.save(given, tmp_path / "given.pt")
    line = ("--dataset", pets, *LINE, "--weights", tmp_path / "given.pt", "--out", tmp_path / "out")
    answer = trainer.run(*line)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert message in last_line(answer.stderr)
    assert not (tmp_path / "out").exists()


def test_a_url_is_no_folder_for_checkpoints(trainer, pets):
    answer = trainer.run("--dataset", pets, *LINE, "--out", "s3://bucket/trained")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert last_line(answer.stderr) == "labelhedge: --out must be a folder of this machine, got s3:/bucket/trained"


def test_two_trainings_do_not_write_into_one_folder(trainer, pets, tmp_path):
    out = tmp_path / "out"
    with ResultsStore(out).claim_all():
        answer = trainer.run("--dataset", pets, *LINE, "--out", out)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert last_line(answer.stderr).startswith(f"labelhedge: another labelhedge train writes into {out}; ")
    assert not out.exists()


def test_what_another_noise_or_other_files_gave_is_not_taken_for_finished(trainer, pets, tmp_path):
    mine, out = shutil.copytree(pets, tmp_path / "pets"), tmp_path / "out"
    line = ("--dataset", mine, *LINE, "--epochs", "1", "--loss", "ce@l1", "--out", out)
    assert trainer.run(*line).returncode == 0
    before = contents(out)
    assert last_line(trainer.run(*line, "--noise", "u0.6").stderr).endswith("; choose another --out")
    one, other = mine / "train" / "cat" / "00.png", mine / "train" / "dog" / "00.png"
    one.rename(mine / "train" / "dog" / "20.png")
    other.rename(mine / "train" / "cat" / "20.png")
    assert last_line(trainer.run(*line).stderr).endswith("or data; choose another --out")
    assert contents(out) == before
