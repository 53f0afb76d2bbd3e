"""``trainguard analyze``: from a person's request to reports on disk, a table or JSON, and an exit code."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from trainguard.cli.commands.analyze.outcome import Outcome, blocks_of, document_of
from trainguard.cli.output.blocks import Line
from trainguard.cli.output.files import prepare, write_files
from trainguard.cli.output.progress import Progress, stderr_progress
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.errors import RequestError
from trainguard.rules.defaults import Defaults

ModeName = Literal["documented", "compatible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeRequest:
    """What was asked for on the command line; ``defaults`` None stands for the reading's own."""

    source: str
    out: Path
    reading: ModeName = "documented"
    defaults: Defaults | None = None
    params: Path | None = None
    instance_type: str | None = None
    prices: Path | None = None
    framework_expected: bool = False
    rule: str | None = None
    fail_on_fire: bool = False
    as_json: bool = False


class Analysis(Protocol):
    """A reading of the rules with a person's settings."""

    def open(self, place: str) -> "OpenedPlace":
        """Find what there is to evaluate at a place."""
        ...


class OpenedPlace(Protocol):
    """What was found at a place: ``place`` as a person reads it."""

    @property
    def place(self) -> str:
        """The path or URI."""
        ...

    def analyze(self, progress: Progress) -> Outcome:
        """Evaluate it."""
        ...


def analyze_command(request: AnalyzeRequest) -> int:
    """Run an analysis; return the exit code."""
    return print_result(lambda: _result(request), as_json=request.as_json, fail_on_fire=request.fail_on_fire)


def _result(request: AnalyzeRequest) -> CommandResult:
    analysis = _analysis(request)
    opened = analysis.open(request.source)
    prepare(request.out)
    outcome = opened.analyze(stderr_progress(shown=not request.as_json))
    write_files(request.out, outcome.files)
    places = {"source": _text(opened.place), "out": _text(str(request.out))}
    return CommandResult(
        document=document_of(outcome, reading=request.reading, defaults=_defaults(request), **places),
        blocks=[*blocks_of(outcome), Line(f"Reports: {request.out}", whole=True)],
        notes=outcome.notes,
        fired=bool(outcome.fired),
        evaluated=outcome.evaluated,
    )


def _defaults(request: AnalyzeRequest) -> Defaults:
    own: Defaults = "documented" if request.reading == "documented" else "shipped"
    return own if request.defaults is None else request.defaults


def _analysis(request: AnalyzeRequest) -> Analysis:
    if request.reading == "compatible":
        if request.rule is not None:
            raise RequestError(
                "--rule was given with --reading compatible", "Custom rules support only --reading documented."
            )
        from trainguard.cli.commands.analyze.debugger_replay import DebuggerReplay

        return DebuggerReplay(params=request.params, defaults=_defaults(request))
    from trainguard.cli.commands.analyze.documented import Documented

    return Documented(
        params=request.params,
        prices=request.prices,
        defaults=_defaults(request),
        instance_type=request.instance_type,
        framework_expected=request.framework_expected,
        rule=request.rule,
    )


def _text(path: str) -> str:
    """Return a path as text; a question mark for each byte of it that is none."""
    return path.encode("utf-8", "replace").decode()
