"""gputrace in Python.

In a training script, which tells the recording of steps, ranges and what to capture, and costs nothing where nothing records:

    with gputrace.step(i):
        train(batch)

In a notebook, over what the program says of a recording:

    run = gputrace.open("run1")
    run.analysis["findings"]
    run.events["kernels"].pandas()
    run.view()

`gputrace.torch` marks operators and modules of PyTorch, `gputrace.functions` functions of Python, `gputrace.lightning` and
`gputrace.transformers` are callbacks, and `gputrace.nvtx` has ranges by hand. Each is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

from .marks import Profile, capture, range, schedule, step

if TYPE_CHECKING:
    from ._program import GputraceError
    from .recording import Analysis, Recording, Table, View, open

__all__ = [
    "Analysis",
    "GputraceError",
    "Profile",
    "Recording",
    "Table",
    "View",
    "capture",
    "open",
    "range",
    "schedule",
    "step",
]
__version__ = "0.1.0"

# What training scripts have no use for is imported when it is asked for.
_LATER = {name: "recording" for name in ("Analysis", "Recording", "Table", "View", "open")}
_LATER["GputraceError"] = "_program"


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)


def __dir__() -> List[str]:
    return sorted({*globals(), *_LATER})
