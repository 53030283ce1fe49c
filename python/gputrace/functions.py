"""Functions of Python while they run, so that a recording says from which of them something was launched.

    with gputrace.functions.functions():
        train()

Every function of Python that is called meanwhile is told to the recorder, by `sys.setprofile`: on the calling thread, with those that it
is in already, and on threads that are started meanwhile. Calls of Python take several times as long. Where nothing records, it does
nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import warnings
from types import CodeType, FrameType
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import nvtx

__all__ = ["functions"]

#: What `gputrace record` takes for functions of Python: the collector knows the name.
_DOMAIN = "gputrace.python"
#: Our own functions are not the program's.
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep

_Hook = Callable[[FrameType, str, Any], None]


class functions(contextlib.ContextDecorator):
    """Tells the recorder which functions run, while its body does."""

    def __init__(self) -> None:
        self._entered: List[Optional[_Marks]] = []

    def __enter__(self) -> functions:
        marks = None
        domain = nvtx._domain(_DOMAIN)
        if domain is not None and sys.getprofile() is not None:
            warnings.warn("another profiler holds sys.setprofile: functions are not marked", RuntimeWarning, stacklevel=2)
        elif domain is not None:
            marks = _Marks(domain)
            marks.begin(sys._getframe(1))
        self._entered.append(marks)
        return self

    def __exit__(self, *exception: Any) -> None:
        marks = self._entered.pop()
        if marks is not None:
            marks.end()


class _Marks:
    """The ranges of functions of all threads."""

    def __init__(self, domain: nvtx._Domain) -> None:
        self._domain = domain
        self._local = threading.local()
        # By code: what a push is called with, and its address. None for our own.
        self._known: Dict[CodeType, Optional[Tuple[Any, int]]] = {}
        self._hook = self._make_hook()
        self._is_on = True

    def begin(self, frame: Optional[FrameType]) -> None:
        around = []
        while frame is not None:
            around.append(frame)
            frame = frame.f_back
        for one in reversed(around):
            self._hook(one, "call", None)
        threading.setprofile(self._hook)
        sys.setprofile(self._hook)

    def end(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        self._is_on = False
        self._leave()

    def _leave(self) -> None:
        """Ends what is open on this thread."""
        stack = getattr(self._local, "stack", [])
        while stack:
            stack.pop()
            self._domain.pop(self._domain.handle)

    def _attributes(self, code: CodeType) -> Optional[Tuple[Any, int]]:
        attributes = None
        if not code.co_filename.startswith(_OWN):
            name = getattr(code, "co_qualname", code.co_name)
            one = self._domain.attributes(f"{code.co_filename}({code.co_firstlineno}): {name}")
            attributes = (one, ctypes.addressof(one))
        self._known[code] = attributes
        return attributes

    def _make_hook(self) -> _Hook:
        known, local, unknown = self._known, self._local, self._attributes
        handle, push, pop = self._domain.handle, self._domain.push, self._domain.pop

        def hook(frame: FrameType, event: str, argument: Any) -> None:
            if event != "call" and event != "return":
                return
            code = frame.f_code
            try:
                attributes = known[code]
            except KeyError:
                attributes = unknown(code)
            if attributes is None:
                return
            try:
                stack = local.stack
            except AttributeError:
                stack = local.stack = []
            if event == "call":
                if not self._is_on:
                    # A thread that goes on without us.
                    self._leave()
                    sys.setprofile(None)
                    return
                stack.append(code)
                push(handle, attributes[1])
            elif stack and stack[-1] is code:
                stack.pop()
                pop(handle)
            elif code in stack:
                # What was called from it ended without a word: a generator that something was thrown into.
                last = None
                while last is not code:
                    last = stack.pop()
                    pop(handle)

        return hook
