"""What happens in a worker of Ray Train: it learns how to find the run, and leaves it when the function ends."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from syncline.engines.net import addresses
from syncline.engines.net.wiring import Wiring
from syncline.pytorch.session import open_session


def node_of_worker() -> str:
    """Ray's identifier of this worker's node."""
    import ray

    found: str = ray.get_runtime_context().get_node_id()
    return found


def find_run(words: Mapping[str, str]) -> None:
    """Let `syncline.connect()` in this process find a run; `words`: its wiring."""
    for name in [each for each in os.environ if each.startswith("SYNCLINE_") and each != "SYNCLINE_PATIENCE"]:
        del os.environ[name]
    wiring = Wiring.read(words)
    here = addresses.route_to(addresses.parse(wiring.coordinator, "coordinator").host)
    os.environ.update(replace(wiring, listen=here).environment())


@contextmanager
def training_function() -> Iterator[None]:
    """The training function runs inside; a session that it has left open ends with it."""
    try:
        yield
    except BaseException as error:
        session = open_session()
        if session is not None:
            session.__exit__(type(error), error, error.__traceback__)
        raise
    session = open_session()
    if session is not None:
        session.leave()
