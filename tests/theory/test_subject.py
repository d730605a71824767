import torch

from labelhedge.theory.subject import Subject
from labelhedge.theory.verdict import written


def distance(logits, target):
    """Infinite for label 1, and the length of the logits for the others."""
    return torch.where(target == 1, torch.inf, logits.norm(dim=-1))


def test_the_values_of_every_label():
    logits = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    assert Subject(distance, 3).values(logits).tolist() == [[5.0, torch.inf, 5.0], [1.0, torch.inf, 1.0]]


def test_a_label_that_never_occurs_counts_nothing():
    logits = torch.tensor([[3.0, 4.0, 0.0]])
    assert Subject(distance, 3).expected(logits, torch.tensor([0.5, 0.0, 0.5])).item() == 5.0
    assert Subject(distance, 3).expected(logits, torch.tensor([0.5, 0.1, 0.4])).item() == torch.inf


def test_a_ball_shortens_what_is_too_long_and_nothing_else():
    logits = torch.tensor([[30.0, 40.0, 0.0], [0.3, 0.4, 0.0]])
    torch.testing.assert_close(Subject(distance, 3, ball=2.0).values(logits)[:, 0], torch.tensor([2.0, 0.5]))


def test_vectors_are_written_with_digits_to_compute_with():
    assert written((1.0, -0.123456789)) == written(torch.tensor([1.0, -0.123456789])) == "(1, -0.123457)"
