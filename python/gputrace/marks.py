"""Steps, ranges and what to capture, said by the program that is recorded. Where nothing records, all of it does nothing."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Optional

from . import nvtx

__all__ = ["CAPTURE", "Profile", "capture", "range", "schedule", "step"]

#: The range around what `capture` captures: `gputrace record --range gputrace.capture` records nothing else.
CAPTURE = "gputrace.capture"


class _Nothing(contextlib.ContextDecorator):
    """What is entered where nothing records: a fraction of what a generator costs."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: Any) -> None:
        return None


_NOTHING = _Nothing()


def range(text: str) -> ContextManager[None]:
    """A range around the body of `with`, or around a function that it decorates."""
    return nvtx.range(text) if nvtx.is_recording() else _NOTHING


def step(number: int) -> ContextManager[None]:
    """A step of training around the body of `with`: the analysis, `--steps` and `--schedule` go by it."""
    return nvtx.range(f"step {number}") if nvtx.is_recording() else _NOTHING


def capture() -> ContextManager[None]:
    """What happens inside is recorded, and nothing else, by `gputrace record --range gputrace.capture`."""
    return range(CAPTURE)


def schedule(wait: int, warmup: int, active: int, repeat: int = 0) -> Callable[[int], bool]:
    """Says of a step's number whether it is to be captured, as `torch.profiler.schedule` counts: `active` steps after `wait` and
    `warmup`, `repeat` times (0: to the end)."""
    if min(wait, warmup, repeat) < 0 or active < 1:
        raise ValueError("wait, warmup and repeat are 0 or more, active is 1 or more")
    cycle = wait + warmup + active

    def is_active(number: int) -> bool:
        return (repeat == 0 or number < cycle * repeat) and number % cycle >= wait + warmup

    return is_active


class Profile:
    """Steps one after the other, and which of them are captured: used as `torch.profiler.profile` is.

        with gputrace.Profile(gputrace.schedule(wait=5, warmup=1, active=3)) as profile:
            for batch in loader:
                train(batch)
                profile.step()

    Without a schedule every step is captured. `first` is the number of the first step.
    """

    def __init__(self, schedule: Optional[Callable[[int], bool]] = None, first: int = 0) -> None:
        #: Of the step that is open, or comes next.
        self.number = first
        self._is_active = schedule or (lambda number: True)
        self._captures = False
        self._is_open = False

    def __enter__(self) -> Profile:
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Begins the step `number`; does nothing inside one."""
        if self._is_open:
            return
        self._is_open = True
        if nvtx.is_recording():
            if not self._captures and self._is_active(self.number):
                nvtx.push(CAPTURE)
                self._captures = True
            nvtx.push(f"step {self.number}")

    def end(self) -> None:
        """Ends the step; what comes until the next `start` is in none, and is captured where the next step is."""
        if not self._is_open:
            return
        self._is_open = False
        self.number += 1
        if nvtx.is_recording():
            nvtx.pop()
            if self._captures and not self._is_active(self.number):
                nvtx.pop()
                self._captures = False

    def step(self) -> None:
        """Ends the step and begins the next."""
        self.end()
        self.start()

    def stop(self) -> None:
        """Ends the step, and what is captured."""
        self.end()
        if self._captures:
            nvtx.pop()
            self._captures = False
