"""A worker of Syncline that learns on one host.

    python -m benchmarks.cluster.learner TASK FOLDER

Environment variables say how to reach the coordinator.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import sleep

import msgspec
from benchmarks.cluster.learning import LearningTask
from benchmarks.cluster.saves import Saves

from syncline.engines.net.wiring import Wiring
from syncline.engines.worker.session import MODEL, NumpySession
from syncline.layout import Bucket
from syncline.recipes.trainee import Trainee


def main() -> None:
    words, folder = sys.argv[1:]
    task = msgspec.json.decode(words, type=LearningTask)
    problem = task.problem()
    (first,) = problem.start([Bucket(0, problem.layout.size)])
    with NumpySession().start(Wiring.read(os.environ)) as session:
        replica = session.replica(MODEL)
        trainee = Trainee(problem, replica, lambda seconds: sleep(max(0.0, task.step - seconds)))
        trainee.declare(first, {})
        session.barrier()
        saves = Saves(task, session.rank, first)
        for step in range(1, task.steps + 1):
            trainee.step()
            if saves.wants and step % saves.wants == 0:
                saves.keep(trainee.params)
        notes = saves.end(getattr(replica.link.node, "parts", 0))
        session.barrier()  # no worker leaves while another one trains
        trainee.final()
    saves.write(Path(folder), notes)


if __name__ == "__main__":
    main()
