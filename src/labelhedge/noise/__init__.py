"""Clean labels to ``NoisyLabels(labels, flipped, transition)``: five models of noise, and the paper's settings."""

from labelhedge.noise import settings
from labelhedge.noise._labels import NoisyLabels
from labelhedge.noise.instance import instance_dependent
from labelhedge.noise.models import class_dependent, given, transition, uniform

__all__ = ["NoisyLabels", "class_dependent", "given", "instance_dependent", "settings", "transition", "uniform"]
