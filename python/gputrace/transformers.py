"""A callback of Hugging Face's Trainer: steps, and which of them are captured.

    trainer = Trainer(..., callbacks=[gputrace.transformers.Steps(gputrace.schedule(wait=5, warmup=1, active=3))])
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from transformers import TrainerCallback

from .marks import Profile

__all__ = ["Steps"]


class Steps(TrainerCallback):
    """Each step of the optimizer is a step, with all the batches that it accumulates gradients of; numbered from 0."""

    def __init__(self, schedule: Optional[Callable[[int], bool]] = None) -> None:
        self._profile = Profile(schedule)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Of a run that goes on from a checkpoint.
        self._profile.number = state.global_step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._profile.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._profile.end()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._profile.stop()
