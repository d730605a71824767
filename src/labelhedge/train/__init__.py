"""Training: of thousands of small networks as one (``stacked``), and of large ones on images (``single``)."""

from labelhedge.train import augment, crossfit, metrics, single, stacked

__all__ = ["augment", "crossfit", "metrics", "single", "stacked"]
