"""A worker of `syncline train`: python -m syncline.recipes.worker JOB

An interrupt ends it without a message: there is nothing to save, and the launcher informs the user.
"""

from __future__ import annotations

import signal
import sys


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before the slow imports
    import msgspec

    from syncline.engines.process import run
    from syncline.recipes.job import RecipeJob

    job = msgspec.json.decode(sys.argv[1], type=RecipeJob)
    if job.compare:
        from syncline.recipes.comparison import compare

        return run(lambda: compare(job))
    from syncline.recipes.training import train

    return run(lambda: train(job))


if __name__ == "__main__":
    sys.exit(main())
