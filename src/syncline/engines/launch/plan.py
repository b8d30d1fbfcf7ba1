"""The plan of a run, and all checks that can be made before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import ceil
from pathlib import Path

from syncline.engines.coordinator.joining import check_growth, check_restarts
from syncline.engines.launch import growth
from syncline.engines.launch.growth import GrowthStage
from syncline.engines.launch.hosts import Hosts
from syncline.engines.launch.port_option import check_place
from syncline.engines.net import addresses, keys
from syncline.engines.net.addresses import Address
from syncline.engines.net.control import HostShare
from syncline.engines.net.wiring import Wiring, context_for
from syncline.errors import UsageError
from syncline.strategies.protocol import Strategy
from syncline.strategies.settings import settle, strategy_of
from syncline.units import whole

LANES = ("shm", "tcp")

MOST_PROCESSES = 1024
"""The most workers, and the most servers, that one command starts."""

COMMAND_LINE = "command line"

HOW_TO_GIVE_A_KEY = (
    f"set {keys.VARIABLE} to the same random secret of at least {keys.LEAST_SECRET} characters on every host, or copy "
    f"a key file to every host and set {keys.FILE_VARIABLE} to its name"
)

MOST_OF_A_TERM = 100
"""How many characters of an option the launchers of several hosts compare as they are; of longer ones, a checksum."""


@dataclass(frozen=True)
class Plan:
    """A run on this host, this host's share of a run on several, or workers and servers that join a run."""

    command: Sequence[str]
    """The program of a worker."""
    workers: int = 2
    servers: int | None = None
    """None: the default number of the strategy; for processes that join, no servers."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings on the command line."""
    wiring: Wiring = Wiring()
    port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    """The settings in the experiment file; the command line overrides them."""
    file: str = "file"
    """The name of that file."""
    log_dir: str = ""
    traceback: bool = False
    """Show the whole traceback also of an error that Syncline has raised."""
    places: tuple[str, ...] = ()
    """The addresses at which the coordinator may listen, if another launcher starts it: all addresses of its host."""
    joinable: bool = False
    """Whether workers and servers can join: from other hosts, or because this launcher starts them later."""
    choosable: bool = True
    """Whether the program may choose the strategy and the mode, as far as the settings leave that open."""
    restarts: int = 0
    """How many restarts of workers that die or fail are allowed in total."""
    growth: tuple[GrowthStage, ...] = ()
    """The workers and nodes that start while the run trains."""
    hosts: Hosts | None = None
    """The place of this host, if the run begins on several."""

    @property
    def leads(self) -> bool:
        """Whether the run's coordinator is started here."""
        return not self.places

    @property
    def joins(self) -> bool:
        """Whether the run has begun without these processes."""
        return bool(self.places) and self.hosts is None

    @property
    def all_workers(self) -> int:
        """How many workers begin the run, on all hosts."""
        return self.hosts.all_workers(self.workers) if self.hosts else self.workers

    @property
    def all_servers(self) -> int:
        """How many servers begin the run, on all hosts."""
        if self.hosts and self.hosts.servers is not None:
            return self.hosts.all_servers
        return self._servers_each * (self.hosts.serving_count if self.hosts else 1)

    @property
    def workers_here(self) -> range:
        """The numbers of the workers that begin the run on this host."""
        return self.hosts.workers_here(self.workers) if self.hosts else range(self.workers)

    @property
    def servers_here(self) -> range:
        """The numbers of the servers that are started here."""
        return self.hosts.servers_here(self._servers_each) if self.hosts else range(self._servers_each)

    @property
    def share(self) -> HostShare | None:
        """What is started here, as the coordinator of a run on several hosts needs to know it."""
        if self.hosts is None:
            return None
        workers, servers = self.workers_here, self.servers_here
        ends = (workers.start, workers.stop), (servers.start, servers.stop)
        return HostShare(self.hosts.rank, self.hosts.count, *ends, terms=self._terms(self.hosts))

    def _terms(self, hosts: Hosts) -> dict[str, str]:
        """What all hosts must agree on, by option."""
        counts = {
            "--hosts": hosts.count,
            "--workers": hosts.world or self.workers,
            "--servers": self._servers_each if hosts.servers is None else hosts.all_servers,
            "--server-hosts": hosts.serving_count,
            "--restarts": self.restarts,
        }
        settings = {f"--{key.replace('_', '-')}": word for key, word in self.words().items()}
        resume = {"--resume": Path(self.wiring.resume).name} if self.wiring.resume else {}
        terms = {**{option: str(count) for option, count in counts.items()}, **settings, **resume}
        return {option: _short(word) for option, word in terms.items()}

    @property
    def later_workers(self) -> int:
        return sum(each.workers for each in self.growth)

    @property
    def later_servers(self) -> int:
        return sum(each.servers for each in self.growth)

    @property
    def layers(self) -> dict[str, dict[str, str]]:
        """The user's settings by origin; the first origin overrides the second."""
        return {COMMAND_LINE: dict(self.settings), self.file: dict(self.config)}

    @property
    def server_count(self) -> int:
        """How many servers are started here."""
        return len(self.servers_here)

    @property
    def _servers_each(self) -> int:
        """How many servers are started here, or on each serving host."""
        if self.servers is not None or self.joins:
            return self.servers or 0
        fitted = strategy_of(_words(self._settled(None)), None).fitted(self.all_workers)
        return ceil(fitted.servers / (self.hosts.serving_count if self.hosts else 1))

    @property
    def strategy(self) -> Strategy:
        """The strategy, as far as known before the program calls Syncline."""
        return strategy_of(_words(self.settled()), self._servers_given)

    @property
    def _servers_given(self) -> int | None:
        """The number of servers of the run, if it does not follow from the settings."""
        return None if self.servers is None and self.hosts is None else self.all_servers

    def settled(self) -> dict[str, tuple[str, str]]:
        """Every setting with its origin, as far as known before the program calls Syncline."""
        return self._settled(self._servers_given)

    def _settled(self, servers: int | None) -> dict[str, tuple[str, str]]:
        try:
            return settle(self.layers, servers, self.all_workers, joinable=self.joinable)
        except UsageError as error:
            if error.option in self.config and error.option not in self.settings and error.option != "seed":
                raise UsageError(f"strategy.{error.option}", error.problem) from None
            raise

    def words(self) -> dict[str, str]:
        """The settings that the user has chosen."""
        return {key: word for key, (word, origin) in self.settled().items() if origin in (COMMAND_LINE, self.file)}


def checked(
    plan: Plan, listen: str | None = None, join: str | None = None, *, dry: bool = False, real: bool = True
) -> Plan:
    """The plan with its addresses and keys, or a `UsageError` that names the option.

    `dry`: no key is made. `real`: it is for processes, not for the simulator.
    """
    least = 1 if join is None else 0
    whole(plan.workers, "--workers", least, MOST_PROCESSES)
    if plan.servers is not None:
        whole(plan.servers, "--servers", least, MOST_PROCESSES)
    if not plan.workers and not plan.servers:
        raise UsageError("--workers", "is 0, and --servers is 0 too; start at least one worker or server")
    whole(plan.restarts, "--restarts")
    if plan.wiring.lane and plan.wiring.lane not in LANES:
        raise UsageError("--lane", f"must be one of {', '.join(LANES)}, not {plan.wiring.lane!r}")
    if listen is not None and join is not None:
        raise UsageError("--join", "cannot be used with --listen: one host listens, and the others join it")
    if join is not None:
        return _joining(plan, join)
    if plan.hosts is not None:
        _check_hosts(plan, plan.hosts, listen)
    plan = replace(plan, joinable=plan.joinable or plan.hosts is not None or listen is not None or bool(plan.growth))
    strategy = plan.strategy.fitted(plan.all_workers)
    plan = replace(plan, growth=tuple(each.fitted(strategy.takes_servers) for each in plan.growth))
    if real:
        strategy.check_real()
    if plan.servers and not strategy.servers:
        problem = f"strategy {strategy.name()!r} has no servers; leave --servers {plan.servers} out"
        raise UsageError("--servers", problem)
    _check_restarts(plan)
    _check_growth(plan)
    if plan.hosts is not None:
        return _beginning_together(plan, plan.hosts, dry or not real)
    return plan if listen is None else _listening(plan, listen, dry)


def _check_hosts(plan: Plan, hosts: Hosts, listen: str | None) -> None:
    """Refuse what makes no sense in a run that begins on several hosts."""
    hosts.check()
    if listen is not None:
        raise UsageError("--listen", "is not needed with --hosts: host 0 listens at the address of --at")
    if plan.growth:
        raise UsageError(growth.OPTION, "cannot be used with --hosts; more workers can join with --join at any time")
    whole(plan.all_workers, "--workers", 1, MOST_PROCESSES, "on all hosts together")
    whole(plan.all_servers, "--servers", 0, MOST_PROCESSES, "on all hosts together")


def _beginning_together(plan: Plan, hosts: Hosts, dry: bool) -> Plan:
    """This host's share of a run that begins on several."""
    listening, wiring = hosts.listening(), plan.wiring
    if not (wiring.key_file or wiring.key or wiring.insecure or addresses.is_loopback(listening)):
        raise UsageError("--hosts", f"needs a key, the same on every host: {HOW_TO_GIVE_A_KEY} (or --key-file)")
    context_for(listening.host, wiring, server=hosts.leads)
    if not hosts.leads:
        check_place(wiring.shared_port)
        return replace(plan, places=(hosts.address,))
    if not dry:
        addresses.listen(listening, "--at").close()
    return replace(plan, wiring=replace(wiring, listen=listening.host), port=listening.port)


def _words(settled: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    return {key: word for key, (word, _) in settled.items()}


def _short(word: str) -> str:
    return word if len(word) <= MOST_OF_A_TERM else f"a long text ({sha256(word.encode()).hexdigest()[:16]})"


def _check_restarts(plan: Plan) -> None:
    """Refuse restarts that could not work. If the program chooses the mode, the coordinator checks this later."""
    if plan.restarts and _is_mode_known(plan):
        check_restarts(plan.strategy)


def _check_growth(plan: Plan) -> None:
    """Refuse growth that could not work, as for restarts."""
    whole(plan.later_workers, growth.OPTION, 0, MOST_PROCESSES, "the number of workers")
    if plan.growth and (_is_mode_known(plan) or plan.later_servers):
        check_growth(plan.strategy, plan.later_servers)


def _is_mode_known(plan: Plan) -> bool:
    """Whether the program cannot choose another mode or strategy: the command line or the file names one."""
    found = plan.settled()
    said = any(found[key][1] in (COMMAND_LINE, plan.file) for key in ("mode", "rule", "strategy") if key in found)
    return said or not plan.choosable


def _joining(plan: Plan, join: str) -> Plan:
    given: dict[str, object] = {f"--{key.replace('_', '-')}": True for key in plan.settings}
    given |= {"--config": plan.config, "--trace": plan.wiring.trace, "--grow": plan.growth}
    for option, there in given.items():
        if there:
            raise UsageError(option, "is a setting of the run that you join; leave it out with --join")
    found = joining_at(join, plan.wiring)
    check_place(plan.wiring.shared_port, towards=found[0].host)
    return replace(plan, places=tuple(map(str, found)))


def joining_at(join: str, wiring: Wiring) -> list[Address]:
    """The addresses that a text after `--join` stands for; UsageError if a key is missing or wrong."""
    found = addresses.resolve(join, "--join")
    for address in found:
        if not address.port or address.host in addresses.SOMEWHERE or address.name:
            raise UsageError("--join", f"{join!r} is not a usable address; copy the one that --listen printed")
        context_for(address.host, wiring, server=False)
    return found


def _listening(plan: Plan, listen: str, dry: bool) -> Plan:
    address = listening_at(listen, plan.wiring, dry=dry)
    check_place(plan.wiring.shared_port, address.host)
    port = int(plan.wiring.shared_port or address.port)
    return replace(plan, wiring=replace(plan.wiring, listen=address.host), port=port)


def listening_at(listen: str, wiring: Wiring, *, dry: bool = False) -> Address:
    """Where a process with `--listen` listens; a key file that does not exist is made, unless `dry`."""
    address = _first_free(addresses.resolve(listen, "--listen"))
    key = Path(wiring.key_file) if wiring.key_file else None
    if key is None and not (wiring.key or addresses.is_loopback(address) or wiring.insecure):
        right = f"add --key-file FILE (the file is made if it does not exist), or set {keys.VARIABLE}"
        raise UsageError(
            "--listen", f"{address} is not a loopback address, and connections between hosts need a key file: {right}"
        )
    if key is not None and not key.exists() and not addresses.is_loopback(address) and not wiring.insecure:
        if dry:
            return address
        keys.make_key_file(key)
    context_for(address.host, wiring, server=True)
    return address


def _first_free(found: Sequence[Address]) -> Address:
    """The first of these addresses at which this host can listen; the coordinator will listen there."""
    for address in found[:-1]:
        try:
            addresses.listen(address, "--listen").close()
        except UsageError:
            continue
        return address
    addresses.listen(found[-1], "--listen").close()
    return found[-1]
