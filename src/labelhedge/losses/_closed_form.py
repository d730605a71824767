"""Value and gradient of a loss, written down from a few sums over the classes: what fused code needs of it.

One text serves the kernels and the fused code on a CPU. It may use numbers, tuples, ``+ - * / > ==`` and the functions
of ``_math.py``, and other functions written so; annotations are ``Any``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class ClosedForm:
    """A loss of the scaled logits z, known by what it needs of their softmax p and of the gaps q.

    Attributes:
        finish: By ``needs``. For "log p_y" ``finish(log_p_y, params)`` gives the value and its derivative in ``log
            p_y``. For "sum of log p" ``finish(log_p_y, total, params)`` gives the value and its derivatives in ``log
            p_y`` and in the total ``Σ_k log p_k``. For "terms" ``finish(log_p_y, terms, psis, classes, params)`` gives
            the value and P, V, E, where the gradient is ``P p_k + V ψ_k + E [k=y]``, from ``Σ_{k≠y} term_k``, ``Σ_k
            ψ_k`` and K. A "smooth maximum" of the gaps needs none.
        params: The hyperparameters that it takes, in this order; up to four.
        needs: What it needs.
        terms: ``terms(p_k, q_k, params)`` gives ``term_k`` and ``ψ_k`` of a class.
        lam: The λ of a smooth maximum that has none of its own.
    """

    finish: Callable[..., Any] | None = None
    params: tuple[str, ...] = ()
    needs: Literal["log p_y", "sum of log p", "terms", "smooth maximum"] = "log p_y"
    terms: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    lam: float | None = None
