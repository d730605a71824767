"""Every data set by its name."""

from labelhedge._errors import UserError
from labelhedge.data._record import DatasetInfo
from labelhedge.data.cifar import CIFAR_10, CIFAR_10N, CIFAR_100
from labelhedge.data.kuzushiji import KUZUSHIJI_49
from labelhedge.data.news20 import NEWS20
from labelhedge.data.tabular import ALOI, DIGITS, LETTER, VOWEL
from labelhedge.data.tiny_imagenet import TINY_IMAGENET
from labelhedge.data.webvision import MINI_WEBVISION

REGISTRY: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        *(VOWEL, LETTER, DIGITS, NEWS20, ALOI),
        *(KUZUSHIJI_49, CIFAR_10, CIFAR_10N, CIFAR_100, TINY_IMAGENET, MINI_WEBVISION),
    )
}


def info(name: str) -> DatasetInfo:
    """What is known of a data set without reading it.

    Example:
        >>> lh.data.info("letter").num_classes
        26
    """
    if name not in REGISTRY:
        raise UserError(f"unknown data set {name!r}; known data sets: {', '.join(REGISTRY)}")
    return REGISTRY[name]


def names() -> tuple[str, ...]:
    """The names of all data sets.

    Example:
        >>> lh.data.names()[:3]
        ('vowel', 'letter', 'digits')
    """
    return tuple(REGISTRY)
