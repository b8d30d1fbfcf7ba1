"""Writes loss and accuracy for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncline.engines.net.control import Pulse
from syncline.errors import UsageError


class Scalars:
    """Writes the loss and accuracy that worker 0 measures."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, so that problems with it are found before the run starts."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            problem = f"needs the package tensorboard ({error}); install it with: pip install tensorboard"
            raise UsageError("--tensorboard", problem) from None
        try:
            self._writer: Any = SummaryWriter(str(folder))
        except OSError as error:
            raise UsageError("--tensorboard", f"cannot write into {str(folder)!r}: {error.strerror}") from None

    def beat(self, pulse: Pulse) -> None:
        for name, value in (("loss", pulse.loss), ("accuracy", pulse.accuracy)):
            if value is not None:
                self._writer.add_scalar(name, value, pulse.iteration)

    def close(self) -> None:
        self._writer.close()
