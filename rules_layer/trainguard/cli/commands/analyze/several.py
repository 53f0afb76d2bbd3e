"""``trainguard analyze`` of several runs: a line for each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainguard.cli.commands.analyze.outcome import (
    NOTHING_EVALUATED,
    SCHEMA_VERSION,
    Outcome,
    document_of,
    shown_path,
)
from trainguard.cli.output.files import write_files
from trainguard.cli.output.progress import Progress
from trainguard.cli.output.rendering import Block, Column, Line, Shown, status_cell, table
from trainguard.cli.output.result import CommandResult
from trainguard.core.errors import OutputError, TrainGuardError
from trainguard.core.records import Status
from trainguard.core.units import counted
from trainguard.local.fleet import folder_names, shown_places
from trainguard.local.runs import FoundRuns

_READING = "documented"


@dataclass(frozen=True, slots=True)
class _Judged:
    """A run; ``outcome`` is None of one that could not be read, and ``fault`` says why."""

    place: str
    out: Path | None
    outcome: Outcome | None = None
    fault: str = ""

    @property
    def status(self) -> Status:
        if self.outcome is None:
            return Status.ERROR
        if self.outcome.fired:
            return Status.FIRED
        return Status.OK if self.outcome.evaluated else Status.NOT_APPLICABLE

    @property
    def line(self) -> str:
        if self.outcome is None:
            return self.fault
        if not self.outcome.evaluated:
            return NOTHING_EVALUATED
        verdict = self.outcome.verdict
        return self.outcome.summary or "" if verdict is None else verdict.health


def several_outcomes(
    source: str,
    found: FoundRuns,
    judge: Callable[..., Outcome],
    progress: Progress,
    out: Path | None,
    *,
    defaults: str,
) -> CommandResult:
    """Judge each run, and write its reports into a folder below ``out``; the exit code is that of the worst.

    Raises OutputError.
    """
    judged = list(_judged(source, found, judge, progress, out))
    fired = [each for each in judged if each.outcome is not None and each.outcome.fired]
    unjudged = [each for each in judged if each.outcome is None or not each.outcome.evaluated]
    blocks: list[Block] = [table(judged, _CELLS)]
    said = f"{counted(len(judged), 'run')}: {len(fired):,} with findings, {len(unjudged):,} without a verdict."
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
            "healthy": all(each.outcome is not None and each.outcome.healthy for each in judged),
            "evaluated": not unjudged,
            "fired": sorted({rule for each in fired if each.outcome is not None for rule in each.outcome.fired}),
            "runs": [_document(each, defaults) for each in judged],
            "notes": list(found.notes),
        },
        blocks=blocks,
        notes=[*found.notes, *_notes(judged)],
        fired=bool(fired),
        evaluated=not unjudged,
    )


_CELLS: Mapping[Column, Callable[[_Judged], Shown]] = {
    Column("status"): lambda each: status_cell(each.status),
    Column("run"): lambda each: each.place,
    Column("verdict", folds=True): lambda each: each.line,
    Column("rules that fired"): lambda each: ", ".join([] if each.outcome is None else each.outcome.fired),
}


def _judged(
    source: str, found: FoundRuns, judge: Callable[..., Outcome], progress: Progress, out: Path | None
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
                yield _Judged(place, below, replace(outcome, files=dict.fromkeys(outcome.files, b"")))
            except OutputError:
                raise
            except TrainGuardError as fault:
                yield _Judged(place, None, fault=f"Not read: {fault}")
            except Exception as fault:
                # A reader that fails in a way nobody thought of costs its own run and no other.
                yield _Judged(place, None, fault=f"Not read: {type(fault).__name__}: {fault}")
            progress.applied(run.size, None)


def _document(judged: _Judged, defaults: str) -> dict[str, Any]:
    if judged.outcome is None:
        return {"run": shown_path(judged.place), "error": judged.fault}
    return {
        "run": shown_path(judged.place),
        **document_of(judged.outcome, reading=_READING, defaults=defaults, out=judged.out),
    }


def _notes(judged: Sequence[_Judged]) -> Iterator[str]:
    """Yield what people must know of several runs once, of one with its place."""
    said: dict[str, list[str]] = {}
    for each in judged:
        for note in () if each.outcome is None else each.outcome.notes:
            said.setdefault(note, []).append(each.place)
    for note, places in said.items():
        yield (
            note
            if len(places) == len(judged)
            else f"{places[0] if len(places) == 1 else f'{len(places):,} runs'}: {note}"
        )
