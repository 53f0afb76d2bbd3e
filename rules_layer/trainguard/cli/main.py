"""What ``trainguard`` accepts. Everything that takes time to import is imported when a command runs."""

import os
import sys
import traceback

import typer

from trainguard.cli.commands.analyze import analyze

_OWN_FAULT = 70
"""As ``sysexits.h`` has it for faults of the program; Python's own 1 would say that a rule has fired."""

app = typer.Typer(
    name="trainguard",
    help="Rules, reports and safe stops for training jobs, from the profiles that they write.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def trainguard() -> None:
    """Rules, reports and safe stops for training jobs, from the profiles that they write."""


app.command()(analyze)


def run() -> None:
    """Run the command line of this process."""
    # Nothing here multiplies matrices: a pool of threads for it would only cost start-up time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except Exception:
        traceback.print_exc()
        sys.exit(_OWN_FAULT)
