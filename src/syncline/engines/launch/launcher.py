"""The launcher starts a coordinator, servers and workers, reports how each ends, and leaves no process behind.

1. The kernel kills every child when the launcher dies, for whatever reason. When a child ends, the launcher kills the
   processes that it has started, unless they have left its session. If the launcher itself was killed, its guard and
   the coordinator both do so (guard.py). If the guard dies or is stopped, the launcher starts another.
2. If a signal kills a worker, the launcher prints one line and the run continues. The run ends if a worker fails (exit
   code above 0), if a worker is refused because its settings are invalid, or if a server is lost (outcome.py). A worker
   that joined another run does not end that run when it fails. While restarts are left (restarts.py), the launcher
   restarts a worker that dies or fails, as the next incarnation of the same worker.
3. The run succeeded if a worker ended with exit code 0, none failed, and no server was lost while it was needed.
4. A worker that is stopped (SIGSTOP) for longer than SYNCLINE_PATIENCE counts as dead: the launcher does not wait for
   it at the end. A coordinator that is stopped for so long is killed. Without a coordinator, a worker or server that is
   stopped for so long ends the run.
5. To end a process, the coordinator tells it, then the launcher sends SIGTERM, then SIGKILL, each after a grace period.
6. Servers that joined another run stay until it ends. They leave early if this launcher is interrupted or one of its
   workers fails: the launcher sends SIGTERM and waits until other servers have taken over their parameters. A second
   interrupt does not wait; the run then loses those parameters and ends.
7. With `--grow` it starts more workers and nodes while the run trains (growth.py).
8. With `--hosts` a launcher on each host begins the run (hosts.py). The first one starts the coordinator. The others
   wait for it (first_contact.py), and then do the same as the first: their failures end the run, too. When their
   workers are done, they wait for the end of the run with their servers, as launchers that joined do. A launcher that
   is started again after its host was lost joins.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from time import monotonic

import msgspec

from syncline.engines.coordinator.journal import CANNOT_REPLAY
from syncline.engines.failure_report import FailureReport
from syncline.engines.launch.child import Child, inherited
from syncline.engines.launch.children import Children
from syncline.engines.launch.coordinator_link import CoordinatorLink, reach
from syncline.engines.launch.first_contact import listen_towards, reach_first_host
from syncline.engines.launch.growth import Growth, GrowthStage
from syncline.engines.launch.guard_link import GuardLink
from syncline.engines.launch.hosts import run_secret
from syncline.engines.launch.late_start import HostChecks
from syncline.engines.launch.outcome import RunOutcome, coordinator_died
from syncline.engines.launch.plan import Plan
from syncline.engines.launch.restarts import Restarts
from syncline.engines.launch.shared_port import SharedPort
from syncline.engines.launch.told import first_time
from syncline.engines.net import addresses, keys, tokens
from syncline.engines.net.control import (
    Abort,
    Ended,
    Figures,
    Frozen,
    Heartbeat,
    Hello,
    Notice,
    Pulse,
    Refused,
    Seen,
    Started,
    Stop,
    SurvivesServers,
    TrainingBegun,
    Welcome,
)
from syncline.engines.net.frames import Frame
from syncline.engines.net.wiring import CONNECT_SECONDS, Wiring
from syncline.engines.process import folders, here, lean, say, share_of_cores
from syncline.engines.process_state import Stopped, host, patience, state_of
from syncline.engines.saving.folder import claim
from syncline.engines.server import checkpoint_folder
from syncline.errors import RunError, SynclineError, UsageError

GRACE = 5.0
"""Seconds that a process has to end by itself after the coordinator told it to."""

LAST_GRACE = 2.0
"""Seconds that a process has to end after SIGTERM."""

LOOK_SECONDS = 0.5
"""Seconds between two checks whether a process is stopped."""

HOLD = 1.0
"""Seconds that the launcher waits for the process of a lost worker to end, since its exit code explains the loss."""

Line = Callable[[str, str], None]
"""Called with each line of output of a process: (name, text)."""

Beat = Callable[[Pulse], None]
"""Called when a worker reports its progress."""


class Launcher:
    """One run on this host, from start to end."""

    def __init__(self, plan: Plan, line: Line | None = None, beat: Beat | None = None) -> None:
        self._plan = plan
        self._line = line or (lambda name, text: say(f"[{name}] {text}"))
        self._beat = beat
        self._patience = patience(os.environ)
        self._children = Children(self._say, plan.log_dir, self._output_lost, self._show_failure)
        self._guard = GuardLink(os.getpid(), self._patience, lambda pid: self._tell(Started(pid)))
        self._checks = HostChecks(self._note, self._children.watch, self._children.forget)
        self._shared_port = SharedPort(self._children.watch, self._children.forget, self._own_coordinator)
        self._link: CoordinatorLink | None = None
        self.coordinator: Child | None = None
        self.servers: list[Child] = []
        self.workers: list[Child] = []
        self.figures: list[Figures] = []
        self.worker_figures: list[Figures] = []
        """The counters of workers that have left, if workers send each other updates."""
        self.address = ""
        self.incomplete = False
        """True if a log or a trace is not complete."""
        self.failure: SynclineError | None = None
        """Why the run failed; None while it runs, or if it succeeded."""
        self._told: list[FailureReport] = []
        """Why programs of workers have failed, as far as it was shown."""
        self._outcome = RunOutcome(plan.joins)
        self._restarts = Restarts(plan.restarts)
        self._growth = Growth(plan.growth)
        self._growing: list[tuple[GrowthStage, list[Child]]] = []
        """The stages whose nodes have been started, and whose workers have not."""
        self._checkpoints = ""
        """The folder for checkpoints of servers, which is removed at the end."""
        self._claimed = -1
        """The lock of the folder for checkpoints of the run, until the launcher ends."""
        self._hurry = False
        self._welcome = False
        self._aborted = False
        """The coordinator has ended the run."""
        self._late = False
        """The run has begun without this launcher, which was to begin it with others."""
        self._disagreement = ""
        """Which option differs from that of the first host."""
        self._run = ""
        """The identifier of the run."""
        self._named = False
        """True once the run that was joined has assigned a number to a process of ours."""
        self._began = monotonic()
        self._stopped = Stopped()
        self._look = 0.0

    # Start.

    def start(self) -> None:
        """Start all processes."""
        self.open()
        self._for_workers = {"PYTHONUNBUFFERED": "1", **self._threads()}
        while self._plan.joins and self._outcome.over is None and not _are_known(self.servers):
            self._turn(0.1)  # so that these servers can serve the workers that join with them
        for _ in range(self._plan.workers):
            self._start_worker()

    def _start_worker(self) -> None:
        index = len(self.workers)
        number = self._plan.workers_here.start + index
        wiring = replace(self._wiring_of("worker", number), folder=self._searched())
        child = self._spawn(f"w{number}", list(self._plan.command), wiring=wiring, unless=self._for_workers)
        child.later = index >= self._plan.workers
        self.workers.append(child)

    def open(self) -> None:
        """Start all processes but the workers, or connect to the run that they join."""
        plan = self._plan
        if plan.wiring.save_to and plan.leads:
            self._claimed = claim(Path(plan.wiring.save_to))
        self._checkpoints = str(Path(gettempdir()) / f"syncline-{secrets.token_hex(8)}")
        run = secrets.token_hex(16) if plan.leads else ""
        secret = tokens.new_token() if plan.hosts is None or not run else run_secret(plan.wiring, run)
        lasting = "1" if plan.restarts or not plan.leads else ""  # others are told by the coordinator
        self.wiring = replace(plan.wiring, run=run, token=secret, checkpoints=self._checkpoints, lasting=lasting)
        self._guard.start()
        if plan.leads:
            self._share_port()
            self._start_coordinator()
        self._connect()
        self._tell(Started(self._guard.pid))
        for number in self._plan.servers_here:
            self.servers.append(self._spawn_server(number))

    def _spawn_server(self, number: int, former: Child | None = None) -> Child:
        command = [sys.executable, "-m", "syncline.engines.server", *([] if self._plan.joins else [str(number)])]
        wiring = self._wiring_of("server", number)
        return self._spawn(f"server{number}", command, lean(), wiring, former=former)

    def _start_coordinator(self) -> None:
        self._coordinator_environment = {**lean(), **self._for_coordinator()}
        self.coordinator = self._spawn_coordinator()
        stdout = self.coordinator.process.stdout
        assert stdout is not None
        while not select.select([stdout], [], [], 0.1)[0]:
            self._watch()
        said = stdout.readline().decode().split()
        if len(said) != 2:
            raise RunError("the coordinator did not start")
        self.wiring = replace(self.wiring, coordinator=said[0])
        self.address = said[1].strip("-")

    def _cannot_reach(self) -> None:
        """The first host has not answered for a while."""
        self._note("to check the way: syncline doctor --listen on host 0, and syncline doctor --join here")
        self._checks.run(network=True)

    def _share_port(self) -> None:
        """Listen for all processes of this host, if they share a port (`--port`)."""
        if self.wiring.shared_port:
            self._shared_port.start(self.wiring.listen, int(self.wiring.shared_port))

    def _own_coordinator(self) -> str:
        """The name of the Unix socket of the coordinator; "": it is on another host, or has not started yet."""
        return self.wiring.coordinator.removeprefix("@") if self._plan.leads else ""

    def _spawn_coordinator(self, former: Child | None = None) -> Child:
        plan = self._plan
        words = [str(plan.all_workers), str(plan.all_servers), json.dumps(plan.layers)]
        command = [sys.executable, "-m", "syncline.engines.coordinator", *words]
        return self._spawn("coordinator", command, self._coordinator_environment, former=former)

    def _for_coordinator(self) -> dict[str, str]:
        later, share = f"{self._plan.later_workers} {self._plan.later_servers}", self._plan.share
        return {
            "SYNCLINE_PORT": str(self._plan.port),
            "SYNCLINE_RESTARTS": str(self._plan.restarts),
            "SYNCLINE_LATER": later,
            "PYTHONHASHSEED": str(secrets.randbelow(1 << 32)),  # one that is started again orders sets as this one
            **({} if share is None else {"SYNCLINE_SHARE": msgspec.json.encode(share).decode()}),
        }

    def _connect(self) -> None:
        """Connect to the coordinator, as the launcher of its run, or as that of processes on another host."""
        plan, waits = self._plan, None if self._plan.leads else self._plan.hosts
        role, share = "launcher" if plan.leads else "agent", None if waits is None else plan.share
        token = self.wiring.of(role, -1).token if plan.leads else self.wiring.token
        hello = Hello(self.wiring.run, role, pid=os.getpid(), host=host(), token=token, share=share)
        if waits is not None:
            link = reach_first_host(waits.address, self.wiring, hello, self._patience, self._note, self._cannot_reach)
        else:
            link = reach(plan.places or (self.wiring.coordinator,), self.wiring, hello, self._patience)
        if plan.joins:
            listen_towards(link)
        self._link, self.wiring = link, link.wiring
        if not plan.leads:
            self._share_port()
        self._children.watch(link.fileno(), self._receive)
        until = monotonic() + CONNECT_SECONDS
        while not self._welcome:
            self._turn(0.1)
            if self._disagreement:
                option, _, problem = self._disagreement.partition(": ")
                raise UsageError(option, problem)
            if self._outcome.over is not None:
                raise RunError(self._outcome.over)
            if link.gone:
                raise RunError(f"{self.wiring.coordinator} closed the connection; {keys.CLOSED}")
            if monotonic() > until:
                raise RunError(
                    f"{self.wiring.coordinator} accepts connections but does not answer as a coordinator; "
                    "check the address and port"
                )
        if waits is not None:
            self._begin_or_join()

    def _begin_or_join(self) -> None:
        """The first host has answered: begin the run with it, or join it if it has begun without this launcher."""
        if self._late:
            self._note("this host has been part of the run before: its workers join it again, and it starts no servers")
            self._plan = replace(self._plan, hosts=None, servers=0)
            self._outcome.alone = True
        else:
            self.wiring = replace(self.wiring, run=self._run, token=run_secret(self.wiring, self._run))

    def _wiring_of(self, role: str, number: int) -> Wiring:
        """The wiring of a process; those that join another run share this launcher's token, and get numbers there."""
        wiring = self.wiring if self._plan.joins else self.wiring.of(role, number)
        return wiring if role == "server" else replace(wiring, checkpoints="")

    def _spawn(
        self,
        name: str,
        command: list[str],
        extra: Mapping[str, str] | None = None,
        wiring: Wiring | None = None,
        unless: Mapping[str, str] | None = None,
        former: Child | None = None,
    ) -> Child:
        """Start a process, in place of `former` if given; the user's environment overrides what `unless` sets."""
        outside = inherited(unless or {}, os.environ, self._plan.environment)
        environment = {**outside, **(extra or {}), **(wiring or self.wiring).environment()}
        if former is not None:
            child = self._children.replace(former, command, environment)
        else:
            kind = {"answers": name == "coordinator", "reports": name.startswith("w")}
            child = self._children.start(name, command, environment, **kind)
        self._guard.add(child.pid, wait=name == "coordinator")
        if self._plan.leads:
            self._tell(Started(child.pid))
        return child

    def _searched(self) -> str:
        """Where workers look for a user's own modules; the program may lie in another folder."""
        return folders(here(), self._plan.wiring.folder)

    def _threads(self) -> dict[str, str]:
        """Divide the cores among the workers, unless the user has set the number of threads."""
        share = share_of_cores(self._plan.workers + self._plan.later_workers, {**os.environ, **self._plan.environment})
        for variable, threads in share.items() if first_time("threads", os.environ) else ():
            self._line("syncline", f"{variable}={threads} for each worker; set {variable} to choose another number")
        return share

    def reachable(self) -> str:
        """The address at which workers of other hosts can join."""
        address = addresses.parse(self.address, "--listen")
        return str(addresses.Address(addresses.own_address_for(address.host), address.port))

    # The run.

    def wait(self) -> int:
        """Wait until the run ends; return the exit code. If it is not 0, `failure` says why."""
        while self._outcome.over is None and any(self._runs(worker) for worker in self.workers):
            self._turn(0.2)
            self._grow()
        for stage in self._growth.left if self._outcome.over is None else ():
            self._note(f"--grow {stage}: nothing was started, because the run ended before that")
        if not self._plan.leads:
            self._wait_for_servers()
        elif self._outcome.over is None and (self._plan.hosts or any(worker.code == 0 for worker in self.workers)):
            self._collect()
        if self._outcome.over is not None:
            self._drain(GRACE)
            self._signal(signal.SIGTERM)
            self._drain(LAST_GRACE)
        if self._no_worker_connected():
            self._note("nothing was trained: no worker has declared a model")
            return 0
        self.failure = self._outcome.judge(self.workers, self.coordinator)
        return 0 if self.failure is None else 2 if isinstance(self.failure, UsageError) else 1

    def _grow(self) -> None:
        """Start the nodes of the stages that are due, and the workers of those whose nodes the run knows."""
        if self._outcome.over is not None or self._outcome.done:
            return
        for stage in self._growth.due(monotonic()):
            first = len(self.servers)
            self.servers += [self._spawn_server(first + number) for number in range(stage.servers)]
            self._growing.append((stage, self.servers[first:]))
        known = [each for each in self._growing if _are_known(each[1])]
        self._growing = [each for each in self._growing if each not in known]
        for stage, _ in known:
            self._note(f"--grow {stage}: {stage.workers} more {'worker' if stage.workers == 1 else 'workers'}")
            for _ in range(stage.workers):
                self._start_worker()

    def _wait_for_servers(self) -> None:
        """Let the servers that joined serve until the run ends, or leave at once if a worker of ours failed."""
        if self._outcome.failed:
            self._withdraw_servers()
        while self._outcome.over is None and any(server.code is None for server in self.servers):
            self._turn(0.2)

    def _withdraw_servers(self) -> None:
        """Let the servers that joined hand over their parameters, and wait until they have done so."""
        for server in self.servers:
            server.signal(signal.SIGTERM)
        if any(server.code is None for server in self.servers):
            self._note(
                "the servers hand over their parameters; interrupt again to end at once: "
                "the run that you joined then loses these parameters and ends"
            )
        while not self._hurry and not self._gone() and any(server.code is None for server in self.servers):
            self._turn(0.1)

    def _gone(self) -> bool:
        """Return True if the run that was joined has ended."""
        return self._link is None or self._link.gone

    def serve(self, wanted: Callable[[], bool]) -> None:
        """Serve workers that another launcher has started: run while `wanted()` is true, then let everything end."""
        while self._outcome.over is None and wanted():
            self._turn(0.2)
        if self._outcome.over is None and self._plan.leads:
            self._collect()

    def serve_on(self) -> None:
        """Serve the workers of other hosts until the run ends."""
        self._wait_for_servers()

    def _no_worker_connected(self) -> bool:
        return not self.figures and self._outcome.no_worker_connected(self.workers, self.servers)

    def _runs(self, worker: Child) -> bool:
        """Return False if this worker has ended, or has been stopped for longer than SYNCLINE_PATIENCE."""
        if worker.code is not None:
            return False
        worker.frozen |= worker.stopped > self._patience
        return worker.stopped <= self._patience

    def _turn(self, seconds: float) -> None:
        self._children.turn(seconds)
        for child in self._children.ended():
            self._ended(child)
        self._report_lost()
        self._come_back()
        self._watch()

    def _watch(self) -> None:
        """Look at intervals which processes are stopped, and act on it."""
        now = monotonic()
        if now < self._look:
            return
        self._look = now + LOOK_SECONDS
        self._guard.check()
        self._shared_port.close_silent(now)
        if not self._plan.leads and self._link is not None and self._outcome.over is None:
            cut = self._link.beat(now)
            if cut:
                self._outcome.found(cut)
        for child in self._children.running():
            child.stopped = self._stopped.seconds(child.pid, now)
            if child.stopped:
                self._watch_stopped(child)

    def _watch_stopped(self, child: Child) -> None:
        """A process is stopped: the coordinator must know, and somebody must act if it is the coordinator or dead."""
        late, limit = child.stopped > self._patience, f"{self._patience:g} s"
        if not self._plan.leads:
            self._tell(Frozen(host(), child.pid, child.stopped))
        if child is self.coordinator and late:
            child.frozen = True
            self._note(f"the coordinator was stopped for more than {limit}; it counts as dead")
            child.signal(signal.SIGKILL)
        elif late and self._outcome.over is None and self._is_headless():
            self._fail(f"{child.name} has been stopped for more than {limit}, and the coordinator is dead")

    def _is_headless(self) -> bool:
        """Return True if the coordinator has died before the training ended."""
        if not self._plan.leads:
            return self._gone() and not self._outcome.done
        return coordinator_died(self.coordinator) is not None

    def _receive(self) -> None:
        link = self._link
        if link is None or not link.is_open:
            return
        for message in link.receive():
            self._handle(message)
        if not link.is_open:
            self._children.forget(link.fileno())
            link.close()
            if link.away and self.coordinator is None:
                self._note("the coordinator is gone; training goes on, and joins and leaves wait for it to come back")

    def _come_back(self) -> None:
        """Try to reach a coordinator that is started again."""
        if self._link is None or not self._link.away:
            return
        if self._link.come_back():
            self._children.watch(self._link.fileno(), self._receive)
            self._note("the coordinator is back")
            self._receive()
        elif self._link.gone:
            self._note("the coordinator did not come back; without it no process can join or leave the run")

    def _handle(self, message: Frame) -> None:
        match message:
            case Refused(reason, usage=True) if not self._welcome:
                self._disagreement = reason
            case Abort(reason) | Refused(reason):
                self._aborted = True
                self._outcome.heard(reason)
            case Figures(of_worker=True):
                self.worker_figures.append(message)
            case Figures():
                self.figures.append(message)
                self.incomplete |= message.trace_lost
            case Seen():
                self._handle_seen(message)
            case Pulse() if self._beat is not None:
                self._beat(message)
            case Ended():
                self._outcome.done = True
            case TrainingBegun():
                self._growth.begin(monotonic())
            case SurvivesServers(survives):
                self._outcome.survives_servers = survives
            case Notice(text, late_start):
                self._note(text)
                if late_start:
                    self._checks.start(network=bool(self._plan.places or self._plan.hosts))
            case Welcome(run, late=late, lasting=lasting):
                self._welcome, self._run, self._late = True, run, late
                if not lasting and self._link is not None:
                    self._link.forgo()
                    self.wiring = replace(self.wiring, lasting="")

    def _handle_seen(self, seen: Seen) -> None:
        """The coordinator reports a lost, refused or joined process.

        If a worker of ours is lost, wait for the end of its process, which explains the loss better.
        """
        if seen.usage:
            self._outcome.refused = self._outcome.refused or seen
            if not self._plan.joins:
                self._fail(f"{seen.role} {seen.number} was {seen.what}")
        if seen.usage or self._outcome.over is not None:
            return
        if seen.pid:
            self._rename(seen)
            return
        if self._restarts.was_replaced(seen.of):
            return
        ours = [each for each in self.workers if (seen.role, each.name) == ("worker", f"w{seen.number}")]
        child = ours[0] if ours and (self._named or not self._plan.joins) else None
        what = f"{seen.role} {seen.number}: {seen.what}"
        if child is None:
            self._note(what)
        elif child.code is None and state_of(child.pid) in ("T", "t"):
            child.frozen = True
            self._note(what)
        elif not child.code and child.failure is None:
            child.lost = monotonic(), what

    def _rename(self, seen: Seen) -> None:
        """A process of ours has joined the run; name it by its number there."""
        for child in self.workers:
            if child.pid == seen.pid:
                child.name = f"w{seen.number}"
                child.numbered = self._named = True
        for child in self.servers:
            if child.pid == seen.pid:
                child.name = f"server{seen.number}"
                child.numbered = True

    def _report_lost(self) -> None:
        for child in self.workers:
            if child.failure is not None:
                child.lost = None  # its report says more
            if child.lost is not None and (child.code == 0 or monotonic() > child.lost[0] + HOLD):
                self._note(child.lost[1])
                child.lost = None

    def _say(self, child: Child, text: str) -> None:
        """Pass on a line of output; the output of servers is dropped if no worker connected."""
        if child in self.workers or not self._no_worker_connected():
            self._line(child.name, text)

    def _show_failure(self, child: Child) -> None:
        """Show why the program of a worker failed, unless this or another one has failed for the same reason before."""
        report = child.failure
        assert report is not None
        if not report.own and report.line.endswith(self._outcome.over or "\n"):
            return
        alike = [each for each in self._told if each.reason == report.reason]
        self._told.append(report)
        text = report.whole if self._plan.traceback or not report.brief else report.whole and report.line
        shown = [] if alike else text.splitlines()
        after = [] if any(each.after == report.after for each in alike) else report.after.splitlines()
        for line in (*shown, *after):
            self._line(child.name, line)

    def _ended(self, child: Child) -> None:
        """Handle the end of a process: report it, and decide whether it ends the run."""
        self._guard.remove(child.pid)
        if child is self.coordinator:
            self._coordinator_ended(child)
            return
        worker, server = child in self.workers, child in self.servers
        again = (worker or (server and not self._plan.joins)) and self._starts_again(child, worker)
        if (worker or (server and child.code)) and not self._plan.joins:
            what, role = child.end.partition(" ")[2], "worker" if worker else "server"
            number = self._number(child)
            self._tell(Seen(role, number, 0, what, pid=child.pid, again=again))
        elif (worker or server) and child.numbered and self.wiring.lasting:
            number = int(child.name.removeprefix("w").removeprefix("server"))
            self._tell(Seen("worker" if worker else "server", number, 0, child.end.partition(" ")[2], pid=child.pid))
        if again:
            self._restart(child) if worker else self._restart_server(child)
        if not child.code or again:
            return
        self._receive()
        child.lost = None
        outcome, fatal = self._outcome, self._outcome.is_fatal(child, worker)
        cause = f"{child.end} after {self._seconds()}{child.reason and ': ' + child.reason}"
        if outcome.over is not None:
            if fatal and not outcome.known:
                self._explain(child, cause)
        elif fatal and not self._plan.joins:
            self._fail(coordinator_died(self.coordinator) or cause)
        else:
            self._note(child.end)
            outcome.failed = outcome.failed or (cause if fatal else None)

    def _coordinator_ended(self, child: Child) -> None:
        """The coordinator has ended: start it again, so that it goes on from its journal."""
        self._receive()
        if child.code == CANNOT_REPLAY:
            self._fail("the coordinator was started again, and could not continue from its journal (see above)")
        elif child.code and self._restarts.left and self._outcome.over is None:
            self._note(self._restarts.note(child))
            self.coordinator = self._spawn_coordinator(former=child)
            self._restarts.started(self.coordinator, child)
            self._tell(Seen("coordinator", 0, 0, child.end.partition(" ")[2], pid=child.pid))
            return
        if self._link is not None:
            self._link.forgo()
        if child.code and self._outcome.over is None:
            self._note(child.end)

    def _number(self, child: Child) -> int:
        """The number of a worker or server that this launcher started when the run began."""
        plan = self._plan
        first, all_alike = (
            (plan.workers_here, self.workers) if child in self.workers else (plan.servers_here, self.servers)
        )
        return first.start + all_alike.index(child)

    def _explain(self, child: Child, cause: str) -> None:
        """The coordinator has ended the run because of lost workers, and does not know why they are lost."""
        assert child.code
        if child.code < 0:
            self._fail(cause)
        elif child.reason:
            self._fail(f"{self._outcome.over}: {cause}")

    def _starts_again(self, child: Child, worker: bool) -> bool:
        """Return True if this process, which has ended, is to be restarted."""
        if not child.code or not self._restarts.left:
            return False
        self._receive()  # it may have ended because the run is over
        outcome = self._outcome
        return outcome.over is None and not outcome.done and (worker or outcome.survives_servers)

    def _restart(self, child: Child) -> None:
        """Restart a worker under its number, unless it died before the run that it joins assigned one."""
        index = self.workers.index(child)
        wiring = replace(self._wiring_of("worker", self._number(child)), folder=self._searched())
        if child.numbered:
            wiring = replace(wiring, run=self._run, worker=child.name.removeprefix("w"))
        self._note(self._restarts.note(child))
        command = list(self._plan.command)
        new = self._spawn(child.name, command, wiring=wiring, unless=self._for_workers, former=child)
        self._restarts.started(new, child)
        self.workers[index] = new

    def _restart_server(self, child: Child) -> None:
        """Restart a server; it goes on from its checkpoint, or from what the workers have read."""
        index = self.servers.index(child)
        self._note(self._restarts.note(child))
        new = self._spawn_server(self._number(child), former=child)
        self._restarts.started(new, child)
        self.servers[index] = new

    def _fail(self, reason: str) -> None:
        """End the run for this reason, and tell the coordinator, which tells all processes."""
        self._outcome.found(reason)
        self._tell(Abort(reason))

    def _seconds(self) -> str:
        return f"{monotonic() - self._began:.1f} s"

    def _note(self, text: str) -> None:
        self._line("syncline", f"{self._seconds()}: {text}")

    def _output_lost(self, text: str) -> None:
        self.incomplete = True
        self._note(text)

    def _tell(self, message: Abort | Seen | Started | Frozen | Stop | Heartbeat) -> None:
        if self._link is not None:
            self._link.tell(message)

    def _collect(self) -> None:
        """Ask for the servers' counters and let all processes end; the coordinator decides which ones to wait for."""
        self._tell(Stop())
        assert self._link is not None
        while self._outcome.over is None and not self._link.gone:
            self._turn(0.05)
        until = monotonic() + GRACE
        while self._outcome.over is None and monotonic() < until and any(child.code is None for child in self.servers):
            self._turn(0.05)

    # End.

    def _drain(self, seconds: float) -> None:
        """Wait up to this many seconds for the workers to end."""
        until = monotonic() + seconds
        while monotonic() < until and not self._hurry and any(self._runs(worker) for worker in self.workers):
            self._turn(0.1)

    def _signal(self, number: int) -> None:
        for worker in self.workers:
            worker.signal(number)

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Ask the workers to end, and wait up to the grace period."""
        self._outcome.found("interrupted")
        self._signal(signal.SIGTERM if number == signal.SIGHUP else number)
        self._drain(GRACE)
        if not self._plan.leads:
            self._withdraw_servers()
        elif self._plan.hosts is not None:
            self._end_other_hosts()

    def _end_other_hosts(self) -> None:
        """Let the launchers of the other hosts know why the run ends; the coordinator answers when it has told all."""
        self._tell(Abort("host 0 was interrupted"))
        until = monotonic() + GRACE
        while not (self._aborted or self._gone() or self._hurry) and monotonic() < until:
            self._turn(0.1)

    def pause(self) -> None:
        """The user is about to stop this launcher (Ctrl-Z); the run continues for as long as it is stopped."""
        self._guard.pause()
        self._tell(Heartbeat(pausing=True))

    def resume(self) -> None:
        self._guard.resume()
        self._tell(Heartbeat())

    def hurry(self) -> None:
        """Stop waiting for processes to end."""
        self._hurry = True

    def stop(self) -> None:
        """Kill every remaining process and the processes that it has started."""
        self._checks.close()
        self._shared_port.close()
        self._children.stop()
        if self._checkpoints:
            checkpoint_folder.remove(self._checkpoints)
        if self._claimed >= 0:
            os.close(self._claimed)
            self._claimed = -1
        self._guard.close()
        if self._link is not None:
            self._link.close()


def _are_known(servers: Sequence[Child]) -> bool:
    """Whether the run has numbered all these servers that have not ended."""
    return all(each.numbered or each.code is not None for each in servers)
