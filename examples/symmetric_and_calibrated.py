"""A loss that is symmetric, never negative, and top-k calibrated for every k.

The paper's theorem that a non-negative symmetric loss cannot be both top-1 and top-2 consistent is false as stated.
Here is a counterexample: logits are shortened to length B, and the loss is their mean less that of the label, plus 2B.

    labelhedge certify examples.symmetric_and_calibrated:loss
"""

from torch import Tensor

B = 3.0


def loss(logits: Tensor, target: Tensor) -> Tensor:
    """``mean(g) - g_y + 2B`` with ``g = f·min(1, B/‖f‖)``, one value per sample."""
    g = logits * (B / logits.norm(dim=-1, keepdim=True).clamp(min=B))
    return g.mean(-1) - g.gather(-1, target.unsqueeze(-1)).squeeze(-1) + 2 * B
