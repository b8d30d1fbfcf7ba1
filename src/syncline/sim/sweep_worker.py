"""The process of one simulation of a sweep: it reads an order from stdin, and writes the row to stdout."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt ends it without a message: the sweep tells it
    import msgspec

    from syncline.sim.sweep import SweepOrder, named_function, simulated

    order = msgspec.json.decode(sys.stdin.buffer.read(), type=SweepOrder)
    row = simulated(order, named_function(order.problem))
    sys.stdout.buffer.write(msgspec.json.encode(row))


if __name__ == "__main__":
    main()
