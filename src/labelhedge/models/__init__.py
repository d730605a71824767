"""Networks."""

from labelhedge.models.mlp import StackedMLP

__all__ = ["StackedMLP"]
