"""What a worker that learns keeps for the evaluation after its run."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import msgspec
import numpy as np
from benchmarks.cluster.learning import LearnerNotes, LearningTask, notes_of, replicas_of
from benchmarks.cluster.network import count_bytes

from syncline.layout import Values


class Saves:
    """Times and bytes of a worker's run; the first worker also keeps copies of its replica."""

    def __init__(self, task: LearningTask, rank: int, first: Values) -> None:
        self._task, self._rank = task, rank
        self._replicas = [first.copy()]
        self._before = count_bytes()
        self._begun = monotonic()
        self._times = [0.0]

    @property
    def wants(self) -> int:
        """After how many steps `keep` is to be called; 0: never."""
        return self._task.every if self._rank == 0 else 0

    def keep(self, replica: Values) -> None:
        """Keep this replica, which does not change any more."""
        self._times.append(monotonic() - self._begun)
        self._replicas.append(replica)

    def end(self, partitions: int = 0) -> LearnerNotes:
        """The last step is over."""
        return LearnerNotes(monotonic() - self._begun, (count_bytes() - self._before).sent, partitions)

    def write(self, folder: Path, notes: LearnerNotes) -> None:
        if self._rank == 0:
            np.savez(replicas_of(folder), times=np.array(self._times), replicas=np.array(self._replicas))
        notes_of(folder, self._rank).write_bytes(msgspec.json.encode(notes))
