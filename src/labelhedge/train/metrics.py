"""How often the label is among the k classes with the highest logits."""

from __future__ import annotations

import torch
from torch import Tensor


def rank_of_label(logits: Tensor, target: Tensor, *, class_dim: int = -1) -> Tensor:
    """The place of the label among the classes by logit, from 1; the label comes last among equals.

    So a network that gives every class the same logit is never right. A NaN among the logits puts the
    label behind all classes, whichever class it is of.

    Args:
        logits: With the classes in ``class_dim``.
        target: Class indices, of the shape of the logits without that dimension.
        class_dim: Where the classes are.

    Example:
        >>> rank_of_label(torch.tensor([[0.1, 0.7, 0.2]]), torch.tensor([2]))
        tensor([2])
    """
    own = logits.gather(class_dim, target.unsqueeze(class_dim))
    rank = (logits >= own).sum(class_dim)
    return torch.where(logits.isnan().any(class_dim), logits.shape[class_dim] + 1, rank)


def top_k(ranks: Tensor, k: int, weight: Tensor | None = None) -> Tensor:
    """The share of samples whose label is among the first k classes.

    Args:
        ranks: ``(..., N)`` as from :func:`rank_of_label`.
        k: How many classes count.
        weight: What each sample counts, to broadcast against the ranks; see :func:`balanced_weight`.

    Returns:
        ``(...)`` in float64.

    Example:
        >>> top_k(torch.tensor([1, 2, 1, 3]), 2)
        tensor(0.7500, dtype=torch.float64)
    """
    among = (ranks <= k).double()
    return among.mean(-1) if weight is None else (among * weight).sum(-1)


def balanced_weight(labels: Tensor, num_classes: int) -> Tensor:
    """What each sample counts if every class that occurs counts the same, as Kuzushiji-49's authors ask.

    Args:
        labels: ``(..., N)`` class indices.
        num_classes: Number of classes.

    Returns:
        Weights ``(..., N)`` that sum to 1.

    Example:
        >>> balanced_weight(torch.tensor([0, 0, 2]), 3)
        tensor([0.2500, 0.2500, 0.5000], dtype=torch.float64)
    """
    counts = torch.zeros(*labels.shape[:-1], num_classes, dtype=torch.float64, device=labels.device)
    counts.scatter_add_(-1, labels, torch.ones_like(labels, dtype=torch.float64))
    present = (counts > 0).sum(-1, keepdim=True)
    return 1 / (counts.gather(-1, labels) * present)
