"""``trainguard analyze`` of several runs: a line for each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainguard.cli.commands.analyze.outcome import NOTHING_EVALUATED, SCHEMA_VERSION, Analysis, document_of, shown_path
from trainguard.cli.output.files import write_files
from trainguard.cli.output.progress import ProgressBar
from trainguard.cli.output.rendering import Block, Line, Shown, TerminalColumn, status_cell, table
from trainguard.cli.output.result import CommandResult
from trainguard.core.errors import OutputError, TrainGuardError, error_text
from trainguard.core.records import Status
from trainguard.core.units import counted
from trainguard.local.fleet import folder_names, shown_places
from trainguard.local.runs import FoundRuns

_READING = "documented"

# A run's place as people read it, the folder of its reports, and its outcome.
_Judged = tuple[str, Path | None, Analysis]


def _status(outcome: Analysis) -> Status:
    if outcome.fault is not None:
        return Status.ERROR
    if outcome.fired:
        return Status.FIRED
    return Status.OK if outcome.evaluated else Status.NOT_APPLICABLE


def _line(outcome: Analysis) -> str:
    if outcome.fault is not None:
        return outcome.fault
    if not outcome.evaluated:
        return NOTHING_EVALUATED
    return outcome.summary or "" if outcome.verdict is None else outcome.verdict.health


def several_outcomes(
    source: str,
    found: FoundRuns,
    judge: Callable[..., Analysis],
    progress: ProgressBar,
    out: Path | None,
    *,
    defaults: str,
) -> CommandResult:
    """Judge each run, and write its reports into a folder below ``out``; the exit code is that of the worst.

    Raises OutputError.
    """
    judged = list(_judged(source, found, judge, progress, out))
    outcomes = [outcome for _, _, outcome in judged]
    fired, unjudged = sum(bool(each.fired) for each in outcomes), sum(not each.evaluated for each in outcomes)
    blocks: list[Block] = [table(judged, _CELLS)]
    said = f"{counted(len(judged), 'run')}: {fired:,} with findings, {unjudged:,} without a verdict."
    blocks.append(Line(said, whole=True))
    if out is not None:
        blocks.append(Line(f"Reports: {out}", whole=True))
    return CommandResult(
        document={
            "schema_version": SCHEMA_VERSION,
            "reading": _READING,
            "defaults": defaults,
            "source": shown_path(source),
            "out": None if out is None else shown_path(str(out)),
            "healthy": all(each.healthy for each in outcomes),
            "evaluated": not unjudged,
            "fired": sorted({rule for each in outcomes for rule in each.fired}),
            "runs": [
                {"run": shown_path(place), "error": outcome.fault}
                if outcome.fault is not None
                else {"run": shown_path(place), **document_of(outcome, reading=_READING, defaults=defaults, out=below)}
                for place, below, outcome in judged
            ],
            "notes": list(found.notes),
        },
        blocks=blocks,
        notes=[*found.notes, *_notes(judged)],
        fired=bool(fired),
        evaluated=not unjudged,
    )


_CELLS: Mapping[TerminalColumn, Callable[[_Judged], Shown]] = {
    TerminalColumn("status"): lambda each: status_cell(_status(each[2])),
    TerminalColumn("run"): lambda each: each[0],
    TerminalColumn("verdict", folds=True): lambda each: _line(each[2]),
    TerminalColumn("rules that fired"): lambda each: ", ".join(each[2].fired),
}


def _judged(
    source: str, found: FoundRuns, judge: Callable[..., Analysis], progress: ProgressBar, out: Path | None
) -> Iterator[_Judged]:
    shown = shown_places(source, found.runs)
    with progress.of_objects(len(found.runs), sum(each.size for each in found.runs)):
        for run, place, folder in zip(found.runs, shown, folder_names(source, shown), strict=True):
            below = None if out is None else out / folder
            try:
                outcome = judge(run.open(), progress=None)
                if below is not None:
                    write_files(below, outcome.files)
                # Their names are enough from here on.
                yield place, below, replace(outcome, files=dict.fromkeys(outcome.files, b""))
            except OutputError:
                raise
            except TrainGuardError as fault:
                yield place, None, Analysis(place=place, fault=f"Not read: {fault}")
            except Exception as fault:
                # A reader that fails in a way nobody thought of costs its own run and no other.
                yield place, None, Analysis(place=place, fault=f"Not read: {error_text(fault)}")
            progress.applied(run.size, None)


def _notes(judged: Sequence[_Judged]) -> Iterator[str]:
    """Yield what people must know of several runs once, of one with its place."""
    said: dict[str, list[str]] = {}
    for place, _, outcome in judged:
        for note in outcome.notes:
            said.setdefault(note, []).append(place)
    for note, places in said.items():
        whose = places[0] if len(places) == 1 else f"{len(places):,} runs"
        yield note if len(places) == len(judged) else f"{whose}: {note}"
