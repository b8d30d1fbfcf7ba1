"""Gates: is this update worth sending now, and is a fetch worth it?

A gate skips bytes, never permission: a skipped push sends its progress alone, a skipped fetch asks for `Taken`, which
is parked and released like `Params`. An update that is held back is added to the next one (`on_skip=accumulate`), or
the server applies that worker's last one again (`reapply`).
"""

from syncline.gates.bandwidth import Bandwidth
from syncline.gates.budget import Budget
from syncline.gates.plain import Always, Cached, Every
from syncline.gates.protocol import ACCUMULATE, REAPPLY, Gate, Offer, Outlook, Standing
from syncline.gates.significance import Significance
from syncline.parts import Part

__all__ = [
    "ACCUMULATE",
    "GATES",
    "REAPPLY",
    "Always",
    "Bandwidth",
    "Budget",
    "Cached",
    "Every",
    "Gate",
    "Offer",
    "Outlook",
    "Significance",
    "Standing",
]

GATES: tuple[type[Part], ...] = (Always, Every, Cached, Bandwidth, Significance, Budget)
