"""Gates. A gate decides in each iteration whether a worker sends its update, and whether it fetches parameters.

1. A gate saves bytes; it does not change when a worker may continue. If it skips a push, the worker still sends its
   progress. If it skips a fetch, the server answers with `Taken` instead of `Params`, at the same time.
2. An update that the gate holds back is added to the next one (`on_skip=accumulate`), or the server applies the last
   update of that worker again (`on_skip=reapply`).
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
