"""What the coordinator has told a worker, apart from what it tells the worker's node."""

from __future__ import annotations

from syncline.engines.net.control import Begin, CheckpointWhole, Ended, Gathered, Go, InForce, SaveNow, Welcome
from syncline.engines.net.frames import Frame
from syncline.engines.saving.folder import KEPT


class CoordinatorNews:
    """The latest of each kind of message."""

    def __init__(self) -> None:
        self.welcome: Welcome | None = None
        self.begin: Begin | None = None
        """The description of the model."""
        self.go = False
        """All workers that start together have the initial parameters."""
        self.ended = False
        """All members have left the model."""
        self.gathered: Gathered | None = None
        """The result of the present all-gather."""
        self.changed: dict[str, str] = {}
        """The settings that have changed since this worker began."""
        self.save_step = -1
        """The number of the last checkpoint that the coordinator has asked for."""
        self.whole_steps: tuple[int, ...] = ()
        """The numbers of the last checkpoints that are complete."""

    def heard(self, message: Frame) -> bool:
        """Note a message; return False if it is not one of these, or may not come now."""
        match message:
            case Welcome() if self.welcome is None:
                self.welcome = message
            case Begin() if self.begin is None:
                self.begin = message
            case Go():
                self.go = True
            case Ended():
                self.ended = True
            case Gathered():
                self.gathered = message
            case InForce(settings=settings):
                self.changed |= settings
            case SaveNow(step=step):
                self.save_step = step
            case CheckpointWhole(step=step):
                self.whole_steps = (*self.whole_steps, step)[-KEPT:]
            case _:
                return False
        return True
