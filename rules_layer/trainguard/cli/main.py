"""The command ``trainguard``; slow modules are imported when a command runs."""

import os
import sys
import traceback
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated

import typer

from trainguard.cli.command import PlainGroup, complete
from trainguard.cli.commands.alerts import alerts
from trainguard.cli.commands.analyze import analyze
from trainguard.cli.commands.brake import brake
from trainguard.cli.commands.cost import cost
from trainguard.cli.commands.doctor import doctor
from trainguard.cli.commands.explain import explain
from trainguard.cli.commands.gate import gate
from trainguard.cli.commands.hang import hang
from trainguard.cli.commands.jobs import jobs
from trainguard.cli.commands.kernels import kernels
from trainguard.cli.commands.mcp import mcp
from trainguard.cli.commands.notifications import notifications
from trainguard.cli.commands.open import open_report
from trainguard.cli.commands.params import params
from trainguard.cli.commands.plan import plan
from trainguard.cli.commands.prices import prices
from trainguard.cli.commands.replay import replay
from trainguard.cli.commands.report import report
from trainguard.cli.commands.status import status
from trainguard.cli.commands.stops import stops
from trainguard.cli.commands.stragglers import stragglers
from trainguard.cli.commands.verdict import verdict

# As in ``sysexits.h`` for faults of the program; Python's own 1 would say that a rule has fired.
_OWN_FAULT = 70

# As in a shell after SIGINT; typer ends with it too, without a message.
_INTERRUPTED = 130

# As in a shell after SIGPIPE; rich and typer would end with 1.
_READER_GONE = 141

app = typer.Typer(
    name="trainguard",
    cls=PlainGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(asked: bool) -> None:
    if asked:
        from trainguard.cli.version import own_version

        typer.echo(f"trainguard {own_version() or 'from a checkout that is not installed'}")
        raise typer.Exit


@app.callback()
def trainguard(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Rules, reports and safe stops for training jobs, from the profiles that they write.

    trainguard COMMAND --help ends in examples.
    """


for _command in (analyze, doctor, jobs, status, verdict, explain):
    app.command()(_command)
app.command("open")(open_report)
for _command in (report, replay, notifications, kernels, gate, hang, stragglers, mcp, plan, cost):
    app.command()(_command)
for _group in (params, alerts, stops, brake, prices):
    app.add_typer(_group)
complete(app)


def run() -> None:
    # A pool of threads for matrices would only cost start-up time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal's encoding lacks is spelled out
    try:
        app()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            sys.exit(_READER_GONE)
        if ended.code == _INTERRUPTED:
            typer.echo("trainguard: interrupted", err=True)
            # A pool that the interrupt met half-way may not end; its workers end with this process.
            with suppress(OSError):
                sys.stdout.flush()
            os._exit(_INTERRUPTED)
        raise
    except Exception:
        traceback.print_exc()
        sys.exit(_OWN_FAULT)
