"""A worker that calls a function: python -m syncline.ray.function_worker SOCKET."""

from __future__ import annotations

import os
import socket
import sys

import msgspec
from ray import cloudpickle

from syncline.engines.process import also_look_in
from syncline.pytorch import session
from syncline.ray.function_server import FunctionCall, FunctionResult, received


def main() -> None:
    wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    wire.connect("\0" + sys.argv[1])
    os.set_inheritable(wire.fileno(), False)
    call = msgspec.msgpack.decode(received(wire), type=FunctionCall)
    also_look_in(os.pathsep.join(call.searched))
    value = cloudpickle.loads(call.function)()
    result = FunctionResult(own_number(), cloudpickle.dumps(value))
    wire.sendall(msgspec.msgpack.encode(result))
    wire.close()


def own_number() -> int:
    """The number of this worker in the run."""
    connected = session.number_of_worker()
    return int(os.environ.get("SYNCLINE_WORKER", "-1") or -1) if connected is None else connected


if __name__ == "__main__":
    main()
