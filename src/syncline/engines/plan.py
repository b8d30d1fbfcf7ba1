"""What is to be started, and whether it can be: what is wrong with a request is found here, before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from syncline.engines import addresses, keys
from syncline.engines.addresses import Address
from syncline.engines.settings import settle
from syncline.engines.wiring import Wiring, context_for
from syncline.errors import UsageError

LANES = ("shm", "tcp")


@dataclass(frozen=True)
class Plan:
    """A run on this host, or workers that join a run elsewhere (`wiring.coordinator` says where)."""

    command: Sequence[str]
    """The worker's program."""
    workers: int = 2
    servers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    wiring: Wiring = Wiring()
    port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def joins(self) -> bool:
        return bool(self.wiring.coordinator)


def checked(plan: Plan, listen: str | None = None, join: str | None = None) -> Plan:
    """The plan with its addresses and keys, or a `UsageError` that names the option."""
    if plan.workers < 1:
        raise UsageError("--workers", f"at least 1, not {plan.workers}")
    if plan.servers < 1:
        raise UsageError("--servers", f"at least 1, not {plan.servers}")
    if plan.wiring.lane and plan.wiring.lane not in LANES:
        raise UsageError("--lane", f"{plan.wiring.lane!r} is none of {', '.join(LANES)}")
    if listen is not None and join is not None:
        raise UsageError("--join", "and --listen exclude each other: a run listens, and others join it")
    if join is not None:
        return _joining(plan, join)
    settle({"the command line": plan.settings}, plan.servers, plan.workers)
    return plan if listen is None else _listening(plan, listen)


def _joining(plan: Plan, join: str) -> Plan:
    if plan.settings:
        raise UsageError(f"--{next(iter(plan.settings))}", "is the run's own affair; leave it out with --join")
    address = addresses.parse(join, "--join")
    if not address.port or address.host in addresses.SOMEWHERE:
        raise UsageError("--join", f"{join} is no place to go; take the line that the run has printed")
    context_for(address.host, plan.wiring, server=False)
    return replace(plan, servers=0, wiring=replace(plan.wiring, coordinator=str(address)))


def _listening(plan: Plan, listen: str) -> Plan:
    address = addresses.parse(listen, "--listen")
    wiring = replace(plan.wiring, listen=address.host)
    if not addresses.is_loopback(address) and not wiring.insecure:
        if not wiring.key_file:
            right = "name one with --key-file FILE (it is made if it is not there)"
            raise UsageError(
                "--listen", f"{address} is not loopback, and off loopback nothing talks without a key: {right}"
            )
        if not Path(wiring.key_file).exists():
            keys.make_key_file(Path(wiring.key_file))
    _try(address)
    context_for(address.host, wiring, server=True)
    return replace(plan, wiring=wiring, port=address.port)


def _try(address: Address) -> None:
    """Can this host listen there? The coordinator will, in a moment."""
    addresses.listen(address, "--listen").close()
