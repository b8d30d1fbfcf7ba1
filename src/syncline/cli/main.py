"""The `syncline` command: prints errors as one line on stderr and sets the exit code.

0 success; 1 the run failed; 2 wrong option or setting; 3 success, but not all output could be written;
130 interrupted; 141 nobody reads the output any more.
"""

from __future__ import annotations

import errno
import sys
from typing import Annotated, Any

import typer

from syncline import __version__
from syncline.cli.bench import bench
from syncline.cli.command import StrictCommand
from syncline.cli.doctor import DoctorCommand, doctor
from syncline.cli.output import INCOMPLETE
from syncline.cli.plan import plan
from syncline.cli.reproduce import reproduce
from syncline.cli.run import run
from syncline.cli.simulate import simulate
from syncline.cli.speaker import CLOSED
from syncline.cli.streams import ReaderGone, Streams, discard
from syncline.cli.tell import tell
from syncline.cli.train import train
from syncline.engines.launch.interrupts import interruptible
from syncline.engines.process import also_look_in, here, os_problem
from syncline.errors import SynclineError, UsageError, one_line

app = typer.Typer(
    help="Train one model on several machines, fast and slow ones, over ordinary networks.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=StrictCommand)(train)
app.command(cls=StrictCommand, context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False})(
    run
)
app.command(cls=DoctorCommand)(doctor)
for command in (tell, simulate, plan, reproduce, bench):
    app.command(cls=StrictCommand)(command)

_CommandLineError: Any = typer.BadParameter.__bases__[0]
"""The error that typer raises for an invalid command line, in all versions of click."""

_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR)
"""Errors that only a path that the user gave can cause."""


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"syncline {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train one model on several machines, fast and slow ones, over ordinary networks."""
    if context.invoked_subcommand is None and not version:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command; turn every expected error into one message on stderr and an exit code."""
    also_look_in(here())  # so that the user's own parts can be imported: a script that pip made does not look there
    streams = Streams()
    streams.guard()
    try:
        code = _run()
        if code == 130:
            _say("interrupted")
        sys.stdout.flush()
    except ReaderGone:
        discard()
        code = CLOSED
    sys.exit(INCOMPLETE if not code and streams.lost else code)


def _run() -> Any:
    """Run the command, and return its exit code; None is success."""
    try:
        with interruptible():
            return app(standalone_mode=False)
    except UsageError as error:
        return _say(str(error), 2)
    except SynclineError as error:
        return _say(str(error), 1)
    except ReaderGone:
        raise
    except OSError as error:
        return _say(os_problem(error), 2 if error.errno in _NO_PATH else 1)
    except _CommandLineError as error:
        return _say(f"{error.format_message()} (see --help)", 2)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except SystemExit as end:
        return end.code


def _say(message: str, code: int = 130) -> int:
    print("syncline:", one_line(message), file=sys.stderr)
    return code
