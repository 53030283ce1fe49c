"""A callback of Lightning: steps, and which of them are captured.

    trainer = Trainer(callbacks=[gputrace.lightning.Steps(gputrace.schedule(wait=5, warmup=1, active=3))])
"""

from __future__ import annotations

from typing import Any, Callable, Optional

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment,no-redef]

from .marks import Profile

__all__ = ["Steps"]


class Steps(Callback):
    """Each training batch is a step, numbered as `batch_idx` over all epochs; validation is in none."""

    def __init__(self, schedule: Optional[Callable[[int], bool]] = None) -> None:
        self._profile = Profile(schedule)

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_index: int) -> None:
        self._profile.start()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_index: int) -> None:
        self._profile.end()

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self._profile.stop()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        self._profile.stop()
