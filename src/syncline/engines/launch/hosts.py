"""A run that begins on several hosts: the same command runs on each of them, and knows its place.

1. The launcher with rank 0 leads: it starts the coordinator. The others connect to it as soon as it is there.
2. Every launcher starts workers, and the serving ones start servers. Their numbers follow from the rank.
3. All secrets are derived from the key, which all hosts have, and from the identifier of the run, which the coordinator
   tells to every launcher. So nothing secret has to be handed out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from syncline.engines.net import addresses, tokens
from syncline.engines.net.addresses import Address
from syncline.engines.net.wiring import Wiring
from syncline.errors import UsageError
from syncline.units import whole

MOST_HOSTS = 1024


@dataclass(frozen=True)
class Hosts:
    """How many launchers begin a run together, which one this is, and where the first one can be reached."""

    count: int
    rank: int
    address: str
    """ADDRESS:PORT of the coordinator; the host may be a name. Port 0, only if another program starts the workers: the
    system chooses it."""
    serving: int = 0
    """How many of the launchers start servers; 0: all."""
    serving_rank: int | None = None
    """The place of this one among those; -1: it starts none. None: its rank, as far as that is below `serving`."""
    workers: tuple[int, int] | None = None
    """The first worker of this host and that of the next, if another program starts them; None: they follow from the
    rank."""
    world: int = 0
    """How many workers begin the run, if another program places them; 0: as many on every host."""
    servers: tuple[int, int] | None = None
    """The first server of this host and that of the next, if another program places them; None: they follow from the
    place among the serving hosts."""
    all_servers: int = 0
    """How many servers begin the run, if another program places them."""

    def check(self) -> None:
        """Raise UsageError if this is no place in a run."""
        whole(self.count, "--hosts", 1, MOST_HOSTS)
        if not 0 <= self.rank < self.count:
            right = "must be 0" if self.count == 1 else f"must be from 0 to {self.count - 1}"
            raise UsageError("--host-rank", f"{right}, because --hosts is {self.count}; it is {self.rank}")
        if self.serving > self.count:
            raise UsageError("--server-hosts", f"is {self.serving}, but --hosts is only {self.count}")
        host, port = addresses.place_of(self.address, "--at")
        if not port and not self.world:
            problem = "choose a port that is free on host 0; it must be the same on every host"
            raise UsageError("--at", f"{self.address!r}: {problem}")
        if host == "" or host in addresses.SOMEWHERE:
            problem = "give an address or a name of host 0 under which all hosts can reach it"
            raise UsageError("--at", f"{self.address!r}: {problem}")

    @property
    def leads(self) -> bool:
        """Whether this launcher starts the coordinator."""
        return self.rank == 0

    @property
    def serving_count(self) -> int:
        return self.serving or self.count

    @property
    def place(self) -> int:
        """The place of this launcher among those that start servers; -1: it starts none."""
        if self.serving_rank is not None:
            return self.serving_rank
        return self.rank if self.rank < self.serving_count else -1

    def all_workers(self, each: int) -> int:
        """How many workers begin the run, if every launcher starts `each`."""
        return self.world or self.count * each

    def workers_here(self, each: int) -> range:
        """The numbers of the workers on this host."""
        return range(*self.workers or (self.rank * each, (self.rank + 1) * each))

    def servers_here(self, each: int) -> range:
        """The numbers of the servers that this launcher starts, if every serving one starts `each`."""
        if self.servers is not None:
            return range(*self.servers)
        return range(self.place * each, (self.place + 1) * each) if self.place >= 0 else range(0)

    def listening(self) -> Address:
        """Where the coordinator listens.

        A name may stand for a loopback address on its own host, so the coordinator then listens at all addresses.
        """
        host, port = addresses.place_of(self.address, "--at")
        return Address("0.0.0.0" if host is None else host, port)


def run_secret(wiring: Wiring, run: str) -> str:
    """The secret of the run with this identifier; only who has the key can derive it."""
    text = wiring.key or (Path(wiring.key_file).read_text() if wiring.key_file else "")
    return tokens.derived(text, "run", run)
