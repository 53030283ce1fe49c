"""NVTX by ctypes alone: ranges and marks for whichever profiler records the program.

It does what NVTX's C header does (nvtx3/nvtxDetail/nvtxInit.h, NVTX 3): it loads the library that the environment variable
NVTX_INJECTION64_PATH names and hands it the addresses of its function pointers, which the library sets. Where there is no such
library, all functions here return at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from typing import Any, Callable, Iterator, Optional

__all__ = ["NOT_TRACKED", "is_recording", "mark", "pop", "push", "range"]

#: NVTX_NO_PUSH_POP_TRACKING: what `push` and `pop` return where nobody counts ranges.
NOT_TRACKED = -2

# NVTX_ETID_CALLBACKS and NVTX_ETID_VERSIONINFO.
_CALLBACKS, _VERSION_INFO = 1, 3
# NVTX_VERSION: the contract's version.
_VERSION = 3
# NVTX_CB_MODULE_CORE, and the slots of it that are called here (NVTX_CBID_CORE_*).
_CORE, _SLOTS = 1, 16
_MARK_A, _RANGE_PUSH_A, _RANGE_POP = 2, 9, 11
# NVTX_CB_MODULE_CORE2, which has as many (NVTX_CBID_CORE2_Domain*).
_CORE2 = 5
_DOMAIN_PUSH, _DOMAIN_POP, _DOMAIN_REGISTER_A, _DOMAIN_CREATE_A = 4, 5, 10, 12

_Slots = ctypes.c_void_p * _SLOTS
_Table = ctypes.POINTER(ctypes.c_void_p) * (_SLOTS + 1)
_GetModule = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint)
)
_GetExportTable = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)


class _Callbacks(ctypes.Structure):
    """NvtxExportTableCallbacks."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("get_module_function_table", _GetModule)]


class _VersionInfo(ctypes.Structure):
    """NvtxExportTableVersionInfo."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("set_injection_version", ctypes.c_void_p),
    ]


class _Attributes(ctypes.Structure):
    """nvtxEventAttributes_t, with a message alone."""

    _fields_ = [
        ("version", ctypes.c_uint16),
        ("size", ctypes.c_uint16),
        ("category", ctypes.c_uint32),
        ("color_type", ctypes.c_int32),
        ("color", ctypes.c_uint32),
        ("payload_type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("payload", ctypes.c_uint64),
        ("message_type", ctypes.c_int32),
        ("message", ctypes.c_void_p),
    ]


#: NVTX_MESSAGE_TYPE_REGISTERED.
_REGISTERED = 3


class _Client:
    """Our side of the contract. What the library was given addresses of lives as long as the process."""

    def __init__(self, path: str) -> None:
        used = {
            _CORE: (_MARK_A, _RANGE_PUSH_A, _RANGE_POP),
            _CORE2: (_DOMAIN_PUSH, _DOMAIN_POP, _DOMAIN_REGISTER_A, _DOMAIN_CREATE_A),
        }
        self._slots = {module: _Slots() for module in used}
        self._tables = {module: _Table() for module in used}
        for module, slots in used.items():
            first = ctypes.addressof(self._slots[module])
            for slot in slots:
                address = first + slot * ctypes.sizeof(ctypes.c_void_p)
                self._tables[module][slot] = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
        self._callbacks = _Callbacks(ctypes.sizeof(_Callbacks), _GetModule(self._get_module))
        self._set_version = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(lambda version: None)
        self._version = _VersionInfo(
            ctypes.sizeof(_VersionInfo), _VERSION, 0, ctypes.cast(self._set_version, ctypes.c_void_p)
        )
        self._export = _GetExportTable(self._get_export_table)
        self._library = ctypes.CDLL(path, mode=getattr(os, "RTLD_LAZY", 1))
        initialize = self._library.InitializeInjectionNvtx2
        initialize.argtypes, initialize.restype = [_GetExportTable], ctypes.c_int
        taken = initialize(self._export) != 0
        # These calls take less than letting another thread run Python meanwhile would: the interpreter's lock is kept.
        self.push: Optional[Callable[[bytes], int]] = None
        self.pop: Optional[Callable[[], int]] = None
        self.mark: Optional[Callable[[bytes], None]] = None
        if taken:
            self.push = self._function(_CORE, _RANGE_PUSH_A, ctypes.c_int, ctypes.c_char_p)
            self.pop = self._function(_CORE, _RANGE_POP, ctypes.c_int)
            self.mark = self._function(_CORE, _MARK_A, None, ctypes.c_char_p)

    def domain(self, name: bytes) -> Optional[_Domain]:
        """A domain, where the library has them."""
        pointer, number = ctypes.c_void_p, ctypes.c_int
        create = self._function(_CORE2, _DOMAIN_CREATE_A, pointer, ctypes.c_char_p)
        register = self._function(_CORE2, _DOMAIN_REGISTER_A, pointer, pointer, ctypes.c_char_p)
        push = self._function(_CORE2, _DOMAIN_PUSH, number, pointer, pointer)
        pop = self._function(_CORE2, _DOMAIN_POP, number, pointer)
        if create and register and push and pop:
            return _Domain(create(name), register, push, pop)
        return None

    def _function(self, module: int, slot: int, result: Any, *arguments: Any) -> Optional[Callable[..., Any]]:
        address = self._slots[module][slot]
        return ctypes.PYFUNCTYPE(result, *arguments)(address) if address else None

    def _get_module(self, module: int, table: Any, size: Any) -> int:
        if module not in self._tables:
            return 0
        table[0] = ctypes.addressof(self._tables[module])
        if size:
            size[0] = _SLOTS
        return 1

    def _get_export_table(self, table: int) -> Optional[int]:
        if table == _CALLBACKS:
            return ctypes.addressof(self._callbacks)
        if table == _VERSION_INFO:
            return ctypes.addressof(self._version)
        return None


class _Domain:
    """Ranges in a domain, each by a text that the library is told once."""

    def __init__(self, handle: int, register: Callable[..., Any], push: Callable[..., Any], pop: Callable[..., Any]) -> None:
        self.handle = handle
        self.push = push
        self.pop = pop
        self._register = register

    def attributes(self, text: str) -> _Attributes:
        """What a push of this text is called with, by its address."""
        message = self._register(self.handle, _bytes(text))
        size = ctypes.sizeof(_Attributes)
        return _Attributes(version=_VERSION, size=size, message_type=_REGISTERED, message=message)


_client: Optional[_Client] = None
_is_attached = False
_attaching = threading.Lock()


def _attach() -> Optional[_Client]:
    """The client, where a library takes ranges. Like the header, it looks once in a process."""
    global _client, _is_attached
    with _attaching:
        if not _is_attached:
            path = os.environ.get("NVTX_INJECTION64_PATH")
            client = None
            if path:
                # A profiler that can't be loaded must not end the program.
                with contextlib.suppress(OSError, AttributeError):
                    client = _Client(path)
            _client = client if client and client.push and client.pop else None
            _is_attached = True
    return _client


def is_recording() -> bool:
    """Whether a profiler takes ranges."""
    return (_client if _is_attached else _attach()) is not None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def push(text: str) -> int:
    """Begins a range on this thread; returns how many are around it."""
    client = _client if _is_attached else _attach()
    return client.push(_bytes(text)) if client and client.push else NOT_TRACKED


def pop() -> int:
    """Ends the range that this thread began last; returns how many are around it."""
    client = _client if _is_attached else _attach()
    return client.pop() if client and client.pop else NOT_TRACKED


def mark(text: str) -> None:
    """Marks this moment."""
    client = _client if _is_attached else _attach()
    if client and client.mark:
        client.mark(_bytes(text))


@contextlib.contextmanager
def range(text: str) -> Iterator[None]:
    """A range around the body of `with`, or around a function that it decorates."""
    push(text)
    try:
        yield
    finally:
        pop()


def _functions() -> Optional[tuple[Callable[[bytes], int], Callable[[], int]]]:
    """Push and pop as they are called most cheaply: with bytes, without a look at whether anyone records."""
    client = _client if _is_attached else _attach()
    return (client.push, client.pop) if client and client.push and client.pop else None


def _domain(name: str) -> Optional[_Domain]:
    """A domain of this name, where anyone records."""
    client = _client if _is_attached else _attach()
    return client.domain(_bytes(name)) if client else None
