"""`syncline run`: start a program as several workers, together with the servers that hold the model."""

from __future__ import annotations

import os
import re
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from syncline.cli import engine_options, host_options
from syncline.cli import strategy_options as strategy
from syncline.cli.config import Config, read_config
from syncline.cli.launching import run_to_end
from syncline.cli.output import Force, SideOutputs
from syncline.cli.output_checks import (
    LOG,
    REPORT,
    TRACE,
    Output,
    OutputFile,
    OutputFolder,
    check_directory,
    check_outputs,
)
from syncline.cli.program import command_of, package_files
from syncline.cli.show import as_json
from syncline.cli.speaker import Speaker, quiet_end
from syncline.engines.launch.growth import read_growth
from syncline.engines.launch.launcher import Launcher
from syncline.engines.launch.plan import COMMAND_LINE, Plan, checked
from syncline.engines.launch.port_option import check_port
from syncline.engines.net.wiring import Wiring, key_of_user
from syncline.engines.operator import name_of
from syncline.engines.process import also_look_in, beside
from syncline.engines.process_state import patience as stopped_patience
from syncline.engines.saving.request import checked_request
from syncline.errors import UsageError
from syncline.nodes.staleness import merged, staleness_figures
from syncline.strategies.allowed_parts import listed

if TYPE_CHECKING:
    from syncline.ray.ray_run import RayRun


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROGRAM [ARGS]",
            help="A Python file (with -m: a module) and its arguments. Every worker runs it. Not needed with -n 0.",
            show_default=False,
        ),
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", rich_help_panel=strategy.RUN, help="PROGRAM is a module, as in python -m.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "-n",
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="How many workers to start on this host. They share its cores: each computes on OMP_NUM_THREADS "
            "threads, by default cores / N. Default: 2.",
        ),
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="How many servers to start on this host; together they hold the model. Default: 1; with --join, 0.",
        ),
    ] = None,
    strategy_text: strategy.Strategy = None,
    placement: strategy.Placement = None,
    backups: strategy.Backups = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            rich_help_panel=strategy.RUN,
            help="Take the strategy, the seed and the number of workers from an experiment file of syncline simulate. "
            "Options on the command line override it.",
        ),
    ] = None,
    seed: strategy.Seed = None,
    sync: strategy.Sync = None,
    release: strategy.Release = None,
    mode: strategy.Mode = None,
    rule: strategy.Rule = None,
    on_nan: Annotated[
        str | None,
        typer.Option(
            metavar="stop|skip",
            rich_help_panel=strategy.SYNC,
            help="What a worker does with an update that holds NaN or infinity. stop: end the run; skip: skip that "
            "step. Default: stop.",
        ),
    ] = None,
    codec: strategy.Codec = None,
    reply_codec: strategy.ReplyCodec = None,
    gate: strategy.Gate = None,
    lane: Annotated[
        str | None,
        typer.Option(
            metavar="shm|tcp",
            rich_help_panel=strategy.NETWORK,
            help="How workers exchange values with servers, or with each other: shared memory or TCP. Default: shared "
            "memory on the same host, TCP between hosts.",
        ),
    ] = None,
    bucket: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=strategy.NETWORK,
            help="How much of the model one message carries, for example 1MiB. Default: chosen when training starts.",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=strategy.NETWORK,
            help="How much of the model a worker may send ahead of each server's answers, for example 1MiB, or "
            "unlimited. Default: chosen when training starts between hosts, unlimited on one host.",
        ),
    ] = None,
    patience: strategy.Patience = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            rich_help_panel=strategy.NETWORK,
            help="Let workers and servers on other hosts join, for example 192.0.2.7:7070. Prints the command to run "
            "there.",
        ),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            rich_help_panel=strategy.NETWORK,
            help="Join a run that was started with --listen, with -n workers and --servers servers.",
        ),
    ] = None,
    hosts: host_options.Count = None,
    host_rank: host_options.Rank = None,
    at: host_options.At = None,
    server_hosts: host_options.Serving = None,
    slurm: host_options.Slurm = False,
    port: host_options.Port = None,
    engine: engine_options.Engine = engine_options.LOCAL,
    address: engine_options.Address = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=strategy.NETWORK,
            help="The key that connections between hosts need. --listen creates the file if it does not exist; copy it "
            "to the other hosts. Without this option, SYNCLINE_KEY_FILE names the file or SYNCLINE_KEY holds a secret.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            rich_help_panel=strategy.NETWORK,
            help="Connect to other hosts without a key: anybody on the network can read the traffic and join.",
        ),
    ] = False,
    allow_parts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            rich_help_panel=strategy.NETWORK,
            help="Let texts that come from other hosts name parts (sync models, codecs, ...) of this module; without "
            "it they can name only shipped ones. Give it once for each module.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            rich_help_panel=strategy.OUTPUT,
            help="Write the servers' counts as JSON if the run succeeds: updates, delayed pulls, bytes.",
        ),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="Start a worker again if it dies or fails, up to N times in all. It rejoins under the same number. "
            "Servers that die are started again too, and so is the coordinator. Default: 0.",
            show_default=False,
        ),
    ] = 0,
    grow: strategy.Grow = None,
    checkpoint: strategy.Checkpoint = None,
    checkpoint_every: strategy.CheckpointEvery = None,
    resume: strategy.Resume = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=strategy.OUTPUT,
            help="Write every message of each server and worker to a CSV file in this folder: server0.csv, "
            "worker0.csv, ...",
        ),
    ] = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=strategy.OUTPUT,
            help="Also write the output of each process to a file in this folder: w0.log, server0.log, ...",
        ),
    ] = None,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback",
            rich_help_panel=strategy.OUTPUT,
            help="Show the whole traceback if a worker fails because of a mistake in the use of Syncline, not only the "
            "line of your program. --log-dir always writes it.",
        ),
    ] = False,
    force: Force = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", rich_help_panel=strategy.OUTPUT, help="Print the name of the run, for syncline tell."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            rich_help_panel=strategy.OUTPUT,
            help="Check all options, show every setting and where it came from, and exit without starting anything.",
        ),
    ] = False,
) -> None:
    """Start a Python program as several workers that train one model, together with the servers that hold it.

    Example: syncline run -n 4 --sync ssp:3 train.py --epochs 10

    Exit codes: 0 success; 1 a worker failed or a server was lost; 2 wrong option or setting; 3 success, but not all
    output could be written; 130 interrupted.
    """
    words = strategy.words(
        sync=sync, seed=seed, release=release, mode=mode, rule=rule, gate=gate, codec=codec, reply_codec=reply_codec,
        on_nan=on_nan, placement=placement, bucket=bucket, window=window, strategy=strategy_text, patience=patience,
        backups=backups,
    )  # fmt: skip
    ray = engine_options.check_engine(
        engine, address, {
            "--listen": listen, "--join": join, "--hosts": hosts, "--host-rank": host_rank, "--at": at,
            "--server-hosts": server_hosts, "--slurm": slurm, "--key-file": key_file, "--insecure": insecure,
            "--port": port, "--grow": grow,
        },
    )  # fmt: skip
    if join is not None:
        _refuse_with_join({"--report": report, "--config": config})
    searched = beside(config, None if module or not command else Path(command[0]))
    also_look_in(searched)
    file = read_config(config)
    if trace is not None:
        check_directory("--trace", trace)
    if log_dir is not None:
        _check_log_dir(log_dir, dry_run)
    stopped_patience(os.environ)
    place = host_options.hosts_of(hosts, host_rank, at, server_hosts, slurm, join, port)
    if port is not None:
        check_port(port, place, listen, join)
    follows = place is not None and not place.leads
    saving = checked_request(
        checkpoint, checkpoint_every, resume, _program_name(command, module), joins=join is not None, follows=follows
    )
    alone = listen is None and join is None and place is None
    file_of_key, key = key_of_user(key_file, {} if alone else os.environ)
    wiring = Wiring(
        lane="" if lane is None else lane,
        save_to=saving.folder,
        save_every=saving.every,
        resume=saving.resume,
        program=saving.program,
        key_file=file_of_key,
        key=key,
        insecure="1" if insecure else "",
        trace=_path(trace),
        allow_parts=listed(allow_parts),
        folder=searched,
        shared_port="" if port is None else str(port),
    )
    count = _first(workers, file.workers, 1 if slurm else 2)
    if not command and (count or join is None):
        raise UsageError("PROGRAM", "is missing: name a Python file, or a module with -m")
    program_words, program = command_of(command, module) if command else ((), [])
    plan = Plan(
        program_words,
        count,
        servers if servers is not None else file.servers,
        words,
        wiring,
        config=file.settings or {},
        file="file" if config is None else config.name,
        log_dir=_path(log_dir),
        traceback=traceback,
        joinable=listen is not None,
        restarts=restarts,
        growth=read_growth(grow or ()),
        hosts=place,
    )
    if join is None:
        checked(plan, dry=True)  # this imports the user's own parts, which are inputs too
    allowed = [path for each in allow_parts or () for path in package_files(each)]
    key_files = [Path(file_of_key)] if file_of_key else []
    inputs = [*program, *allowed, *key_files, *([] if config is None else [config])]
    check_outputs(inputs, _outputs(report, trace, log_dir), force=force)
    plan = checked(plan, listen, join, dry=dry_run)
    if dry_run:
        _show(plan, file, {"workers": workers, "servers": servers})
        return
    with SideOutputs() as outputs, quiet_end():
        target = outputs.open("--report", None if follows else report)
        speaker = Speaker()
        _say_ignored(plan, file, speaker)
        if ray:
            made = engine_options.run_on_ray(plan, address, speaker, partial(_say_name, speaker, verbose))
            if target is not None:
                as_json(_report(made, plan.words()), target)
            outputs.lost |= made.incomplete
            outputs.end()
            return
        launcher = Launcher(plan, speaker.line)
        invitation = _invitation(key_file, insecure) if listen is not None else None
        if warning := _without_key(plan):
            speaker.line("syncline", warning)
        run_to_end(launcher, partial(_say_reachable, launcher, speaker, invitation, verbose and join is None))
        if target is not None:
            as_json(_report(launcher, plan.words()), target)
    outputs.lost |= launcher.incomplete
    outputs.end()


def _outputs(report: Path | None, trace: Path | None, log_dir: Path | None) -> list[Output]:
    """The files that a run writes."""
    found: list[Output] = [] if report is None else [OutputFile("--report", report, REPORT)]
    if trace is not None:
        found.append(OutputFolder("--trace", trace, TRACE, re.compile(r"(server\d+|worker\d+(-\d+)?)(\..*)?\.csv")))
    if log_dir is not None:
        found.append(OutputFolder("--log-dir", log_dir, LOG, re.compile(r"(coordinator|server\d+|w\d+)\.log")))
    return found


def _program_name(command: list[str] | None, module: bool) -> str:
    """The program, as a checkpoint names it."""
    if not command:
        return ""
    return f"-m {command[0]}" if module else Path(command[0]).name


def _refuse_with_join(given: dict[str, object]) -> None:
    for option, value in given.items():
        if value is not None:
            raise UsageError(option, "is a setting of the run that you join; leave it out with --join")


def _check_log_dir(path: Path, dry: bool) -> None:
    """Create the folder if it does not exist, and check that it is writable."""
    if not dry:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError("--log-dir", f"cannot create {str(path)!r}: {error.strerror}") from None
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
        speaker.line("syncline", f"{plan.file}: ignored (used only by the simulator): {', '.join(file.ignored)}")


def _without_key(plan: Plan) -> str:
    """What it means that connections need no key; empty if they need one, or if there are none."""
    if plan.wiring.key_file or plan.wiring.key:
        return ""
    if plan.joins and plan.wiring.insecure:
        return "--insecure: anybody on the network can read and change what is sent; --key-file FILE prevents it"
    if plan.wiring.insecure and plan.wiring.listen:
        return "--insecure: anybody on the network can join, and read and change the model; --key-file FILE prevents it"
    if plan.wiring.listen:
        return "no key: every user of this host can join, and read and change the model; --key-file FILE prevents it"
    return ""


def _invitation(key_file: Path | None, insecure: bool) -> list[str]:
    """The options that another host needs in addition to the address."""
    key = [] if key_file is None else ["--key-file", str(key_file)]
    return [*key, *["--insecure"] * insecure, "-n", "1"]


def _say_name(speaker: Speaker, name: bool, coordinator: str) -> None:
    """Print the command to change the run, if asked for."""
    if name:
        words = f"syncline tell {name_of(coordinator)} --sync ssp:3"
        speaker.line("syncline", f"to change the sync model while it trains: {words}")


def _say_reachable(launcher: Launcher, speaker: Speaker, invitation: list[str] | None, name: bool) -> None:
    """Print the command to join the run (with --listen), and the command to change it (with --verbose)."""
    _say_name(speaker, name, launcher.wiring.coordinator)
    if invitation is not None:
        words = shlex.join(["syncline", "run", "--join", launcher.reachable(), *invitation])
        speaker.line("syncline", f"more workers can join: {words} PROGRAM")


def _report(launcher: Launcher | RayRun, settings: dict[str, str]) -> dict[str, Any]:
    servers = [msgspec.structs.asdict(each) for each in sorted(launcher.figures, key=lambda each: each.server)]
    for each in servers:
        del each["trace_lost"], each["of_worker"], each["partitions"]
    counting = servers or [msgspec.structs.asdict(each) for each in launcher.worker_figures]
    counted = ("updates", "dropped_updates", "delayed_pulls")
    sums = [*counted, "bytes_pushed", "bytes_pulled", "pushes_skipped", "fetches_skipped"]
    restored = ("restored_buckets", "lost_updates")
    if any(each[key] for each in counting for key in restored):
        sums += restored
    else:
        for each in counting:
            del each["restored_buckets"], each["lost_updates"]
    partitions = max((each.partitions for each in launcher.worker_figures), default=0)
    return {
        "schema": 1,
        "settings": settings,
        **({"partitions": partitions} if partitions else {}),
        **{key: sum(each[key] for each in counting) for key in sums},
        **staleness_figures(merged(each.pop("staleness") for each in counting)),
        "train_progress": min((each["train_progress"] for each in counting if not each["left"]), default=0),
        "servers": servers,
        "workers": [
            {"worker": worker.name, "exit_code": worker.code, "restarts": worker.restarts}
            for worker in launcher.workers
        ],
    }
