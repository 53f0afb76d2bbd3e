"""The runs of a gate: tables, kernel traces, and all that `analyze` reads."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainguard.core.errors import NoProfileError, ProfileSourceError, TelemetryFormatError
from trainguard.gate.runs import GateRun
from trainguard.local.gate_table import SUFFIXES, table_run

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients

_MOST_TABLES = 1_000


def gate_run(place: str, clients: "Clients | None" = None) -> GateRun:
    """Read a run: a table, or the one run at a place as `open_job` finds it; raises as that does."""
    path = Path(place)
    if path.is_file() and (found := table_run(path)) is not None:
        return found
    # Most gates read tables, and need not wait for what reads a profile.
    from trainguard.local.gate_profile import profile_run
    from trainguard.local.runs import open_job

    try:
        profile = open_job(place, clients)
    except NoProfileError:
        from trainguard.local.gate_traces import traces_run

        if path.is_dir() and (found := _table_in(path) or traces_run(place)) is not None:
            return found
        raise
    return profile_run(place, profile)


def _table_in(folder: Path) -> GateRun | None:
    """Return the one table of a run that a folder holds, None where there is none; raises ProfileSourceError."""
    files = sorted(each for each in folder.iterdir() if each.suffix.lower() in SUFFIXES and each.is_file())
    found = [run for file in files[:_MOST_TABLES] if (run := _table_or_none(file)) is not None]
    if len(found) > 1:
        pattern = str(folder / f"*{Path(found[0].place).suffix}")
        raise ProfileSourceError(
            str(folder), f"holds {len(found):,} tables: name one, or a pattern such as {pattern!r}"
        )
    return replace(found[0], place=str(folder)) if found else None


def _table_or_none(file: Path) -> GateRun | None:
    try:
        return table_run(file)
    except TelemetryFormatError:
        return None
