"""What the command answers by one sentence, and by which exit code. All else is a bug, and shows its traceback."""

import traceback


class UserError(ValueError):
    """A mistake of the user: the command answers it by one sentence and exit code 2."""


class MissingPackageError(ImportError):
    """An optional package is not installed. The message says how to get it."""


class DataError(Exception):
    """A file is missing, cannot be had, or is not what its publisher made. The message names it and what to do."""


BUG = 70
"""The exit code of everything that is not in the table; EX_SOFTWARE in Unix."""
EXIT_CODES: dict[type[Exception], int] = {
    UserError: 2,
    MissingPackageError: 2,
    DataError: 1,
    MemoryError: 1,
    OSError: 1,
}


def expected(error: Exception) -> type[Exception] | None:
    """The kind of an error that one sentence answers; None for a bug."""
    if _is_out_of_memory(error):
        return MemoryError
    return next((kind for kind in EXIT_CODES if isinstance(error, kind)), None)


def _is_out_of_memory(error: Exception) -> bool:
    """Torch's errors for that are no MemoryError."""
    return type(error).__name__ == "OutOfMemoryError" or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def sentence(error: Exception) -> str:
    """What an error says, with the file where it is about one."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if _is_out_of_memory(error) or (isinstance(error, MemoryError) and not str(error)):
        return "out of memory"
    return str(error) or type(error).__name__


def portable(error: Exception) -> Exception:
    """The error for another process to raise: it can be pickled, and its traceback here is among its notes."""
    kind = expected(error)
    copy = kind(sentence(error)) if kind else RuntimeError(f"{type(error).__name__}: {sentence(error)}")
    copy.add_note("".join(["In a worker:\n", *traceback.format_exception(error)]))
    return copy
