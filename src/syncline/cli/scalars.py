"""Writes loss and accuracy for TensorBoard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from syncline.engines.net.control import Pulse
from syncline.errors import UsageError


class Scalars:
    """Writes the loss and accuracy that worker 0 measures."""

    def __init__(self, folder: Path, lose: Callable[[str, Path, OSError], None]) -> None:
        """Open the folder, so that problems with it are found before the run starts.

        `lose`: called with (option, folder, error) if it cannot be written any more; from then on nothing is written.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            problem = f"needs the package tensorboard ({error}); install it with: pip install tensorboard"
            raise UsageError("--tensorboard", problem) from None
        self._folder, self._lose = folder, lose
        try:
            self._writer: Any = SummaryWriter(str(folder))
        except OSError as error:
            raise UsageError("--tensorboard", f"cannot write into {str(folder)!r}: {error.strerror}") from None

    def beat(self, pulse: Pulse) -> None:
        for name, value in (("loss", pulse.loss), ("accuracy", pulse.accuracy)):
            if value is not None:
                self._attempt("add_scalar", name, value, pulse.iteration)

    def close(self) -> None:
        self._attempt("close")

    def _attempt(self, method: str, *values: object) -> None:
        if self._writer is None:
            return
        try:
            getattr(self._writer, method)(*values)
        except OSError as error:
            self._writer = None
            self._lose("--tensorboard", self._folder, error)
