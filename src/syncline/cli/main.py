"""The `syncline` command: prints errors as one line on stderr and sets the exit code.

0 success; 1 the run failed; 2 wrong option or setting; 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, NoReturn

import typer

from syncline import __version__
from syncline.cli.bench import bench
from syncline.cli.reproduce import reproduce
from syncline.cli.run import run
from syncline.cli.simulate import simulate
from syncline.cli.tell import tell
from syncline.cli.train import train
from syncline.engines.process import also_look_in, here, os_problem
from syncline.errors import SynclineError, UsageError

app = typer.Typer(
    help="Train one model on several machines, fast and slow ones, over ordinary networks.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(train)
app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False})(run)
app.command()(tell)
app.command()(simulate)
app.command()(reproduce)
app.command()(bench)

_CommandLineError: Any = typer.BadParameter.__bases__[0]
"""The error that typer raises for an invalid command line, in all versions of click."""


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
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        _fail(str(error), 2)
    except SynclineError as error:
        _fail(str(error), 1)
    except OSError as error:
        _fail(os_problem(error), 1)
    except _CommandLineError as error:
        _fail(f"{error.format_message()} (see --help)", 2)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", 130)
    except SystemExit as end:
        code = end.code
    if code == 130:
        _fail("interrupted", 130)
    sys.exit(code)


def _fail(message: str, code: int) -> NoReturn:
    print("syncline:", "\\n".join(message.splitlines()), file=sys.stderr)
    sys.exit(code)
