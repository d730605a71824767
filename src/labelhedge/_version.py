"""The version that is installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("labelhedge")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "unknown"
