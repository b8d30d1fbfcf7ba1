"""Start, watch and end the processes of one experiment, each on its host.

Syncline's launcher starts all servers on its own host, so this module starts the processes itself, with the same
environment: the coordinator on the first host, and on each host a worker and, if the strategy has servers, a server.
Between hosts they use TCP without encryption, as gloo does; a worker shares memory with the server of its own host, as
in every run.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import msgspec
import numpy as np
from benchmarks.cluster.experiment import Experiment, System, ddp_buckets
from benchmarks.cluster.link_samples import samples_of
from benchmarks.cluster.network import Host
from benchmarks.cluster.window import LEAST, Window

from syncline.engines.launch.child import inherited
from syncline.engines.launch.interrupts import delay_interrupts
from syncline.engines.launch.plan import COMMAND_LINE, Plan
from syncline.engines.net.tokens import new_token
from syncline.engines.net.wiring import Wiring
from syncline.engines.process import ONE_THREAD, end_with_parent, lean
from syncline.errors import RunError

COORDINATOR = "coordinator"

START_SECONDS = 20.0
"""The timeout for the start of the coordinator."""

END_SECONDS = 20.0
"""The timeout for the end of the servers after the workers, if they write traces."""

SAMPLING, LEAST_SAMPLING = 1 / 200, 0.0005
"""How often the links are sampled: the fraction of a step, but at least so many seconds."""

SAME_RELATIVE, SAME_ABSOLUTE = 1e-3, 1e-7
"""How much parameters may differ that are sums of the same updates in different orders; updates are about 1e-6."""

LIMIT_SECONDS, LIMIT_TIMES = 60.0, 4.0
"""The timeout of an experiment: a fixed time for its start, plus a multiple of the expected time of its steps."""


@dataclass(frozen=True)
class Process:
    """A process on a host; its output goes to the file `log`."""

    name: str
    handle: subprocess.Popen[bytes]
    log: Path

    def last_line(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "it printed nothing"


class Crew:
    """The processes of one experiment."""

    def __init__(self, hosts: Sequence[Host], folder: Path) -> None:
        self.hosts = hosts
        self.folder = folder
        self._everyone: list[Process] = []
        self._samplers: list[Process] = []

    def start(self, name: str, host: Host, command: Sequence[str], environment: Mapping[str, str]) -> Process:
        """Start a Python program on a host; it dies with this process."""
        log = self.folder / f"{name}.log"
        parent = os.getpid()
        with delay_interrupts(), log.open("wb") as output:
            handle = subprocess.Popen(
                host.inside(sys.executable, "-P", *command),
                env={**_outside(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=lambda: end_with_parent(parent),
                start_new_session=True,
            )
            process = Process(name, handle, log)
            self._everyone.append(process)
        return process

    def sample(self, seconds: float, folder: Path) -> None:
        """Start a process on each host that counts the bytes on its link every `seconds`, until `end_recording`."""
        for number, host in enumerate(self.hosts):
            words = ["-m", "benchmarks.cluster.link_samples", str(seconds), str(samples_of(folder, number))]
            self._samplers.append(self.start(f"sampler{number}", host, words, lean()))

    def wait(self, workers: Sequence[Process], seconds: float) -> None:
        """Wait until all workers have ended; RunError if a process fails, or another one ends before them."""
        until = monotonic() + seconds
        while any(worker.handle.poll() is None for worker in workers):
            sleep(0.1)
            self.check(workers)
            if monotonic() > until:
                raise RunError(f"the experiment did not finish within {seconds:.0f} s")
        self.check(workers)

    def check(self, workers: Sequence[Process]) -> None:
        for process in self._everyone:
            code = process.handle.poll()
            if code or (code == 0 and process not in workers and any(w.handle.poll() is None for w in workers)):
                raise RunError(f"{process.name} ended with exit code {code}: {process.last_line()}")

    def end_recording(self) -> None:
        """End the samplers, and wait until all processes have ended, so that their files are complete.

        A server ends by itself once its coordinator and all workers are gone.
        """
        for process in self._everyone:
            if process.name == COORDINATOR:
                process.handle.kill()
        for sampler in self._samplers:
            sampler.handle.terminate()
        until = monotonic() + END_SECONDS
        for process in self._everyone:
            try:
                process.handle.wait(max(0.0, until - monotonic()))
            except subprocess.TimeoutExpired:
                raise RunError(f"{process.name} did not end within {END_SECONDS:.0f} s after the workers") from None

    def stop(self) -> None:
        """Kill all processes that are left; none has anything to save."""
        with delay_interrupts():
            for process in self._everyone:
                process.handle.kill()
            for process in self._everyone:
                process.handle.wait()


def run(experiment: Experiment, hosts: Sequence[Host], seconds: float, recording: Path | None = None) -> list[Window]:
    """Run the experiment and measure for about this many seconds; return the measurement of each worker.

    `recording`: the folder for the traces of servers and workers, and for samples of the links.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="syncline-cluster-")))
        crew = Crew(hosts, folder)
        stack.callback(crew.stop)
        if recording is not None:
            crew.sample(max(LEAST_SAMPLING, experiment.least_step * SAMPLING), recording)
        if experiment.system is System.GLOO:
            workers = _start_gloo(crew, experiment, seconds)
        else:
            workers = _start_syncline(crew, experiment, seconds, str(recording or ""))
        crew.wait(workers, limit(experiment, seconds))
        if recording is not None:
            crew.end_recording()
        windows = [msgspec.json.decode(_notes(folder, n).read_bytes(), type=Window) for n in range(len(hosts))]
    check_same(windows)
    return windows


def check_same(windows: Sequence[Window]) -> None:
    """Raise RunError if the workers do not end with the same parameters; without servers, up to rounding."""
    first = np.array(windows[0].sample)
    close = all(np.allclose(window.sample, first, SAME_RELATIVE, SAME_ABSOLUTE) for window in windows)
    if not close or len({window.digest for window in windows}) > 1:
        raise RunError("the final parameters of the workers differ")


def limit(experiment: Experiment, seconds: float) -> float:
    """The timeout of an experiment in seconds."""
    steps = experiment.warm + 1 + LEAST * experiment.period
    turns = 2 * experiment.hosts * experiment.latency * len(ddp_buckets(experiment.layers.layout.tables))
    return LIMIT_SECONDS + LIMIT_TIMES * (seconds + steps * (experiment.least_step + turns))


def check(experiment: Experiment) -> None:
    """Raise UsageError, before anything starts, if the engine does not support the settings."""
    if experiment.system is System.SYNCLINE:
        Plan((), experiment.hosts, experiment.servers or None, experiment.settings).settled()


def _start_syncline(crew: Crew, experiment: Experiment, seconds: float, trace: str) -> list[Process]:
    return start_syncline(
        crew,
        experiment.settings,
        experiment.servers,
        lambda number: ["-m", "benchmarks.cluster.worker", *_task(crew, experiment, seconds, number)],
        trace,
    )


def start_syncline(
    crew: Crew, settings: Mapping[str, str], servers: int, command: Callable[[int], list[str]], trace: str = ""
) -> list[Process]:
    """Start the coordinator, the servers and the workers; `command`: the program of the worker with this number.

    Without servers, workers listen for each other.
    """
    here = Wiring(run=secrets.token_hex(16), insecure="1", token=new_token(), trace=trace, checkpoints=str(crew.folder))
    said = json.dumps({COMMAND_LINE: dict(settings)})
    words = ["-m", "syncline.engines.coordinator", str(len(crew.hosts)), str(servers), said]
    first = crew.hosts[0]
    coordinator = crew.start(COORDINATOR, first, words, _environment(replace(here, listen=first.address)))
    here = replace(here, coordinator=_address_of(coordinator))
    for number, host in enumerate(crew.hosts[:servers]):
        words = ["-m", "syncline.engines.server", str(number)]
        wiring = replace(here.of("server", number), listen=host.address)
        crew.start(f"server{number}", host, words, _environment(wiring))
    workers = []
    for number, host in enumerate(crew.hosts):
        wiring = replace(here.of("worker", number), listen="" if servers else host.address)
        environment = {**ONE_THREAD, **wiring.environment()}
        workers.append(crew.start(f"worker{number}", host, command(number), environment))
    return workers


def _start_gloo(crew: Crew, experiment: Experiment, seconds: float) -> list[Process]:
    workers = []
    for number, host in enumerate(crew.hosts):
        task = _task(crew, experiment, seconds, number)
        words = ["-m", "benchmarks.cluster.gloo", *task, str(number), str(crew.folder / "meeting")]
        workers.append(crew.start(f"worker{number}", host, words, ONE_THREAD))
    return workers


def _task(crew: Crew, experiment: Experiment, seconds: float, number: int) -> list[str]:
    return [msgspec.json.encode(experiment).decode(), str(seconds), str(_notes(crew.folder, number))]


def _notes(folder: Path, number: int) -> Path:
    return folder / f"window{number}.json"


def _outside() -> dict[str, str]:
    """The environment of this process, without the variables of another run, and with the same module search path."""
    return inherited(os.environ, {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)})


def _environment(wiring: Wiring) -> dict[str, str]:
    return {**lean(), **wiring.environment()}


def _address_of(coordinator: Process) -> str:
    """The TCP address that the coordinator prints after the name of its Unix socket."""
    until = monotonic() + START_SECONDS
    while monotonic() < until and coordinator.handle.poll() is None:
        line, end, _ = coordinator.log.read_text().partition("\n")
        if end and line.startswith("@"):
            return line.split()[1]
        sleep(0.02)
    raise RunError(f"the coordinator did not start: {coordinator.last_line()}")
