"""The functions of libatta, as ctypes sees them.

Knows no model and no text. The one idea: a failed call raises the exception of its status, and
ctypes lets other threads of Python run during every call.
"""

from __future__ import annotations

import array
import ctypes
import os
import pathlib
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, Union

from ._errors import (
    AbsentError,
    AttaError,
    BusyError,
    ContextError,
    InternalError,
    InvalidError,
    MemoryBudgetError,
    ModelError,
    RequestError,
    SuspendedError,
)

try:
    import numpy
except ImportError:  # numpy is optional
    numpy = None  # type: ignore[assignment]

#: The version of the binary interface that this package was written for.
ABI = 1

OK, END, PENDING = 0, 4, 5

#: How long a call may keep Python from seeing Ctrl-C, in milliseconds.
PATIENCE = 100

_EXCEPTIONS: Dict[int, Type[AttaError]] = {
    1: InvalidError,
    2: AbsentError,
    3: BusyError,
    6: ModelError,
    7: MemoryBudgetError,
    8: ContextError,
    9: RequestError,
    11: InternalError,
    12: SuspendedError,
}

Handle = ctypes.c_void_p


class RawEvent(ctypes.Structure):
    """`atta_event`."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("token", ctypes.c_uint32),
        ("text", ctypes.c_void_p),
        ("text_size", ctypes.c_size_t),
        ("n_done", ctypes.c_uint64),
        ("n_total", ctypes.c_uint64),
    ]


_TEXT = (ctypes.c_char_p, ctypes.c_size_t)
_TOKENS = (ctypes.c_void_p, ctypes.c_size_t)
_OUT = (ctypes.POINTER(Handle),)
_H = (Handle,)
_NAME = (ctypes.c_char_p,)

# The arguments of each function that returns a status.
_STATUS_FUNCTIONS: Dict[str, Tuple[Any, ...]] = {
    "options_new": _OUT,
    "options_set_u64": (*_H, *_NAME, ctypes.c_uint64),
    "options_set_f64": (*_H, *_NAME, ctypes.c_double),
    "options_set_text": (*_H, *_NAME, *_TEXT),
    "model_open": (*_NAME, *_H, *_OUT),
    "model_number": (*_H, *_NAME, ctypes.POINTER(ctypes.c_uint64)),
    "model_text": (*_H, *_NAME, *_OUT),
    "tokenize": (*_H, *_TEXT, ctypes.c_uint32, *_OUT),
    "detokenize": (*_H, *_TOKENS, ctypes.c_uint32, *_OUT),
    "session_new": (*_H, *_H, *_OUT),
    "session_append": (*_H, *_TOKENS),
    "session_append_all": (*_H, *_TOKENS, *_OUT),
    "session_logits": (*_H, *_OUT),
    "session_tokens": (*_H, *_OUT),
    "session_truncate": (*_H, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)),
    "session_save": (*_H, *_OUT),
    "session_load": (*_H, *_TEXT),
    "session_set_lora": (*_H, *_TEXT),
    "session_suspend": (*_H, *_NAME),
    "session_resume": _H,
    "generation_suspend": (*_H, *_NAME),
    "generation_resume": _H,
    "model_suspend": _H,
    "model_set_heat": (*_H, ctypes.c_int32),
    "sampler_new": (*_H, *_TEXT, *_OUT),
    "sampler_sample": (*_H, *_H, ctypes.POINTER(ctypes.c_uint32)),
    "sampler_choose": (*_H, *_TOKENS, *_TOKENS, ctypes.POINTER(ctypes.c_uint32)),
    "generate": (*_H, *_TEXT, *_OUT),
    "request": (*_H, *_NAME, *_TEXT, *_OUT),
    "next_within": (*_H, ctypes.c_uint32, ctypes.POINTER(RawEvent), ctypes.c_size_t),
}

_FREE = ("options", "model", "session", "sampler", "generation", "buffer")


def _library_path() -> str:
    """The library beside this file, or the one that ATTA_LIBRARY names."""
    named = os.environ.get("ATTA_LIBRARY")
    if named:
        return named
    folder = pathlib.Path(__file__).parent
    names = {"win32": "atta.dll", "darwin": "libatta.dylib"}
    path = folder / names.get(sys.platform, "libatta.so")
    if not path.exists():
        raise ImportError(f"{path} is missing: this package was built without libatta")
    return str(path)


def _load() -> ctypes.CDLL:
    lib = ctypes.CDLL(_library_path())
    lib.atta_abi_version.restype = ctypes.c_uint32
    found = lib.atta_abi_version()
    if found != ABI:
        raise ImportError(f"libatta has ABI {found}, expected {ABI}")
    lib.atta_version.restype = ctypes.c_char_p
    lib.atta_last_error.restype = ctypes.c_char_p
    for name, arguments in _STATUS_FUNCTIONS.items():
        function = getattr(lib, "atta_" + name)
        function.argtypes = arguments
        function.restype = ctypes.c_int32
    for name in _FREE:
        function = getattr(lib, f"atta_{name}_free")
        function.argtypes, function.restype = _H, None
    lib.atta_cancel.argtypes, lib.atta_cancel.restype = _H, None
    lib.atta_buffer_data.argtypes, lib.atta_buffer_data.restype = _H, ctypes.c_void_p
    lib.atta_buffer_size.argtypes, lib.atta_buffer_size.restype = _H, ctypes.c_size_t
    return lib


lib = _load()


def version() -> str:
    """The version of libatta."""
    return lib.atta_version().decode()


def check(status: int) -> None:
    """Raises the exception of a status, unless it is OK."""
    if status != OK:
        message = lib.atta_last_error().decode("utf-8", "replace")
        raise _EXCEPTIONS.get(status, AttaError)(message)


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status."""
    check(getattr(lib, "atta_" + name)(*arguments))


def made(name: str, *arguments: Any) -> Handle:
    """The handle that a function gives."""
    out = Handle()
    call(name, *arguments, ctypes.byref(out))
    return out


def text_arguments(text: Union[str, bytes]) -> Tuple[bytes, int]:
    """A text as pointer and size."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    return data, len(data)


def token_arguments(tokens: Sequence[int]) -> Tuple[Any, int]:
    """Tokens as pointer and count. An array of numpy or of `array` of 32 bits is not copied."""
    if isinstance(tokens, array.array) and tokens.typecode in "iI" and tokens.itemsize == 4:
        address, n = tokens.buffer_info()
        return address, n
    if numpy is not None and isinstance(tokens, numpy.ndarray):
        flat = numpy.ascontiguousarray(tokens, dtype=numpy.uint32)
        # The view keeps the numbers alive during the call.
        return flat.ctypes.data_as(ctypes.c_void_p), flat.size
    values = [int(token) for token in tokens]
    if any(not 0 <= token < 1 << 32 for token in values):
        raise InvalidError("a token is a number from 0")
    return (ctypes.c_uint32 * len(values))(*values), len(values)


def float_arguments(numbers: Any) -> Tuple[Any, int]:
    """Numbers as pointer and count."""
    if numpy is not None and isinstance(numbers, numpy.ndarray):
        flat = numpy.ascontiguousarray(numbers, dtype=numpy.float32)
        return flat.ctypes.data_as(ctypes.c_void_p), flat.size
    values = array.array("f", numbers)
    return (ctypes.c_float * len(values)).from_buffer(values), len(values)


class Buffer:
    """A result that the library holds until this object is gone."""

    __slots__ = ("_handle", "address", "size")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.address: int = lib.atta_buffer_data(handle) or 0
        self.size: int = lib.atta_buffer_size(handle)

    def __del__(self) -> None:
        lib.atta_buffer_free(self._handle)

    def bytes(self) -> bytes:
        """A copy of the bytes."""
        return ctypes.string_at(self.address, self.size)

    def text(self) -> str:
        """The text."""
        return self.bytes().decode("utf-8", "replace")

    def tokens(self) -> List[int]:
        """The tokens."""
        numbers = array.array("I")
        numbers.frombytes(self.bytes())
        return numbers.tolist()

    def floats(self, shape: Tuple[int, ...]) -> Any:
        """The numbers: an array of numpy on this memory, or a copy where there is no numpy."""
        if numpy is not None:
            return numpy.asarray(_View(self, shape))
        numbers = array.array("f")
        numbers.frombytes(self.bytes())
        return numbers


class _View:
    """Numbers in a buffer, for numpy's array interface; the array holds this object."""

    def __init__(self, buffer: Buffer, shape: Tuple[int, ...]) -> None:
        self._buffer = buffer
        self.__array_interface__ = {
            "shape": shape,
            "typestr": "<f4" if sys.byteorder == "little" else ">f4",
            "data": (buffer.address, False),
            "version": 3,
        }


def buffer(name: str, *arguments: Any) -> Buffer:
    """The buffer that a function gives."""
    return Buffer(made(name, *arguments))


def options(values: Dict[str, Union[None, bool, int, float, str]]) -> Optional[Handle]:
    """Options to be freed; `None` without any."""
    values = {name: value for name, value in values.items() if value is not None}
    if not values:
        return None
    handle = made("options_new")
    try:
        for name, value in values.items():
            _set_option(handle, name, value)
    except BaseException:
        lib.atta_options_free(handle)
        raise
    return handle


def _set_option(handle: Handle, name: str, value: Union[bool, int, float, str]) -> None:
    key = name.encode()
    if isinstance(value, str):
        call("options_set_text", handle, key, *text_arguments(value))
    elif name == "quality":
        call("options_set_f64", handle, key, float(value))
    elif isinstance(value, float) or value < 0:
        raise InvalidError(f"option {name!r} cannot be {value}")
    else:
        call("options_set_u64", handle, key, int(value))
