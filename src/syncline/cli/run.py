"""`syncline run`: start a program as several workers, with servers beside them."""

from __future__ import annotations

import json
import os
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from syncline.cli import strategy_options as strategy
from syncline.cli.config import Config, read_config
from syncline.cli.launching import run_to_end
from syncline.cli.output import check_directory, check_outputs, whole_text
from syncline.cli.program import command_of
from syncline.cli.speaker import Speaker, quiet_end
from syncline.engines.launch.launcher import Launcher
from syncline.engines.launch.plan import COMMAND_LINE, Plan, checked
from syncline.engines.net.wiring import Wiring
from syncline.engines.operator import name_of
from syncline.engines.process_state import patience
from syncline.errors import UsageError


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROGRAM [ARGS]...",
            help="A Python file, or with -m a module; its arguments. Not needed with -n 0.",
            show_default=False,
        ),
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module, as in python -m.")] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", "-n", help="How many workers to start here. Default: 2.")
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option(help="How many servers to start here, to hold the model. Default: 1; with --join, 0."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="An experiment file: its strategy, seed and workers count here."),
    ] = None,
    sync: strategy.Sync = None,
    release: strategy.Release = None,
    mode: strategy.Mode = None,
    rule: strategy.Rule = None,
    gate: strategy.Gate = None,
    codec: strategy.Codec = None,
    reply_codec: strategy.ReplyCodec = None,
    on_nan: Annotated[str | None, typer.Option(help="An update with NaN: stop the run, or skip that step.")] = None,
    placement: strategy.Placement = None,
    bucket: Annotated[str | None, typer.Option(help="The unit of transmission, e.g. 1MiB.")] = None,
    seed: strategy.Seed = None,
    lane: Annotated[str | None, typer.Option(help="shm or tcp; left out: whichever fits the peer.")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Let workers and servers of other hosts join here.")
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Join the run that listens there, with -n workers and --servers servers."),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="The key; made if --listen needs one and it is not there.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option(help="Talk to other hosts without a key: anybody can read and join.")
    ] = False,
    restarts: Annotated[
        int,
        typer.Option(metavar="N", help="Start a worker that dies or fails again, up to N times in all."),
    ] = 0,
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Have every server write its messages there.")
    ] = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the output of each process there, in w0.log, server0.log ..."),
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures as JSON.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say how the run can be changed while it trains: syncline tell.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and show what would be started; start nothing.")
    ] = False,
) -> None:
    """Start a program as several workers that train one model, with servers beside them.

    Exit codes: 0 done; 1 a worker failed or a server was lost; 2 the request makes no sense; 130 interrupted.
    """
    words = strategy.words(
        sync=sync, seed=seed, release=release, mode=mode, rule=rule, gate=gate, codec=codec, reply_codec=reply_codec,
        on_nan=on_nan, placement=placement, bucket=bucket,
    )  # fmt: skip
    if join is not None:
        _refuse_with_join({"--report": report, "--config": config})
    file = read_config(config)
    check_outputs([] if config is None else [config], {"--report": report})
    if trace is not None:
        check_directory("--trace", trace)
    if log_dir is not None:
        _check_log_dir(log_dir, dry_run)
    patience(os.environ)
    wiring = Wiring(lane=lane or "", key_file=_path(key_file), insecure="1" if insecure else "", trace=_path(trace))
    count = _first(workers, file.workers, 2)
    if not command and (count or join is None):
        raise UsageError("PROGRAM", "is missing: name a Python file, or a module with -m")
    plan = Plan(
        command_of(command, module) if command else (),
        count,
        _first(servers, file.servers, 1 if join is None else 0),
        words,
        wiring,
        config=file.settings or {},
        file="file" if config is None else config.name,
        log_dir=_path(log_dir),
        restarts=restarts,
    )
    plan = checked(plan, listen, join, dry=dry_run)
    if dry_run:
        _show(plan, file, {"workers": workers, "servers": servers})
        return
    with whole_text(report, "--report") as target, quiet_end():
        speaker = Speaker()
        _say_ignored(plan, file, speaker)
        launcher = Launcher(plan, speaker.line)
        invitation = _invitation(key_file, insecure) if listen is not None else None
        run_to_end(launcher, partial(_say_reachable, launcher, speaker, invitation, verbose and join is None))
        if target is not None:
            json.dump(_report(launcher, plan.words()), target, indent=2)
            target.write("\n")


def _refuse_with_join(given: dict[str, object]) -> None:
    for option, value in given.items():
        if value is not None:
            raise UsageError(option, "is the run's own affair; leave it out with --join")


def _check_log_dir(path: Path, dry: bool) -> None:
    """Make it, if it is not there."""
    if not dry:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError("--log-dir", f"cannot make {str(path)!r}: {error.strerror}") from None
    if path.exists():
        check_directory("--log-dir", path)


def _path(path: Path | None) -> str:
    return "" if path is None else str(path.resolve())


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _show(plan: Plan, file: Config, given: dict[str, int | None]) -> None:
    from syncline.cli.dry_run import show_plan

    written = {"workers": file.workers, "servers": file.servers}
    origins = {
        key: COMMAND_LINE if count is not None else "default" if written[key] is None else plan.file
        for key, count in given.items()
    }
    _say_ignored(plan, file, Speaker())
    show_plan(plan, origins)


def _say_ignored(plan: Plan, file: Config, speaker: Speaker) -> None:
    if file.ignored:
        speaker.line("syncline", f"{plan.file}: only the simulator heeds {', '.join(file.ignored)}")


def _invitation(key_file: Path | None, insecure: bool) -> list[str]:
    """The words that others need beside the address."""
    key = [] if key_file is None else ["--key-file", str(key_file)]
    return [*key, *["--insecure"] * insecure, "-n", "1"]


def _say_reachable(launcher: Launcher, speaker: Speaker, invitation: list[str] | None, name: bool) -> None:
    """How others can join, if they can, and by which name the run can be changed, if that is asked for."""
    if name:
        words = f"syncline tell {name_of(launcher.wiring.coordinator)} --sync ssp:3"
        speaker.line("syncline", f"the sync model can be changed while it trains, e.g. {words}")
    if invitation is not None:
        words = shlex.join(["syncline", "run", "--join", launcher.reachable(), *invitation])
        speaker.line("syncline", f"more workers can join: {words} PROGRAM")


def _report(launcher: Launcher, settings: dict[str, str]) -> dict[str, Any]:
    servers = [msgspec.structs.asdict(each) for each in sorted(launcher.figures, key=lambda each: each.server)]
    counted = ("updates", "dropped_updates", "delayed_pulls")
    sums = (*counted, "bytes_pushed", "bytes_pulled", "pushes_skipped", "fetches_skipped")
    return {
        "schema": 1,
        "settings": settings,
        **{key: sum(each[key] for each in servers) for key in sums},
        "train_progress": min((each["train_progress"] for each in servers if not each["left"]), default=0),
        "servers": servers,
        "workers": [
            {"worker": worker.name, "exit_code": worker.code, "restarts": worker.restarts}
            for worker in launcher.workers
        ],
    }
