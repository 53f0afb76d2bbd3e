"""``trainguard analyze``: from a person's request to reports on disk, a table or JSON, and an exit code."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rich.console import Console

from trainguard.cli.commands.analyze.outcome import Outcome, json_document
from trainguard.cli.output.files import prepare, write_files
from trainguard.cli.output.progress import Progress
from trainguard.cli.output.terminal import show, stdout_console
from trainguard.errors import RequestError, TrainGuardError
from trainguard.local.sources import ProfileSource, open_folder
from trainguard.plain_text import one_line, terminal_json
from trainguard.rules.defaults import Defaults

RAN, FIRED, REFUSED = 0, 1, 2
_BUCKET = "s3://"
ReadingName = Literal["documented", "compatible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for on the command line; ``defaults`` None stands for the reading's own."""

    source: str
    out: Path
    reading: ReadingName = "documented"
    defaults: Defaults | None = None
    params: Path | None = None
    instance_type: str | None = None
    prices: Path | None = None
    framework_expected: bool = False
    rule: str | None = None
    fail_on_fire: bool = False
    as_json: bool = False


class Reading(Protocol):
    """A reading with a person's settings."""

    def analyze(self, source: ProfileSource, progress: Progress) -> Outcome:
        """Judge a profile."""
        ...


def analyze_command(request: Request) -> int:
    """Run an analysis; return the exit code."""
    stderr = Console(stderr=True, highlight=False)
    try:
        outcome, place = _analyze(request, stderr)
    except TrainGuardError as fault:
        stderr.print(one_line(f"trainguard: {fault}"), markup=False, soft_wrap=True)
        return REFUSED
    if request.as_json:
        places = {"source": _text(place), "out": _text(str(request.out))}
        _print_bytes(json_document(outcome, reading=request.reading, defaults=_defaults(request), **places))
    else:
        console = stdout_console()
        show(console, outcome)
        console.print(one_line(f"Reports: {request.out}"), markup=False, soft_wrap=True)
    return FIRED if request.fail_on_fire and outcome.fired else RAN


def _analyze(request: Request, stderr: Console) -> tuple[Outcome, str]:
    reading = _reading(request)
    source = _open(request.source)
    prepare(request.out)
    watched = stderr.is_terminal and sys.stdout.isatty() and not request.as_json
    outcome = reading.analyze(source, Progress(stderr, shown=watched))
    write_files(request.out, outcome.files)
    return outcome, source.place


def _defaults(request: Request) -> Defaults:
    own: Defaults = "documented" if request.reading == "documented" else "shipped"
    return own if request.defaults is None else request.defaults


def _reading(request: Request) -> Reading:
    if request.reading == "compatible":
        if request.rule is not None:
            raise RequestError(
                "--rule was given with --reading compatible", "A rule of your own has one reading alone."
            )
        from trainguard.cli.commands.analyze.debugger_replay import Compatible

        return Compatible(params=request.params, defaults=_defaults(request))
    from trainguard.cli.commands.analyze.documented import Documented

    return Documented(
        params=request.params,
        prices=request.prices,
        defaults=_defaults(request),
        instance_type=request.instance_type,
        framework_expected=request.framework_expected,
        rule=request.rule,
    )


def _open(place: str) -> ProfileSource:
    if not place.startswith(_BUCKET):
        return open_folder(place)
    from trainguard.local.bucket import open_bucket

    return open_bucket(place)


def _text(path: str) -> str:
    """Return a path as text; a question mark for each byte of it that is none."""
    return path.encode("utf-8", "replace").decode()


def _print_bytes(document: bytes) -> None:
    try:
        sys.stdout.write(terminal_json(document.decode()) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone; without this, Python would complain once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
