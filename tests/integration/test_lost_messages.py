"""A message that gets lost on a connection that stays open: after its patience the worker sends again, exactly once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hostile import SHAPES, Victim
from middleman import Middleman, Swallow, vector, whole_update
from syncline.engines.net.wiring import Wiring
from syncline.engines.worker.session import NumpySession

ITERATIONS = 6
KINDS = {
    "push": Swallow("server0", "push", 2),
    "params": Swallow("server1", "params", 3),
    "first pull": Swallow("server0", "pull", -1),
    "last push": Swallow("server1", "push", ITERATIONS - 1),
}


class Pair(Victim):
    """Two workers under bsp: one is a process, the other one is this process, behind a middleman."""

    def start_workers(self) -> None:
        words = [str(Path(__file__).parent.parent / "middleman.py"), *self._arguments]
        self.workers.append(self._spawn(words, self.wiring_of("worker", 0)))

    @property
    def _arguments(self) -> list[str]:
        return [str(self.directory), str(ITERATIONS)]


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_lost_message_the_result_is_bit_identical(kind: str, tmp_path: Path) -> None:
    run = Pair(tmp_path, ITERATIONS, "bsp", patience="200ms")
    try:
        run.pace(1.0)
        run.start_workers()
        with Middleman(run.tcp, swallow=KINDS[kind]) as between:
            final = trained(replace(run.wiring_of("worker", 1), coordinator=between.address))
            assert len(between.swallowed) == 1
        assert run.workers[0].wait() == 0, run.story()
        steps = [vector(whole_update(rank, i)) for i in range(ITERATIONS) for rank in range(2)]
        assert np.array_equal(final, sum(steps) / np.float32(2))
        assert np.array_equal(final, np.load(tmp_path / "final0.npy"))
    finally:
        run.close()


def trained(wiring: Wiring) -> np.ndarray:
    """The final parameters of a worker in this process."""
    with NumpySession().start(wiring) as session:
        tables = session.tables({name: np.zeros(shape) for name, shape in SHAPES.items()})
        for iteration in range(ITERATIONS):
            for name, update in whole_update(session.rank, iteration).items():
                session.update(name, update)
            session.clock()
            session.sync()
        session.close()
        return vector(tables)
