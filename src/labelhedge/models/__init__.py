"""The networks that are trained here: stacked perceptrons, and ResNets for images."""

from labelhedge.models.mlp import StackedMLP
from labelhedge.models.resnet import ResNet, load_pretrained, resnet18, resnet50

__all__ = ["ResNet", "StackedMLP", "load_pretrained", "resnet18", "resnet50"]
