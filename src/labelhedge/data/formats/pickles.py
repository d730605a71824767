"""Pickles that hold dictionaries of lists, strings and NumPy arrays, and may hold nothing else.

A pickle is a program, and loading one runs it. This loader knows the instructions of protocol 2 that such files have,
and four names, those by which NumPy's arrays are written. Behind the names are stand-ins of our own: a program that
asks for another name, or calls one of these with anything but a plain array's description, ends the reading. The
interpreter is Python's own one in Python, because the one in C reserves memory as the program says.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

INSTRUCTIONS = (
    *(pickle.PROTO, pickle.STOP, pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1),
    *(pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.BINUNICODE),
    *(pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET),
    *(pickle.GLOBAL, pickle.REDUCE, pickle.BUILD),
)
DTYPES = {("u1", "|"), ("i8", "<"), ("i4", "<")}


def load_pickle(data: bytes) -> Any:
    """The object, with text of Python 2 as bytes.

    Raises:
        pickle.UnpicklingError: it is damaged, or holds something that it should not.
    """
    try:
        return _resolve(_Unpickler(io.BytesIO(data), encoding="bytes").load())
    except MemoryError:
        raise
    except Exception as error:  # of whatever kind: Python's interpreter of pickles trusts what it reads
        raise pickle.UnpicklingError(str(error) or type(error).__name__) from error


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar = {code[0]: pickle._Unpickler.dispatch[code[0]] for code in INSTRUCTIONS}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}") from None


class _Array:
    """Stands for an array until its state is known."""

    __slots__ = ("value",)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran_order, data = state
        if not isinstance(dtype, _DType) or not isinstance(data, bytes) or fortran_order:
            raise pickle.UnpicklingError("the pickle holds an array that is not plain")
        self.value: NDArray[Any] = np.frombuffer(data, dtype.value()).reshape(shape)


class _DType:
    """Stands for a dtype: its code, and the byte order from its state."""

    __slots__ = ("code", "order")

    def __init__(self, code: bytes | str, *_: object) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code
        self.order = "?"

    def __setstate__(self, state: Any) -> None:
        self.order = state[1].decode() if isinstance(state[1], bytes) else state[1]

    def value(self) -> str:
        if (self.code, self.order) not in DTYPES:
            raise pickle.UnpicklingError(f"the pickle holds an array of {self.order}{self.code}")
        return self.code


class _Function:
    """A function without attributes, so that a pickle cannot change it."""

    __slots__ = ("_call",)
    _call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_call", call)

    def __setattr__(self, name: str, value: object) -> None:
        raise pickle.UnpicklingError("the pickle changes what is not its own")

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the pickle holds bytes in {encoding}")
    return text.encode("latin1")


def _resolve(value: Any) -> Any:
    """The arrays in the place of what stood for them, at the top or in a dictionary."""
    if isinstance(value, dict):
        return {key: _resolve(item) for key, item in value.items()}
    return value.value if isinstance(value, _Array) else value


ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _Function(lambda *_: _Array()),
    ("numpy._core.multiarray", "_reconstruct"): _Function(lambda *_: _Array()),
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Function(_DType),
    ("_codecs", "encode"): _Function(_encode),
}
