"""`syncline run` as a command: its options, its exit codes, what it says, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import commands
import lanes
import samples
from engine import QUIET, Run, running

STEADY = """
begin()
steps_until("stop")
session.close()
"""

IDLE = "say('up')\nwhile not there('stop'): time.sleep(0.01)\n"
"""A program that takes no part."""


def refused(directory: Path, *options: str, **environment: str) -> str:
    """What is said of a request that makes no sense, before anything starts."""
    (directory / "program.py").touch()
    return commands.refused(directory, "run", *options, "program.py", **environment)


# Interrupts.


def test_interrupts_without_end_leave_nothing_behind(tmp_path: Path) -> None:
    body = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nsubprocess.Popen(['sleep', '600'])\n" + IDLE
    with running(tmp_path, body, "-n4") as run:
        run.hears("up", times=4)
        while run.process.poll() is None:
            run.kill(run.process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                run.process.wait(0.001)  # as fast as a key repeats, and faster
        assert run.ends() in (130, -signal.SIGINT), run.story()


@pytest.mark.slow
def test_an_ignored_hangup_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with running(tmp_path, STEADY) as run:
            run.hears("under way", times=2)
            run.kill(run.process.pid, signal.SIGHUP)
            run.touch("stop")
            assert run.ends() == 0, run.story()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_what_a_worker_has_started_ends_with_a_killed_launcher(tmp_path: Path) -> None:
    with running(tmp_path, "subprocess.Popen(['sleep', '600'])\n" + IDLE) as run:
        run.hears("up", times=2)
        run.kill(run.process.pid)
        run.ends()
        run.gone()


def test_a_reader_that_goes_ends_the_run_quietly(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import time\nwhile True:\n    print('line')\n    time.sleep(0.01)\n")
    mark = {"MARK_OF_A_READER": str(os.getpid())}
    with subprocess.Popen(
        lanes.command("-n", 2, "program.py"),
        cwd=tmp_path,
        env={**lanes.environment(), "OMP_NUM_THREADS": "1", **mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 128 + signal.SIGPIPE
        assert process.stderr.read() == ""
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and marked(int(pid), mark)]


def marked(pid: int, mark: dict[str, str]) -> bool:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(f"{key}={word}".encode() in words for key, word in mark.items())


# How it ends.


@pytest.mark.slow
def test_a_worker_fails_and_the_others_are_given_time(tmp_path: Path) -> None:
    """First they are told, then asked by SIGTERM, then killed."""
    body = """
def asked(*_):
    say("asked to end")
    sys.exit(0)

begin()
for _ in range(3): step()
if rank == 0:
    raise ValueError("a mistake")
if rank == 1:
    signal.signal(signal.SIGTERM, asked)
    signal.pause()
if rank == 2:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()
try:
    steps_until("never")
except syncline.RunError as error:
    say("told:", error)
"""
    with running(tmp_path, body, "-n4") as run:
        assert run.ends() == 1, run.story()
        assert "[w3] told: w0 ended with exit code 1" in run.out, run.story()
        assert "[w1] asked to end" in run.out, run.story()
        assert run.out.count("] ValueError: a mistake") == 1, run.story()
        why = r"program-\w+\.py:\d+: ValueError: a mistake"
        assert re.fullmatch(rf"syncline: w0 ended with exit code 1 after \S+ s: {why}\n", run.err), run.story()


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_wrong_call_in_all_workers_is_told_once(whole: bool, tmp_path: Path) -> None:
    """With the place in the program. The traceback is in the logs, and shown if asked for."""
    options = ["-n3", "--log-dir", "logs", *(["--traceback"] if whole else [])]
    body = """
session = syncline.connect()
Path(f"in{session.rank}").touch()
while not all(there(f"in{number}") for number in range(3)):
    time.sleep(0.01)
session.clock()
"""
    with running(tmp_path, body, *options) as run:
        assert run.ends() == 2, run.story()
        why = r"program-\w+\.py:\d+: UsageError: session: has no tables; declare tables first: \S+ \S+"
        assert len(re.findall(r"\[w\d\] Traceback", run.out)) == whole, run.story()
        assert whole or re.fullmatch(rf"\[w\d\] {why}\n", run.out), run.story()
        gone = "(every worker is gone before the run began: )?"
        ended = rf"w\d ended with exit code 1 after \S+ s: {why}"
        assert re.fullmatch(rf"syncline: {gone}{ended} \(w\d, w\d: the same\)\n", run.err), run.story()
    for number in range(3):
        assert "Traceback" in (tmp_path / "logs" / f"w{number}.log").read_text()


NOT_FINITE = """
begin()
Path(f"in{rank}").touch()
while not all(there(f"in{number}") for number in range(3)):
    time.sleep(0.01)
step(np.nan)
"""


def test_updates_that_are_not_finite_in_all_workers_are_told_once(tmp_path: Path) -> None:
    """Though each error has the number of its worker."""
    with running(tmp_path, NOT_FINITE, "-n3") as run:
        assert run.ends() == 1, run.story()
        assert run.out.count("NotFinite") == 1, run.story()
        assert re.search(r"NotFinite: worker \d, iteration 0: .* \(w\d, w\d: the same\)\n$", run.err), run.story()


FORKED = """
begin()
step()
if os.fork() == 0:
    try:
        step()
    except syncline.UsageError as error:
        say("refused:", error)
    raise ValueError("in a copy")
os.wait()
step()
session.close()
say("sum", tables["b"][0])
"""


def test_a_forked_copy_of_a_worker_takes_no_part_and_shows_its_own_errors(tmp_path: Path) -> None:
    with running(tmp_path, FORKED, "-n2") as run:
        assert run.ends() == 0, run.story()
        assert run.out.count("refused: session: a process that the worker has forked cannot use") == 2, run.story()
        assert run.out.count("ValueError: in a copy") == 2, run.story()
        assert len(re.findall(r"\[w\d\] sum 2\.0", run.out)) == 2, run.story()


TOGETHER = """
Path(f"in{os.environ['SYNCLINE_WORKER']}").touch()
while not all(there(f"in{number}") for number in range(3)):
    time.sleep(0.01)
print("goes", end="\\r")
print("on")
"""
"""Workers that fail at the same time."""

ALIKE = {
    "before connect": ("raise ValueError('no data')", r"program-\w+\.py:\d+: ValueError: no data"),
    "in an import": ("import no_such_module", r"program-\w+\.py:\d+: ModuleNotFoundError: .* 'no_such_module'"),
    "after close": (
        "begin(w=3)\nstep()\nsession.close()\nraise ValueError('no data')",
        r"program-\w+\.py:\d+: ValueError: no data",
    ),
    "arguments": (
        "import argparse\nread = argparse.ArgumentParser()\nread.add_argument('data')\nread.parse_args()",
        r"program-\w+\.py: error: the following arguments are required: data",
    ),
    "ours": ("raise syncline.UsageError('lr', 'is wrong')", r"program-\w+\.py:\d+: UsageError: lr: is wrong"),
}


@pytest.mark.parametrize("what", samples.sampled(ALIKE, "in an import", "arguments"))
def test_a_failure_of_all_workers_without_a_session_is_told_once(what: str, tmp_path: Path) -> None:
    """And the logs have what each worker has printed."""
    body, why = ALIKE[what]
    with running(tmp_path, TOGETHER + body, "-n3", "--log-dir", "logs") as run:
        assert run.ends() == 1, run.story()
        for line in ("goes", "on"):
            assert len(re.findall(rf"\[w\d\] {line}\n", run.out)) == 3, run.story()
        assert len(re.findall("Traceback|usage: ", run.out)) == (what != "ours"), run.story()
        ended = rf"w\d ended with exit code [12] after \S+ s: {why}"
        gone = "(every worker is gone before the run began: )?"
        assert re.fullmatch(rf"syncline: {gone}{ended} \(w\d, w\d: the same\)\n", run.err), run.story()
    for number in range(3):
        assert len(re.findall("Traceback|usage: ", (tmp_path / "logs" / f"w{number}.log").read_text())) == 1


def test_workers_that_fail_differently_without_a_session_are_all_told(tmp_path: Path) -> None:
    with running(tmp_path, TOGETHER + "raise ValueError(os.environ['SYNCLINE_WORKER'])", "-n3") as run:
        assert run.ends() == 1, run.story()
        assert sorted(re.findall(r"\[w\d\] ValueError: \d", run.out)) == [
            f"[w{number}] ValueError: {number}" for number in range(3)
        ], run.story()
        assert "the same" not in run.err, run.story()


def test_a_worker_that_fails_before_it_connects_is_told_with_its_place(tmp_path: Path) -> None:
    body = "if os.environ['SYNCLINE_WORKER'] == '1': raise ValueError('no data')\nbegin()\nsteps_until('never')"
    with running(tmp_path, body, "-n3") as run:
        assert run.ends() == 1, run.story()
        why = r"program-\w+\.py:\d+: ValueError: no data"
        assert re.findall(r"\[w\d\] (?:Traceback|ValueError)", run.out) == ["[w1] Traceback", "[w1] ValueError"]
        assert re.fullmatch(rf"syncline: w1 ended with exit code 1 after \S+ s: {why}\n", run.err), run.story()


GOES_ON = """
import traceback
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
say("it goes on")
while not there("stop"): time.sleep(0.01)
say("again")
traceback.print_stack()
print("Traceback (most recent call last):", file=sys.stderr)
say("ends")
"""


def test_a_traceback_of_a_program_that_goes_on_is_shown_by_every_worker(tmp_path: Path) -> None:
    """While it runs, and also if it ends well right after the traceback."""
    with running(tmp_path, GOES_ON, "-n2") as run:
        run.hears(r"\[w0\] it goes on")
        run.hears(r"\[w1\] it goes on")
        run.touch("stop")
        assert run.ends() == 0, run.story()
        for number in range(2):
            own = [line.partition(" ")[2] for line in run.out.splitlines() if line.startswith(f"[w{number}] ")]
            assert own[0] == own[-2] == "Traceback (most recent call last):", run.story()
            assert "ZeroDivisionError: division by zero" in own, run.story()
            assert own[-1] == "ends", run.story()


def test_a_death_is_told_once(tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "-n3") as run:
        run.hears("under way", times=3)
        run.kill(run.worker(1))
        run.hears("w1 ended by signal 9")
        run.touch("stop")
        assert run.ends() == 0, run.story()
        assert re.fullmatch(r"syncline: \S+ s: w1 ended by signal 9 \(SIGKILL\)\n", run.err), run.story()


def test_a_worker_that_exits_with_code_0_without_leaving(tmp_path: Path) -> None:
    body = "begin()\nfor _ in range(3): step()\nif rank == 1: os._exit(0)\nsteps_until('stop')\nsession.close()"
    with running(tmp_path, body, "-n3") as run:
        run.hears("worker 1: its connection ended")
        run.touch("stop")
        assert run.ends() == 0, run.story()
        assert run.err.count("\n") == 1, run.story()


def test_all_workers_are_killed(tmp_path: Path) -> None:
    with running(tmp_path, STEADY) as run:
        run.hears("under way", times=2)
        for number in range(2):
            run.kill(run.worker(number))
        assert run.ends() == 1, run.story()
        assert run.err.splitlines()[-1].startswith("syncline: "), run.story()


def test_what_a_worker_asks_for_makes_no_sense(tmp_path: Path) -> None:
    """One of them asks for another model than the rest."""
    body = "begin(w=5 if os.environ['SYNCLINE_WORKER'] == '1' else 4)\nsteps_until('never')"
    (tmp_path / "report.json").write_text("of another run")
    with running(tmp_path, body, "-n3", "--report", "report.json", "--force") as run:
        assert run.ends() == 2, run.story()
        last = run.err.splitlines()[-1]
        assert re.fullmatch(r"syncline: worker \d: refused: .*trains another model.*", last), run.story()
    assert (tmp_path / "report.json").read_text() == "of another run"


CODECS = """
session = syncline.connect()
wish = {"codec": f"topk:0.{session.rank + 1}"} if session.rank < 2 else {}
tables = session.tables({"w": np.zeros(5000)}, **wish)
say("training")
steps_until("never")
"""
"""Workers 0 and 1 ask for different codecs; worker 2 takes whatever the run has."""


def test_workers_that_ask_for_different_codecs_do_not_train(tmp_path: Path) -> None:
    with running(tmp_path, CODECS, "-n3") as run:
        assert run.ends() == 2, run.story()
        last = run.err.splitlines()[-1]
        assert re.fullmatch(
            r"syncline: worker \d: refused: codec: worker 1 asks for topk:0.2, and the run has topk:0.1; .*", last
        ), run.story()
        assert "training" not in run.out


def test_what_the_command_line_says_settles_what_workers_ask_for(tmp_path: Path) -> None:
    with running(tmp_path, CODECS, "-n3", "--codec", "fp16") as run:
        run.hears("training", 3)
        run.touch("never")
        assert run.ends() == 0, run.story()


def test_a_program_that_never_connects(tmp_path: Path) -> None:
    with running(tmp_path, "say('hi')", "-n3", "--servers", "2") as run:
        assert run.ends() == 0, run.story()
        assert run.out.count("hi") == 3
        assert re.fullmatch(r"syncline: \S+ s: nothing was trained: .*\n", run.err), run.story()


def test_a_server_that_starts_when_the_run_is_over_says_nothing(tmp_path: Path) -> None:
    """Its launcher has said why the run is over; a server of another host says that it cannot reach the coordinator."""
    said = []
    for coordinator in ("@syncline-run-that-is-over", "127.0.0.1:9"):
        environment = lanes.environment() | {"SYNCLINE_RUN": "over", "SYNCLINE_COORDINATOR": coordinator}
        command = [sys.executable, "-m", "syncline.engines.server", "0"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 1
        said.append(done.stdout + done.stderr)
    assert said[0] == ""
    assert "cannot reach the coordinator at 127.0.0.1:9" in said[1]


# What children inherit, and where they listen.


def test_the_wiring_of_another_run_does_not_leak(tmp_path: Path) -> None:
    body = "begin()\nsay(sorted(name for name in os.environ if name.startswith('SYNCLINE_')))\nsession.close()"
    others = (
        *("WORKER", "RUN", "LANE", "LISTEN", "KEY_FILE", "TRACE", "INSECURE", "FOLDER", "FAILURES", "TOKEN"),
        "ALLOW_PARTS",
    )
    outside = {f"SYNCLINE_{name}": "7" for name in others}
    with running(tmp_path, body, "-n2", SYNCLINE_PATIENCE="20", SYNCLINE_COORDINATOR="@nobody", **outside) as run:
        assert run.ends() == 0, run.story()
        names = [
            f"SYNCLINE_{name}"
            for name in ("ALLOW_PARTS", "COORDINATOR", "FAILURES", "FOLDER", "PATIENCE", "RUN", "TOKEN", "WORKER")
        ]
        assert run.out.count(str(names)) == 2, run.story()


def test_an_invalid_patience(tmp_path: Path) -> None:
    assert refused(tmp_path, SYNCLINE_PATIENCE="abc").startswith("SYNCLINE_PATIENCE: 'abc'")


@pytest.mark.parametrize(
    ("options", "listeners"),
    [([], 0), pytest.param(["--lane", "tcp"], 3, marks=pytest.mark.slow), (["--listen", "127.0.0.1:0"], 3)],
    ids=["alone", "tcp", "listening"],
)
def test_tcp_is_opened_only_for_those_who_need_it(options: list[str], listeners: int, tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "--servers", "2", *options) as run:
        run.hears("under way", times=2)
        assert len(tcp_listeners(run)) == listeners
        run.touch("stop")
        assert run.ends() == 0, run.story()


def tcp_listeners(run: Run) -> set[str]:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return run.sockets() & {fields[9] for fields in map(str.split, lines) if fields[3] == "0A"}


def test_workers_share_the_cores_and_the_user_is_told_once(tmp_path: Path) -> None:
    body = "say('threads', os.environ.get('OMP_NUM_THREADS'))"
    (tmp_path / "program.py").write_text("import os\nprint('threads', os.environ.get('OMP_NUM_THREADS'))")
    environment = {key: word for key, word in lanes.environment().items() if key != "OMP_NUM_THREADS"}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    first, second = (
        subprocess.run(
            lanes.command("-n", 2, "program.py"),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        for _ in range(2)
    )
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    for done in (first, second):
        assert done.stdout.count(f"threads {share}\n") == 2
    assert first.stderr.startswith(f"syncline: OMP_NUM_THREADS={share} for each worker")
    assert "OMP_NUM_THREADS" not in second.stderr
    with running(tmp_path, body, OMP_NUM_THREADS="7") as run:
        assert run.ends() == 0, run.story()
        assert run.out.count("threads 7\n") == 2
        assert "OMP_NUM_THREADS" not in run.err


# Output.


def test_a_bar_and_lines_without_flush_are_seen_at_once(tmp_path: Path) -> None:
    body = "print('not flushed')\nprint('\\r 10%\\r 20%', end='')\n" + IDLE
    with running(tmp_path, body, "-n1") as run:
        run.hears(r"\[w0\] not flushed\n\[w0\]  10%\n\[w0\]  20%up\n")
        run.touch("stop")
        assert run.ends() == 0, run.story()


def test_each_process_has_a_log(tmp_path: Path) -> None:
    logs = tmp_path / "some" / "logs"
    with running(tmp_path, "say('a line')\nos.write(2, b'no newline')", "-n2", "--log-dir", str(logs)) as run:
        assert run.ends() == 0, run.story()
        assert run.out.count("] a line\n") == 2
    assert sorted(each.name for each in logs.iterdir()) == ["coordinator.log", "server0.log", "w0.log", "w1.log"]
    assert (logs / "w1.log").read_text() == "syncline: output of w1\na line\nno newline"


# Those who join.


@pytest.mark.slow
def test_a_failure_of_those_who_have_joined_is_their_own(tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "-n2", "--listen", "localhost:0") as run:
        run.hears("under way", times=2)
        address = run.hears(r"--join (\S+) -n 1 PROGRAM")[1]
        port = address.rpartition(":")[2]
        body = "begin()\nfor _ in range(3): step()\nif there('first'): raise ValueError('a mistake')\n"
        body += "Path('first').touch()\nsay('in')\nsteps_until('stop')\nsession.close()"
        with running(tmp_path, body, "-n1", "--join", f"localhost:{port}") as well:
            well.hears("in")
            with running(tmp_path, body, "-n1", "--join", f"localhost:{port}") as other:
                assert other.ends() == 1, other.story()
                assert re.fullmatch(r"syncline: w3 ended with exit code 1 after .*", other.err.splitlines()[-1])
            run.touch("stop")
            assert well.ends() == 0, well.story()
            assert run.ends() == 0, run.story()


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_ipv6_and_no_key(tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "--listen", "[::1]:0", "--insecure") as run:
        run.hears("under way", times=2)
        words = run.hears(r"syncline run --join '(\[::1\]:\d+)' --insecure -n 1 PROGRAM")
        with running(tmp_path, STEADY.replace("begin()", "begin()\nsay('in')"), "-n1", "--join", words[1]) as other:
            other.hears("in")
            run.touch("stop")
            assert other.ends() == 0, other.story()
            assert run.ends() == 0, run.story()


NOT_WITH_JOIN = {
    "--report": "report.json",
    "--trace": ".",
    "--config": "run.toml",
    "--seed": "3",
    "--reply-codec": "fp16",
}


@pytest.mark.parametrize("option", NOT_WITH_JOIN)
def test_settings_of_the_joined_run_are_refused(option: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("cluster.workers = 2")
    told = refused(tmp_path, "--join", "127.0.0.1:7070", option, NOT_WITH_JOIN[option])
    assert told == f"{option}: is a setting of the run that you join; leave it out with --join\n"


@pytest.mark.parametrize("option", ["--join", "--listen"])
def test_an_unknown_host_name(option: str, tmp_path: Path) -> None:
    assert refused(tmp_path, option, "nowhere.invalid:7070").startswith(f"{option}: cannot look up the host name")


# What is checked before anything starts.


def test_a_failed_listen_leaves_no_key(tmp_path: Path) -> None:
    assert refused(tmp_path, "--listen", "192.0.2.7:0", "--key-file", "key").startswith("--listen: ")
    assert not (tmp_path / "key").exists()


@pytest.mark.parametrize("option", ["--trace", "--log-dir"])
def test_a_directory_that_takes_no_files(option: str, tmp_path: Path) -> None:
    assert refused(tmp_path, option, "/proc/self").startswith(f"{option}: cannot write into '/proc/self'")
    (tmp_path / "file").touch()
    assert refused(tmp_path, option, "file").startswith(f"{option}: ")


PROGRAMS = {
    "directory": (None, "is a directory"),
    "missing": ("", "there is no file"),
    "binary": (b"\x7fELF\xff\xfe\0\0", "is not Python"),
    "wrong": (b"x = (1,\n", "is not Python, line 1: "),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_a_program_that_cannot_be_run(case: str, tmp_path: Path) -> None:
    content, problem = PROGRAMS[case]
    program = tmp_path / "program.py"
    if content is None:
        program.mkdir()
    elif isinstance(content, bytes):
        program.write_bytes(content)
    said = commands.refused(tmp_path, "run", "program.py")
    assert said.startswith("PROGRAM: 'program.py' ") or case == "missing"
    assert problem in said


def command(directory: Path, *words: object) -> subprocess.CompletedProcess[str]:
    environment = {**lanes.environment(), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        lanes.command(*words), cwd=directory, env=environment, capture_output=True, text=True, timeout=60
    )


# Modules.


def test_a_module_and_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "part.py").write_text("import sys\nprint(__name__, *sys.argv[1:])")
    done = command(tmp_path, "-n", 1, "-m", "package.part", "--sync", "x")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[w0] __main__ --sync x\n"
    for name, problem in {"package": "a package without", "package.other": "no module", "nothing": "no module"}.items():
        said = commands.refused(tmp_path, "run", "-m", name)
        assert said.startswith("-m: ")
        assert problem in said


# The experiment file.

FILE = """
seed = 7
iterations = 50

[cluster]
workers = 3
compute = { mean = 0.1 }

[network]
bandwidth = "1Gbit"

[strategy]
servers = 2
sync = "ssp:3"
bucket = "8KiB"
"""

SETTINGS = "begin()\nsay(session.size, *(session.settings[key] for key in ('sync', 'seed', 'bucket')))\nsession.close()"


def test_the_file_of_the_simulator(tmp_path: Path) -> None:
    """The command line beats it, and it beats the program."""
    (tmp_path / "run.toml").write_text(FILE)
    body = SETTINGS.replace("begin()", "session = syncline.connect()\nsession.tables({'w': np.zeros(9)}, sync='asp')")
    with running(tmp_path, body, "--config", "run.toml", "--seed", "9", "--report", "report.json") as run:
        assert run.ends() == 0, run.story()
        assert run.out.count("] 3 ssp:3 9 8KiB\n") == 3, run.story()
        assert (
            run.err
            == "syncline: run.toml: ignored (used only by the simulator): iterations, network, cluster.compute\n"
        )
    report = json.loads((tmp_path / "report.json").read_text())
    assert len(report["servers"]) == 2
    assert report["settings"] == {"sync": "ssp:3", "seed": "9", "bucket": "8KiB"}


BAD_FILES = {
    "strategy.sync: ": '[cluster]\nworkers = 2\n[strategy]\nsync = "sometimes"',
    "strategy.kind: ": '[cluster]\nworkers = 2\n[strategy]\nkind = "forest"',
    "strategy.sinc: ": '[cluster]\nworkers = 2\n[strategy]\nsinc = "bsp"',
    "strategy.servers: ": "[cluster]\nworkers = 2\n[strategy]\nservers = 0",
    "cluster.workers: must be at least 1": "[cluster]\nworkers = 0",
    "cluster.workers: must be a whole number": '[cluster]\nworkers = "two"',
    "cluster: is missing": "seed = 1",
    "seed: ": "seed = -1\n[cluster]\nworkers = 2",
    "run.toml: is not valid TOML": "[",
}


@pytest.mark.parametrize("named", BAD_FILES)
def test_a_bad_file(named: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(BAD_FILES[named])
    assert refused(tmp_path, "--config", "run.toml").startswith(named)


# Without starting anything.


def test_a_dry_run(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(FILE)
    options = ["--config", "run.toml", "--release", "soft", "--listen", "0.0.0.0:0", "--key-file", "key"]
    (tmp_path / "program.py").write_text("raise SystemExit(3)")
    done = commands.in_this_process(tmp_path, "run", "--dry-run", *options, "--log-dir", "logs", "program.py")
    assert done.code == 0, done.story
    rows = [line.split() for line in done.errors.splitlines()]
    for row in ("workers 3 run.toml", "servers 2 run.toml", "sync ssp:3 run.toml", "release soft command line"):
        assert row.split() in rows, done.story
    assert ["gate", "always", "default"] in rows
    assert ["bucket", "8KiB", "run.toml"] in rows
    assert "would start a coordinator, 2 x server, 3 x " in done.errors
    assert done.output == ""
    assert not (tmp_path / "key").exists()
    assert not (tmp_path / "logs").exists()
    assert refused(tmp_path, "--dry-run", "--sync", "sometimes").startswith("sync: ")


def test_a_dry_run_says_what_a_rule_costs(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise SystemExit(3)")
    options = ["-n", "3", "--sync", "asp", "--rule", "gap-aware:0.1"]
    done = commands.in_this_process(tmp_path, "run", "--dry-run", *options, "program.py")
    assert re.search(r"^bucket +chosen when training starts +default", done.errors, re.MULTILINE), done.story
    assert "rule gap-aware:0.1 keeps its state on the servers: 2 x the model\n" in done.errors, done.story
    assert "a copy of the parameters for each worker, 3 x the model\n" in done.errors, done.story
    assert refused(tmp_path, "--rule", "gap-aware:0.1").startswith("sync: the rule 'gap-aware:0.1' needs to know")


def test_no_colour_where_none_is_wanted(tmp_path: Path) -> None:
    for more in ({}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}):
        with running(tmp_path, "", "--dry-run", **more) as run:
            assert run.ends() == 0, run.story()
            assert not re.search(r"\x1b\[[0-9;]*3\d", run.err), run.story()


def test_a_limit_of_open_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import syncline\nsyncline.connect()\n")
    done = subprocess.run(
        [sys.executable, "-m", "syncline", "run", "-n", "8", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**lanes.environment(), **QUIET},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14)),
    )
    assert done.returncode == 1, done.stderr
    assert "too many open files: a process may have 14; raise the limit first" in done.stderr
    assert "Traceback" not in done.stderr
