"""The program of every worker of a chaos run. It sends updates, and keeps account of them (ledger.py).

    CHAOS_RULE=0|1 syncline run ... program.py

It runs until the file `end` is there. The workers then agree on a last iteration, in the file `last`.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

import syncline
from ledger import ELEMENTS, VALUE, Account

FURTHER = 60
"""How many iterations a run goes on after the file `end` is there."""

FILLER = 60_000
"""The size of a table that only takes time."""

PAUSE = 0.004
"""Seconds between two iterations."""


def last_iteration(now: int) -> int:
    """The iteration after which all end; the first worker that sees the file `end` names it."""
    if not Path("last").exists():
        if not Path("end").exists():
            return sys.maxsize
        own = Path(f"last.{os.getpid()}")
        own.write_text(str(now + FURTHER))
        with suppress(FileExistsError):  # another worker was faster
            os.link(own, "last")
        own.unlink()
    return int(Path("last").read_text())


def main() -> None:
    session = syncline.connect()
    name = f"{session.rank}-{os.getpid()}"
    value = -VALUE if os.environ["CHAOS_RULE"] == "1" else VALUE  # a rule subtracts
    tables = session.tables({"w": np.zeros(ELEMENTS), "filler": np.zeros(FILLER)})
    account = Account(Path(), name)
    account.open()
    update = np.zeros(ELEMENTS)
    while session.iteration < last_iteration(session.iteration):
        element = account.element()
        if element is not None:
            update[element] = value
            account.sends()
        session.update("w", update)
        session.clock()
        session.sync()
        account.is_answered()
        update[:] = 0
        time.sleep(PAUSE)
    session.barrier()  # none leaves before all have made their updates: the number of workers divides them
    session.close()
    np.save(f"final-{name}.npy", tables["w"])


if __name__ == "__main__":
    main()
