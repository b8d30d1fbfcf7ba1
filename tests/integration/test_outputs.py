"""Output files: they overwrite nothing that they must not, and a failure to write one does not cost the run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from secrets import token_hex

import numpy as np
import pytest

import lanes
from commands import in_this_process, refused
from engine import running
from syncline.cli.output import INCOMPLETE
from syncline.cli.output_checks import CURVE, LOG, PICTURE, REPORT, TRACE, OutputFile, check_outputs
from syncline.engines.message_trace import HEADER as SERVER_HEADER
from syncline.errors import UsageError
from syncline.sim.trace import HEADER

EXPERIMENT = "iterations = 3\n[cluster]\nworkers = 2\n[model]\nparameters = 100\n"
PROGRAM = "print('hello')\n"
STEPS = "begin()\nfor _ in range(20): step()\nsay('done', tables['w'][0])\nsession.close()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x.toml").write_text(EXPERIMENT)
    (tmp_path / "victim.py").write_text(PROGRAM)
    (tmp_path / "mine.txt").write_text("my notes\n")
    (tmp_path / "soft").symlink_to("victim.py")
    (tmp_path / "hard").hardlink_to(tmp_path / "victim.py")
    (tmp_path / "soft.toml").symlink_to("x.toml")
    for name in ("pkg/__init__.py", "pkg/__main__.py", "pkg/sub/__init__.py", "pkg/sub/job.py", "pkg/sub/data.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(PROGRAM)
    (tmp_path / "logs").mkdir()
    images, labels = np.zeros((200, 28, 28), np.uint8), np.zeros(200, np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images, x_test=images, y_train=labels, y_test=labels)
    return tmp_path


# What an output must not overwrite.

RUN = ("run", "-n", "1")
OVERWRITES: dict[str, tuple[tuple[str, ...], str]] = {
    "its program": ((*RUN, "--report", "victim.py", "victim.py"), "--report: 'victim.py' is an input"),
    "its program, by a link": ((*RUN, "--report", "soft", "victim.py"), "--report: 'soft' is an input"),
    "its program, by a hard link": ((*RUN, "--report", "hard", "victim.py"), "--report: 'hard' is an input"),
    "its program, by another path": ((*RUN, "--report", "logs/../victim.py", "victim.py"), "--report: .* an input"),
    "its program, a module": ((*RUN, "--report", "victim.py", "-m", "victim"), "--report: 'victim.py' is an input"),
    "its program, a package": ((*RUN, "--report", "pkg/__main__.py", "-m", "pkg"), "--report: .* is an input"),
    "the package of its program": ((*RUN, "--report", "pkg/__init__.py", "-m", "pkg"), "--report: .* is an input"),
    "a module beside its program": ((*RUN, "--report", "pkg/sub/data.py", "-m", "pkg.sub.job"), "--report: .*an input"),
    "the package above its program": ((*RUN, "--report", "pkg/__init__.py", "-m", "pkg.sub.job"), "--report: .*input"),
    "its config": ((*RUN, "--config", "x.toml", "--report", "x.toml", "victim.py"), "--report: 'x.toml' is an input"),
    "its key file": ((*RUN, "--key-file", "mine.txt", "--report", "mine.txt", "victim.py"), "--report: .* an input"),
    "a log": ((*RUN, "--log-dir", "logs", "--report", "logs/w0.log", "victim.py"), "--report: .*a file of --log-dir"),
    "a trace": ((*RUN, "--trace", "logs", "--report", "logs/server0.csv", "victim.py"), "--report: .*file of --trace"),
    "its experiment": (("simulate", "x.toml", "--report", "soft.toml"), "--report: 'soft.toml' is an input"),
    "another output": (("simulate", "x.toml", "--report", "new", "--trace", "new"), "--trace: 'new' is the output of"),
    "another output, by a path": (("simulate", "x.toml", "--report", "new", "--trace", "logs/../new"), "--trace: .*is"),
    "its data": (("train", "mnist-mlp", "--data", ".", "--report", "mnist.npz"), "--report: 'mnist.npz' is an input"),
}  # fmt: skip
"""Never, also not with --force."""

STRANGERS: dict[str, tuple[tuple[str, ...], str]] = {
    "run": ((*RUN, "--report", "mine.txt", "victim.py"), "--report: 'mine.txt' exists"),
    "simulate, report": (("simulate", "x.toml", "--report", "mine.txt"), "--report: 'mine.txt' exists"),
    "simulate, trace": (("simulate", "x.toml", "--trace", "mine.txt"), "--trace: 'mine.txt' exists"),
    "simulate, plot": (("simulate", "x.toml", "--plot", "mine.png"), "--plot: 'mine.png' exists"),
    "plan, report": (("plan", "resnet56", "--report", "mine.txt"), "--report: 'mine.txt' exists"),
    "plan, plot": (("plan", "resnet56", "--plot", "mine.png"), "--plot: 'mine.png' exists"),
    "train": (("train", "--report", "mine.txt"), "--report: 'mine.txt' exists"),
    "bench": (("bench", "--report", "mine.txt"), "--report: 'mine.txt' exists"),
    "reproduce": (("reproduce", "fluent-dpr", "--out", "out"), "--out: 'out/fluent-dpr.json' exists"),
    "log": ((*RUN, "--log-dir", "logs", "victim.py"), "--log-dir: 'logs/w0.log' exists"),
    "server trace": ((*RUN, "--trace", "logs", "victim.py"), "--trace: 'logs/server0.named.csv' exists"),
}


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
@pytest.mark.parametrize("case", OVERWRITES)
def test_no_output_overwrites(case: str, force: list[str], folder: Path) -> None:
    words, pattern = OVERWRITES[case]
    before = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    assert_matches(pattern, refused(folder, words[0], *force, *words[1:]))
    after = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file() and path.suffix != ".pyc"}
    assert after == before


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_no_output_overwrites_the_users_own_parts(force: list[str], folder: Path) -> None:
    """The name differs in every test, because a module is imported once in this process."""
    module = f"own_{token_hex(4)}"
    (folder / "own.toml").write_text(EXPERIMENT + f"[strategy]\nsync = '{module}.Patient'\n")
    (folder / f"{module}.py").write_text("from syncline import Bsp as Patient\n")
    said = refused(folder, "simulate", "own.toml", "--report", f"{module}.py", *force)
    assert said.startswith(f"--report: '{module}.py' is an input")


NAMED: dict[str, tuple[str, ...]] = {
    "run": (*RUN, "--sync", "MODULE.Patient", "--report", "MODULE.py", "victim.py"),
    "run, in its config": (*RUN, "--config", "own.toml", "--report", "MODULE.py", "victim.py"),
    "run, allowed": (*RUN, "--allow-parts", "MODULE", "--report", "MODULE.py", "victim.py"),
    "run, a package allowed": (*RUN, "--allow-parts", "pkg.sub.job", "--report", "pkg/sub/data.py", "victim.py"),
    "simulate": ("simulate", "x.toml", "--sync", "MODULE.Patient", "--trace", "MODULE.py"),
    "train": ("train", "--sync", "MODULE.Patient", "--report", "MODULE.py"),
}
"""Commands that name the user's own module only by an option."""


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
@pytest.mark.parametrize("case", NAMED)
def test_no_output_overwrites_a_module_that_an_option_names(case: str, force: list[str], folder: Path) -> None:
    module = f"own_{token_hex(4)}"
    (folder / "own.toml").write_text(EXPERIMENT + f"[strategy]\nsync = '{module}.Patient'\n")
    (folder / f"{module}.py").write_text("from syncline import Bsp as Patient\n")
    words = [word.replace("MODULE", module) for word in NAMED[case]]
    assert_matches(r"--(report|trace): '\S+' is an input", refused(folder, words[0], *force, *words[1:]))


def test_a_module_that_is_allowed_and_not_there_protects_nothing(folder: Path) -> None:
    done = in_this_process(folder, *RUN, "--allow-parts", "no_such.module", "--report", "new", "--dry-run", "victim.py")
    assert done.code == 0, done.story


@pytest.mark.parametrize("case", STRANGERS)
def test_a_strangers_file_is_overwritten_only_by_force(case: str, folder: Path) -> None:
    words, pattern = STRANGERS[case]
    (folder / "out").mkdir()
    for name in ("mine.png", "out/fluent-dpr.json", "logs/w0.log", "logs/server0.named.csv"):
        (folder / name).write_text("not Syncline's")
    said = refused(folder, *words)
    assert_matches(pattern, said)
    assert "--force" in said


def test_force_overwrites(folder: Path) -> None:
    done = in_this_process(folder, "simulate", "x.toml", "-q", "--report", "mine.txt", "--force")
    assert done.code == 0, done.story
    assert json.loads((folder / "mine.txt").read_text())["schema"] == 1


def test_a_command_runs_again_with_the_same_outputs(folder: Path) -> None:
    """What Syncline has written is recognised, by its content and not by its name."""
    outputs = ["--report", "report", "--trace", "trace", "--curve", "curve", "--plot", "plot.png"]
    for plot in ("plot.png", "plot.svg", "plot.pdf"):
        for _ in range(2):
            done = in_this_process(folder, "simulate", "x.toml", "-q", *outputs[:-1], plot)
            assert done.code == 0, done.story
    assert "'plot.png' exists" in refused(folder, "simulate", "x.toml", "--report", "plot.png"), "it is another kind"
    (folder / "empty").touch()
    assert in_this_process(folder, "simulate", "x.toml", "-q", "--report", "empty").code == 0


FOREIGN = [
    (REPORT, b'{"schema": 1, "rows": [1, 2]}'),
    (REPORT, b'{\n  "schema": 1,\n  "settings": {"theme": "dark"}\n}\n'),
    (REPORT, b'{"title": "about syncline", "made_by": "syncline", "schema": 1}'),
    (TRACE, b"time,from,to,kind,progress,bytes,price\n"),
    (CURVE, b"seconds,iterations,loss,accuracy,bytes_pushed,bytes_pulled,name\n"),
    (PICTURE, b"notes: this picture was made by syncline"),
    (PICTURE, b"\x89PNG\r\n\x1a\n\0\0\0\x20tEXtComment\0not made by syncline"),
    (LOG, b"syncline: output of the whole week, as I remember it\n"),
]


@pytest.mark.parametrize(("mark", "content"), FOREIGN, ids=range(len(FOREIGN)))
def test_a_file_that_only_looks_like_ours_is_a_strangers(mark: re.Pattern[bytes], content: bytes, folder: Path) -> None:
    path = folder / "theirs"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="Syncline has not written it"):
        check_outputs([], [OutputFile("--out", path, mark)], force=False)


FORMER = [
    b'{\n  "schema": 1,\n  "virtual_seconds": 0.3,\n  "train_progress": 3\n}\n',
    b'{\n  "schema": 1,\n  "settings": {\n    "sync": "bsp"\n  },\n  "train_progress": 3\n}\n',
    b'{\n  "schema": 1,\n  "engine": "local",\n  "images_a_round": 64\n}\n',
    b'{\n  "schema": 1,\n  "rows": [\n    {\n      "system": "syncline-shm"\n    }\n  ]\n}\n',
    b'{\n "schema": 1,\n "figure": "fluent-dpr",\n "paper": "FluentPS",\n "claim": ""\n}\n',
]


@pytest.mark.parametrize("content", FORMER)
def test_reports_without_the_mark_that_are_ours(content: bytes) -> None:
    assert REPORT.match(content)


def test_the_traces_of_servers_and_of_the_simulator_are_recognised() -> None:
    assert TRACE.match(HEADER.encode())
    assert TRACE.match(SERVER_HEADER.encode())


def assert_matches(pattern: str, said: str) -> None:
    assert re.match(pattern, said), said


# Outputs that cannot be written. /dev/full is a disk that is full.


@pytest.mark.parametrize("option", ["--report", "--trace", "--plot"])
def test_a_simulation_on_a_full_disk(option: str, folder: Path) -> None:
    (folder / "full.png").symlink_to("/dev/full")
    others = {"--report": "r.json", "--trace": "t.csv", "--plot": "p.png"}
    words = [word for each, path in {**others, option: "full.png"}.items() for word in (each, path)]
    done = in_this_process(folder, "simulate", "x.toml", "-q", *words)
    assert done.code == INCOMPLETE, done.story
    said = f"syncline: {option}: cannot write 'full.png': No space left on device; everything else is kept\n"
    assert done.errors == said
    for other, path in others.items():
        assert (folder / path).exists() == (other != option)


def test_the_results_are_shown_though_the_report_is_lost(folder: Path) -> None:
    done = in_this_process(folder, "simulate", "x.toml", "--report", "/dev/full")
    assert done.code == INCOMPLETE, done.story
    assert "virtual_seconds" in done.errors
    assert done.errors.count("No space left") == 1


@pytest.mark.parametrize("option", ["--report", "--trace", "--curve"])
def test_an_output_goes_into_a_pipe(option: str, folder: Path) -> None:
    command = [sys.executable, "-m", "syncline", "simulate", "x.toml", "-q", option, "/dev/stdout"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first = {"--report": "{", "--trace": HEADER.strip(), "--curve": "seconds,iterations"}[option]
    assert done.stdout.startswith(first), done.stdout


def test_a_failed_simulation_is_not_hidden_by_a_full_disk(folder: Path) -> None:
    (folder / "x.toml").write_text(
        EXPERIMENT.replace("parameters = 100", 'recipe = "digits-mlp"\noptimizer = "sgd:1e30"')
    )
    done = in_this_process(folder, "simulate", "x.toml", "-q", "--report", "/dev/full")
    assert done.code == 1, done.story


def test_a_run_whose_outputs_meet_a_full_disk(tmp_path: Path) -> None:
    """The trace of a server, a worker's log and the report: three lines, and the run trains to its end."""
    (tmp_path / "logs").mkdir()
    for name in ("logs/w0.log", "logs/server0.csv"):
        (tmp_path / name).symlink_to("/dev/full")
    with running(tmp_path, STEPS, "--trace", "logs", "--log-dir", "logs", "--report", "/dev/full") as run:
        assert run.ends() == INCOMPLETE, run.story()
        assert run.out.count("done 20.0") == 2, run.story()
        for option, path in (("--trace", "server0.csv"), ("--log-dir", "w0.log"), ("--report", "/dev/full")):
            lines = [line for line in run.err.splitlines() if option in line]
            assert len(lines) == 1, run.story()
            assert path in lines[0]
            assert "No space left on device" in lines[0]
        assert "Traceback" not in run.err
        assert "done 20.0" in (tmp_path / "logs" / "w1.log").read_text()


def test_a_run_whose_stdout_is_full(tmp_path: Path) -> None:
    done = run_into(tmp_path, STEPS_ALONE, stdout="/dev/full")
    assert done.returncode == INCOMPLETE, done.stderr
    assert "stdout: No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert (tmp_path / "trained").exists()


def test_a_run_whose_stderr_is_full(tmp_path: Path) -> None:
    done = run_into(tmp_path, STEPS_ALONE, stderr="/dev/full")
    assert done.returncode == 0, done.stdout
    assert "[w0] trained" in done.stdout


def test_a_run_without_stdout_and_stderr(tmp_path: Path) -> None:
    """`>&- 2>&-`: no file gets the numbers of the streams that are missing."""
    (tmp_path / "program.py").write_text(STEPS_ALONE)
    words = " ".join(lanes.command("-n", 1, "--report", "r.json", "program.py"))
    done = subprocess.run(["sh", "-c", f"{words} >&- 2>&-"], cwd=tmp_path, env=environment(), check=False)
    assert done.returncode == 0
    assert (tmp_path / "trained").exists()
    assert json.loads((tmp_path / "r.json").read_text())["updates"] > 0


@pytest.mark.parametrize("words", [["--help"], ["simulate", "x.toml"], ["simulate", "x.toml", "--sync", "bps"]])
def test_a_command_whose_output_is_full(words: list[str], folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "syncline", *words]
        done = subprocess.run(command, cwd=folder, env=environment(), stdout=full, stderr=full, check=False)
    assert done.returncode == (2 if "bps" in words else INCOMPLETE)


STEPS_ALONE = """
import pathlib, numpy as np, syncline
session = syncline.connect()
session.tables({"w": np.zeros(10)})
for _ in range(20):
    session.update("w", np.ones(10))
    session.clock()
    session.sync()
    print("step", flush=True)
print("trained", flush=True)
session.close()
pathlib.Path("trained").touch()
"""


def environment() -> dict[str, str]:
    return {**lanes.environment(), "OMP_NUM_THREADS": "1"}


def run_into(folder: Path, program: str, stdout: str = "", stderr: str = "") -> subprocess.CompletedProcess[str]:
    """`syncline run` with one worker, whose streams go to these files; the others are kept."""
    (folder / "program.py").write_text(program)
    streams = {
        key: os.open(path, os.O_WRONLY) if path else subprocess.PIPE
        for key, path in (("stdout", stdout), ("stderr", stderr))
    }
    try:
        return subprocess.run(
            lanes.command("-n", 1, "program.py"), cwd=folder, env=environment(), text=True, check=False, **streams
        )
    finally:
        for stream in streams.values():
            if stream != subprocess.PIPE:
                os.close(stream)


def test_tensorboard_on_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The package need not be installed here: what counts is an OSError from its writer."""
    from syncline.cli.output import SideOutputs
    from syncline.cli.scalars import Scalars
    from syncline.engines.net.control import Pulse

    class Writer:
        def __init__(self, folder: str) -> None: ...

        def add_scalar(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

        close = add_scalar

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    outputs = SideOutputs()
    scalars = Scalars(tmp_path, outputs.lose)
    for _ in range(3):
        scalars.beat(Pulse(1, loss=0.5, accuracy=0.5))
    scalars.close()
    assert outputs.lost
