"""The losses in other training loops: Hugging Face's Trainer and Lightning. Each module needs its own extra."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labelhedge.integrations import lightning as lightning
    from labelhedge.integrations import transformers as transformers
else:  # imported when it is first used
    _LAZY_MODULES = ("lightning", "transformers")

    def __getattr__(name):
        if name in _LAZY_MODULES:
            return importlib.import_module(f"labelhedge.integrations.{name}")
        raise AttributeError(f"module 'labelhedge.integrations' has no attribute {name!r}")

    def __dir__():
        return sorted(_LAZY_MODULES)
