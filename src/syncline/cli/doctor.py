"""`syncline doctor`: find out why processes on this host, or on two hosts, do not find each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from syncline.cli.command import StrictCommand
from syncline.cli.output import Force, SideOutputs
from syncline.cli.output_checks import REPORT, OutputFile, check_outputs
from syncline.cli.show import as_json
from syncline.cli.strategy_options import NETWORK, OUTPUT
from syncline.engines.doctor.finding import Finding, all_well
from syncline.engines.net.wiring import Wiring, key_of_user
from syncline.errors import UsageError, printable
from syncline.units import whole

ANY_PORT = "0.0.0.0:0"
"""Where `--listen` without an address listens."""


class DoctorCommand(StrictCommand):
    """`--listen` may stand without an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for index, word in enumerate(args):
            if word == "--listen" and (index + 1 == len(args) or args[index + 1].startswith("-")):
                args = [*args[:index], f"--listen={ANY_PORT}", *args[index + 1 :]]
        return super().parse_args(ctx, args)


def doctor(
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS:PORT]",
            rich_help_panel=NETWORK,
            help="Wait for syncline doctor --join on another host, and print the command to run there. Without an "
            "address: all addresses of this host, and a port that the system chooses.",
        ),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            rich_help_panel=NETWORK,
            help="Check the way to the host where syncline doctor --listen runs, and the way back.",
        ),
    ] = None,
    joiners: Annotated[
        int, typer.Option(metavar="N", rich_help_panel=NETWORK, help="With --listen: how many hosts to wait for.")
    ] = 1,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="P",
            rich_help_panel=NETWORK,
            help="The port of this host, as in syncline run --port: with --join, the other host connects back there. "
            "Default: chosen by the system.",
        ),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=NETWORK,
            help="The key. --listen creates the file if it does not exist. Without this option, SYNCLINE_KEY_FILE "
            "names the file or SYNCLINE_KEY holds a secret.",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option(rich_help_panel=NETWORK, help="Connect to the other host without a key.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", rich_help_panel=OUTPUT, help="Write what was found as JSON."),
    ] = None,
    force: Force = False,
) -> None:
    """Check this host, and with --listen and --join the way between two hosts: one line for each check.

    Example: syncline doctor --listen --key-file K on one host; then, on the other, the command that it prints.

    Exit codes: 0 all is well; 1 something is wrong, and the line says what to do; 2 wrong option.
    """
    if listen is not None and join is not None:
        raise UsageError("--join", "cannot be used with --listen: one host listens, and the other one joins it")
    if joiners != 1 and listen is None:
        raise UsageError("--joiners", "says how many hosts --listen waits for; add --listen")
    if port is not None and listen is not None:
        raise UsageError("--port", "is not needed with --listen, which names the port: --listen ADDRESS:PORT")
    whole(joiners, "--joiners", 1, 1024)
    if port is not None:
        whole(port, "--port", 1, 65535)
    alone = listen is None and join is None
    file, key = key_of_user(key_file, {} if alone else os.environ)
    outputs = [] if report is None else [OutputFile("--report", report, REPORT)]
    check_outputs([Path(file)] if file else [], outputs, force=force)
    wiring = Wiring(key_file=file, key=key, insecure="1" if insecure else "")
    found = Shown()
    with SideOutputs() as files:
        target = files.open("--report", report)
        if listen is not None:
            _listen(listen, wiring, joiners, found, key_file)
        elif join is not None:
            _join(join, wiring, port or 0, found, key_file)
        else:
            _alone(port or 0, found, key_file)
        if target is not None:
            as_json({"schema": 1, "well": all_well(found.findings), "checks": found.plain()}, target)
    files.end()
    if not all_well(found.findings):
        raise typer.Exit(1)


class Shown:
    """Prints findings, and keeps them."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def __call__(self, finding: Finding) -> None:
        self.findings.append(finding)
        typer.echo(finding.line())

    def plain(self) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(each) for each in self.findings]


def _alone(port: int, show: Shown, key_file: Path | None, given: str = "", towards: str = "") -> None:
    """The checks of this host."""
    from syncline.engines.doctor.host_checks import about_this_host
    from syncline.engines.doctor.key_checks import key
    from syncline.engines.doctor.network_checks import about_the_network

    for each in (*about_this_host(), *about_the_network(given, towards, port), key(key_file, os.environ)):
        show(each)


def _listen(listen: str, wiring: Wiring, joiners: int, show: Shown, key_file: Path | None) -> None:
    from syncline.engines.doctor.listener import DoctorListener
    from syncline.engines.launch.plan import listening_at
    from syncline.engines.net.addresses import Address, own_address_for

    address = listening_at(listen, wiring)
    _alone(0, show, key_file, given=address.host)

    def heard(peer: str, findings: tuple[Finding, ...]) -> None:
        typer.echo(printable(f"{peer} has joined, and has found:"))
        for each in findings:
            show(each)

    listener = DoctorListener(address, wiring, heard)
    try:
        bound = listener.start()
        place = Address(own_address_for(bound.host), bound.port)
        key = f" --key-file {key_file}" if key_file is not None else " --insecure" if wiring.insecure else ""
        typer.echo(f"waiting for the other host; run there: syncline doctor --join {place}{key}")
        listener.serve(joiners)
    finally:
        listener.close()


def _join(join: str, wiring: Wiring, port: int, show: Shown, key_file: Path | None) -> None:
    from syncline.engines.doctor.joiner import DoctorVisit
    from syncline.engines.launch.plan import joining_at

    places = joining_at(join, wiring)
    _alone(port, show, key_file, towards=places[0].host)
    for each in DoctorVisit(places, wiring, port).findings():
        show(each)
