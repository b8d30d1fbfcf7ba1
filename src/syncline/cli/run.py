"""`syncline run`: start a program as several workers, with servers beside them."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO

import msgspec
import typer

from syncline.cli.output import check_outputs, whole_text
from syncline.engines.launcher import Launcher
from syncline.engines.plan import Plan, checked
from syncline.engines.wiring import Wiring
from syncline.errors import RunError, UsageError


def run(
    command: Annotated[list[str], typer.Argument(metavar="PROGRAM [ARGS]...", help="A Python file and its arguments.")],
    workers: Annotated[int, typer.Option("--workers", "-n", help="How many workers to start here.")] = 2,
    servers: Annotated[int, typer.Option(help="How many servers hold the model.")] = 1,
    sync: Annotated[
        list[str] | None, typer.Option(help="bsp, asp, ssp:3, ...; once for all servers, or once each.")
    ] = None,
    release: Annotated[str | None, typer.Option(help="lazy or soft.")] = None,
    mode: Annotated[str | None, typer.Option(help="Who optimises: gradients, changes or rule.")] = None,
    rule: Annotated[str | None, typer.Option(help="The servers' rule, e.g. sgd:0.1; selects mode rule.")] = None,
    gate: Annotated[str | None, typer.Option(help="always, or every:push=2,fetch=2.")] = None,
    placement: Annotated[str | None, typer.Option(help="elastic or roundrobin.")] = None,
    bucket: Annotated[str | None, typer.Option(help="The unit of transmission, e.g. 1MiB.")] = None,
    seed: Annotated[int | None, typer.Option(help="For everything that is random.")] = None,
    lane: Annotated[str | None, typer.Option(help="shm or tcp; left out: whichever fits the peer.")] = None,
    listen: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Let workers of other hosts join here.")] = None,
    join: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Join the run that listens there.")] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="The key; made if --listen needs one and it is not there.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option(help="Talk to other hosts without a key: anybody can read and join.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Have every server write its messages there.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures as JSON.")] = None,
) -> None:
    """Start a program as several workers that train one model, with servers beside them."""
    words = {"release": release, "mode": mode, "rule": rule, "gate": gate, "placement": placement, "bucket": bucket}
    settings = {key: word for key, word in words.items() if word is not None}
    if sync:
        settings["sync"] = " ".join(sync)
    if seed is not None:
        settings["seed"] = str(seed)
    check_outputs([], {"--report": report})
    if trace is not None and not trace.is_dir():
        raise UsageError("--trace", f"there is no directory {str(trace)!r}")
    wiring = Wiring(
        lane=lane or "",
        key_file=str(key_file.resolve()) if key_file else "",
        insecure="1" if insecure else "",
        trace=str(trace.resolve()) if trace else "",
    )
    plan = checked(Plan(_program(command), workers, servers, settings, wiring), listen, join)
    with whole_text(report, "--report") as file:
        launcher = Launcher(plan, _line)
        code = _run(launcher, listen, key_file)
        if file is not None and code == 0:
            json.dump(_report(launcher, settings), file, indent=2)
            file.write("\n")
    if code:
        raise typer.Exit(code)


def _program(command: list[str]) -> list[str]:
    if not Path(command[0]).is_file():
        raise UsageError("PROGRAM", f"there is no file {command[0]!r}")
    return [sys.executable, *command]


def _line(name: str, text: str) -> None:
    """What the run itself says goes to stderr, what its programs say to stdout."""
    print(f"[{name}] {text}" if name != "syncline" else f"syncline: {text}", flush=True, file=_stream(name))


def _stream(name: str) -> TextIO:
    return sys.stdout if name.startswith("w") else sys.stderr


def _run(launcher: Launcher, listen: str | None, key_file: Path | None) -> int:
    """Start everything, let it end, and leave nothing behind, whatever happens."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        launcher.start()
        if listen is not None:
            key = f" --key-file {key_file}" if key_file else ""
            _line("syncline", f"more workers can join: syncline run --join {launcher.reachable()}{key} -n 1 PROGRAM")
        code = launcher.wait()
        if launcher.aborted is not None and code == 1:
            raise RunError(launcher.aborted)
        return code
    except KeyboardInterrupt as interrupt:
        launcher.interrupt(*interrupt.args)
        raise
    finally:
        launcher.stop()


def _terminated(number: int, _: object) -> None:
    raise KeyboardInterrupt(number)


def _report(launcher: Launcher, settings: dict[str, str]) -> dict[str, Any]:
    servers = [msgspec.structs.asdict(each) for each in sorted(launcher.figures, key=lambda each: each.server)]
    sums = ("updates", "dropped_updates", "delayed_pulls", "bytes_pushed", "bytes_pulled")
    return {
        "schema": 1,
        "settings": settings,
        **{key: sum(each[key] for each in servers) for key in sums},
        "train_progress": min((each["train_progress"] for each in servers), default=0),
        "servers": servers,
        "workers": [{"worker": worker.name, "exit_code": worker.code} for worker in launcher.workers],
    }
