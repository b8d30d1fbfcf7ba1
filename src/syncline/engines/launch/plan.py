"""What is to be started, and whether it can be: what is wrong with a request is found here, before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from syncline.engines.coordinator.joining import check_restarts
from syncline.engines.net import addresses, keys
from syncline.engines.net.addresses import Address
from syncline.engines.net.wiring import Wiring, context_for
from syncline.errors import UsageError
from syncline.strategies.settings import settle

LANES = ("shm", "tcp")

COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Plan:
    """A run on this host, or workers and servers that join a run elsewhere (`places` says where)."""

    command: Sequence[str]
    """The worker's program."""
    workers: int = 2
    servers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    """What the command line says."""
    wiring: Wiring = Wiring()
    port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    """What the experiment file says; the command line beats it."""
    file: str = "file"
    """The name of that file."""
    log_dir: str = ""
    places: tuple[str, ...] = ()
    """Where the run may be that is to be joined: all addresses of its host."""
    restarts: int = 0
    """How many times, in all, a worker that dies is started again."""

    @property
    def joins(self) -> bool:
        return bool(self.places)

    @property
    def layers(self) -> dict[str, dict[str, str]]:
        """What the user has said, and where; the first beats the second."""
        return {COMMAND_LINE: dict(self.settings), self.file: dict(self.config)}

    def settled(self) -> dict[str, tuple[str, str]]:
        """Every setting and where it came from, as far as is known before the program speaks."""
        try:
            return settle(self.layers, self.servers, self.workers)
        except UsageError as error:
            if error.option in self.config and error.option not in self.settings and error.option != "seed":
                raise UsageError(f"strategy.{error.option}", error.problem) from None
            raise

    def words(self) -> dict[str, str]:
        """The settings that the user has chosen."""
        return {key: word for key, (word, origin) in self.settled().items() if origin in (COMMAND_LINE, self.file)}


def checked(plan: Plan, listen: str | None = None, join: str | None = None, *, dry: bool = False) -> Plan:
    """The plan with its addresses and keys, or a `UsageError` that names the option; `dry`: no key is made."""
    least = 1 if join is None else 0
    if plan.workers < least:
        raise UsageError("--workers", f"at least {least}, not {plan.workers}")
    if plan.servers < least:
        raise UsageError("--servers", f"at least {least}, not {plan.servers}")
    if not plan.workers and not plan.servers:
        raise UsageError("--workers", "0 without --servers brings nobody; bring at least one of either")
    if plan.restarts < 0:
        raise UsageError("--restarts", f"at least 0, not {plan.restarts}")
    if plan.wiring.lane and plan.wiring.lane not in LANES:
        raise UsageError("--lane", f"{plan.wiring.lane!r} is none of {', '.join(LANES)}")
    if listen is not None and join is not None:
        raise UsageError("--join", "and --listen exclude each other: a run listens, and others join it")
    if join is not None:
        return _joining(plan, join)
    _check_restarts(plan, plan.settled())
    return plan if listen is None else _listening(plan, listen, dry)


def _check_restarts(plan: Plan, found: Mapping[str, tuple[str, str]]) -> None:
    """Refuse restarts that could not work; if the program chooses the mode, the coordinator does so later."""
    said = any(found[key][1] in (COMMAND_LINE, plan.file) for key in ("mode", "rule"))
    if plan.restarts and said:
        check_restarts({key: word for key, (word, _) in found.items()})


def _joining(plan: Plan, join: str) -> Plan:
    given: dict[str, object] = {f"--{key.replace('_', '-')}": True for key in plan.settings}
    given |= {"--config": plan.config, "--trace": plan.wiring.trace}
    for option, there in given.items():
        if there:
            raise UsageError(option, "is the run's own affair; leave it out with --join")
    found = addresses.resolve(join, "--join")
    for address in found:
        if not address.port or address.host in addresses.SOMEWHERE or address.name:
            raise UsageError("--join", f"{join} is no place to go; take the line that the run has printed")
        context_for(address.host, plan.wiring, server=False)
    return replace(plan, places=tuple(map(str, found)))


def _listening(plan: Plan, listen: str, dry: bool) -> Plan:
    address = _first_free(addresses.resolve(listen, "--listen"))
    wiring = replace(plan.wiring, listen=address.host)
    key = Path(wiring.key_file) if wiring.key_file else None
    if key is None and not addresses.is_loopback(address) and not wiring.insecure:
        right = "name one with --key-file FILE (it is made if it is not there)"
        raise UsageError(
            "--listen", f"{address} is not loopback, and off loopback nothing talks without a key: {right}"
        )
    if key is not None and not key.exists() and not addresses.is_loopback(address) and not wiring.insecure:
        if dry:
            return replace(plan, wiring=wiring, port=address.port)
        keys.make_key_file(key)
    context_for(address.host, wiring, server=True)
    return replace(plan, wiring=wiring, port=address.port)


def _first_free(found: Sequence[Address]) -> Address:
    """The first of these addresses where this host can listen; the coordinator will, in a moment."""
    for address in found[:-1]:
        try:
            addresses.listen(address, "--listen").close()
        except UsageError:
            continue
        return address
    addresses.listen(found[-1], "--listen").close()
    return found[-1]
