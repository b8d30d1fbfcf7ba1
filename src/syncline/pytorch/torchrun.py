"""Runs under torchrun, on one host or several.

1. The first worker of each host starts a process there (launch/host.py): on the first host with the coordinator, and on
   every host with a server.
2. The very first worker publishes the coordinator's address in torchrun's store, and all others read it there. On one
   host also the secret of the run is published. Between hosts, every process derives it from the key of the user.
3. torchrun may start the workers again (a worker has failed, or a node has come or gone), with the same store and
   numbers that differ between hosts. So a worker that has read an address asks there whether that run still goes on. If
   not, the new one is not published yet, and it reads again.
4. If torchrun is killed, its workers would continue. So every worker has a guard that ends the worker, and all that it
   has started, together with torchrun.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from time import monotonic, sleep
from typing import Any

import msgspec
from msgspec.structs import replace

from syncline.engines.launch.guard_link import GuardLink
from syncline.engines.launch.host import Published
from syncline.engines.launch.hosts import Hosts, run_secret
from syncline.engines.launch.plan import HOW_TO_GIVE_A_KEY
from syncline.engines.launch.port_option import port_from_variable
from syncline.engines.net import addresses
from syncline.engines.net.addresses import Address
from syncline.engines.net.wiring import Wiring, key_of_user
from syncline.engines.operator import identify
from syncline.engines.process import end_with_parent, say
from syncline.errors import RunError, UsageError

SECONDS = 300.0
"""How long the other workers wait for the first worker, in seconds."""

PAUSE = 0.2
"""Seconds between two looks into the store, after the run that was found there is over."""

NOTICE_SECONDS = 10.0
"""Seconds after which the first worker of a host says what it waits for; each further pause is twice as long."""

WAIT_SECONDS = 5.0
"""Seconds of one look into the store for what is not there yet."""

TRY = "to check the way: syncline doctor --listen on the first host, and syncline doctor --join here"

KEY = "syncline/run"
"""The key in the store."""

Process = subprocess.Popen[str]


@dataclass(frozen=True)
class TorchrunNode:
    """What the first worker of a host keeps until it ends."""

    process: Process
    store: Any
    """torchrun may leave its store to worker 0 (TORCH_DISABLE_SHARE_RDZV_TCP_STORE): it ends with this object."""


def started_this(environment: Mapping[str, str]) -> bool:
    """Whether torchrun started this program, with at least 2 workers."""
    return "TORCHELASTIC_RUN_ID" in environment and int(environment.get("WORLD_SIZE", "1")) > 1


def find_run(environment: Mapping[str, str]) -> tuple[Wiring, TorchrunNode | None]:
    """The wiring of this worker; on the first worker of a host also the process that it has started."""
    place = Place.read(environment)
    own = _wiring_with_key(environment) if place.nodes > 1 else Wiring()
    store = _store(environment, place)
    if place.rank == 0:
        at = f"{_own_address(environment['MASTER_ADDR'])}:{own.shared_port or 0}"
        process, published = _start_host(place, at)
        shown = published if place.nodes == 1 else replace(published, wiring={})
        store.set(KEY, msgspec.json.encode(shown).decode())
        return Wiring.read(published.wiring).of("worker", 0), TorchrunNode(process, store)
    published = _published(store, own, place)
    if place.nodes == 1:
        return Wiring.read(published.wiring).of("worker", place.rank), None
    wiring = dataclasses.replace(
        own,
        run=published.run,
        coordinator=published.at,
        listen=addresses.route_to(addresses.parse(published.at, "torchrun").host),
        token=run_secret(own, published.run),
    )
    first = place.local_rank == 0
    return wiring.of("worker", place.rank), TorchrunNode(_start_host(place, published.at)[0], store) if first else None


@dataclass(frozen=True)
class Place:
    """Where torchrun has put this worker."""

    rank: int
    world: int
    node: int
    nodes: int
    local_rank: int
    local_world: int

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Place:
        rank, world = environment["RANK"], environment["WORLD_SIZE"]
        others = {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
        return cls(int(rank), int(world), *(int(environment.get(key, word)) for key, word in others.items()))

    def hosts(self, at: str) -> Hosts:
        """This host's place in a run on several, whose coordinator is at this address."""
        first = self.rank - self.local_rank
        return Hosts(self.nodes, self.node, at, workers=(first, first + self.local_world), world=self.world)


def _wiring_with_key(environment: Mapping[str, str]) -> Wiring:
    """The user's key, which every host must have."""
    file, key = key_of_user(None, environment)
    if not file and not key:
        raise UsageError("torchrun", f"a run on several hosts (--nnodes) needs a key: {HOW_TO_GIVE_A_KEY}")
    return Wiring(key_file=file, key=key, shared_port=port_from_variable(environment))


def _store(environment: Mapping[str, str], place: Place) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    ours = place.rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    return TCPStore(address, port, is_master=ours, timeout=timedelta(seconds=SECONDS))


def _start_host(place: Place, at: str) -> tuple[Process, Published]:
    """Start the process with this host's share of the run, and read what it publishes."""
    words = [str(os.getpid()), str(place.world)]
    if place.nodes > 1:
        words.append(msgspec.json.encode(place.hosts(at)).decode())
    process = subprocess.Popen(
        [sys.executable, "-m", "syncline.engines.launch.host", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    if not said:
        raise RunError(f"the coordinator and servers did not start: their process ended with code {process.wait()}")
    return process, msgspec.json.decode(said, type=Published)


def _published(store: Any, own: Wiring, place: Place) -> Published:
    """What the first worker of this run has published; an address at which no run goes on is that of a former run."""
    began, pause = monotonic(), NOTICE_SECONDS
    while True:
        problem = "it has not started a coordinator yet"
        if _is_there(store):
            found = msgspec.json.decode(store.get(KEY), type=Published)
            wiring = own if found.at else Wiring.read(found.wiring)
            try:
                if identify(found.at or wiring.coordinator, wiring) == found.run:
                    return found
                problem = "another run is there"
            except RunError as error:
                problem = str(error)
        waited = monotonic() - began
        if waited > SECONDS:
            raise RunError(f"the first worker has not started a run for {SECONDS:g} s: {problem}")
        if waited > pause:
            pause *= 2
            if place.local_rank == 0:
                say(f"syncline: worker {place.rank} waits for worker 0 for {waited:.0f} s: {problem}; {TRY}")
        sleep(PAUSE)


def _is_there(store: Any) -> bool:
    """Whether the first worker has published a run, or does so within a moment."""
    from torch.distributed import DistStoreError

    try:
        store.wait([KEY], timedelta(seconds=WAIT_SECONDS))
    except DistStoreError:
        return False
    return True


def _own_address(master: str) -> str:
    """The address under which other hosts reach this one: that of the route to torchrun's store, which they reach."""
    for *_, where in socket.getaddrinfo(master, None, type=socket.SOCK_STREAM):
        found = addresses.route_to(str(where[0]))
        if not addresses.is_loopback(Address(found, 0)):
            return f"[{found}]" if ":" in found else found
    return addresses.own_address_for("0.0.0.0")


def end_with_torchrun() -> GuardLink | None:
    """Let this worker end when torchrun dies; return its guard, if this worker leads a session as it should."""
    torchrun = os.getppid()
    if os.getsid(0) != os.getpid():
        end_with_parent(torchrun)
        return None
    guard = GuardLink(torchrun, inf)
    guard.start()
    guard.add(os.getpid())
    return guard


def end_host(host: TorchrunNode) -> None:
    """Tell the host process that this worker is done; it ends with the run.

    It gets the word "end", because closing its input is not enough if a data loader's process also holds it open.
    """
    stdin = host.process.stdin
    if stdin is not None and not stdin.closed:
        with suppress(BrokenPipeError):  # the host already ended, because no worker was left
            stdin.write("end\n")
            stdin.close()
