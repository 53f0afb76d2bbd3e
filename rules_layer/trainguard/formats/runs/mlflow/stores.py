"""Runs of MLflow in its stores on a disk: a folder, the default before version 3.7, or a SQLite database."""

import contextlib
import math
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from trainguard.core.errors import ProfileSourceError
from trainguard.formats.runs.length import is_length
from trainguard.formats.runs.mlflow.logged import MOST_VALUES, Logged, RunInfo, logged, run_of, whole
from trainguard.formats.runs.run import SourceRun

META = "meta.yaml"
METRICS, _PARAMS = "metrics", "params"
_LONGEST_PARAM = 100
_MOST_META_BYTES = 64 * 1024
_LINE = re.compile(r"(?P<name>[a-z_]+):[ ]+(?P<value>.*)")
_STATES = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}


def is_run_folder(folder: Path) -> bool:
    return (folder / META).is_file() and (folder / METRICS).is_dir() and "run_id" in _meta(folder)


def read_run_folder(folder: Path) -> SourceRun:
    meta = _meta(folder)
    info = RunInfo(
        identity=meta.get("run_id", folder.name),
        name=meta.get("run_name", ""),
        status=_STATES.get(meta.get("status", ""), meta.get("status", "")),
        started_ms=whole(meta.get("start_time")),
        ended_ms=whole(meta.get("end_time")),
        user=meta.get("user_id", ""),
    )
    return run_of(info, _logged_in(folder / METRICS), _params_in(folder / _PARAMS))


def _params_in(folder: Path) -> dict[str, object]:
    """Return the parameters that say how long the run will be: a file each, which its name says."""
    files = sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
    chosen = [each for each in files if is_length(each.name) and each.is_file() and not each.is_symlink()]
    return {each.name: each.open("rb").read(_LONGEST_PARAM).decode("utf-8", "replace") for each in chosen}


def _meta(folder: Path) -> dict[str, str]:
    """Return the plain fields: MLflow writes one a line."""
    with (folder / META).open("rb") as opened:
        text = opened.read(_MOST_META_BYTES).decode("utf-8", "replace")
    found = (match for line in text.splitlines() if (match := _LINE.fullmatch(line)))
    return {match["name"]: match["value"].strip().strip("'\"") for match in found}


def _logged_in(folder: Path) -> Iterator[Logged | None]:
    """Yield the values of every metric: a file's path is its name, a line has time, value and step."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        key = file.relative_to(folder).as_posix()
        with file.open("r", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if not words:
                    continue
                try:
                    at, value, step = int(words[0]), float(words[1]), int(words[2]) if len(words) > 2 else 0
                    yield logged(key, value, at, step)
                except (ValueError, IndexError):
                    yield None


_MAGIC = b"SQLite format 3\x00"
_TABLES = ("metrics", "runs")
_BUSY_S = 10.0
_LONGEST_VALUE = 1_000_000
_MOST_RUNS, _MOST_PARAMS = 100_000, 10_000
_RUNS = "SELECT run_uuid, name, status, start_time, end_time, user_id FROM runs WHERE lifecycle_stage = 'active'"
_VALUES = "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, step LIMIT ?"


def is_database(file: Path) -> bool:
    """Whether a file is a database of MLflow; raises OSError where it cannot be read."""
    with file.open("rb") as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            return False
    try:
        with _opened(file) as database:
            return _is_ours(database)
    except sqlite3.Error:
        return False


def database_runs(file: Path) -> list[RunInfo]:
    """Return the runs that were not deleted, in order of their start; raises ProfileSourceError."""
    with _reading(file) as database:
        rows = database.execute(f"{_RUNS} ORDER BY start_time, run_uuid LIMIT {_MOST_RUNS}").fetchall()
    return [_info(row) for row in rows if isinstance(row[0], str)]


def read_database_run(file: Path, identity: str) -> SourceRun:
    with _reading(file) as database:
        found = database.execute(f"{_RUNS} AND run_uuid = ?", (identity,)).fetchone()
        if found is None:
            raise ProfileSourceError(str(file), f"has no run {identity!r}")
        return run_of(_info(found), _values(database, identity), _params(database, identity))


def _values(database: sqlite3.Connection, identity: str) -> Iterator[Logged | None]:
    for key, value, at_ms, step, is_nan in database.execute(_VALUES, (identity, MOST_VALUES + 1)):
        yield logged(key, math.nan if is_nan else value, at_ms, step)


def _params(database: sqlite3.Connection, identity: str) -> dict[str, object]:
    """Return the parameters that say how long the run will be; none of a database without a table of them."""
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'params'").fetchone()
    if found is None:
        return {}
    rows = database.execute("SELECT key, value FROM params WHERE run_uuid = ? LIMIT ?", (identity, _MOST_PARAMS))
    return {key: value for key, value in rows if isinstance(key, str) and is_length(key)}


def _info(row: tuple[object, ...]) -> RunInfo:
    identity, name, status, started, ended, user = row
    return RunInfo(
        identity=str(identity),
        name=name if isinstance(name, str) else "",
        status=str(status),
        started_ms=started if isinstance(started, int) else None,
        ended_ms=ended if isinstance(ended, int) else None,
        user=user if isinstance(user, str) else "",
    )


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[sqlite3.Connection]:
    try:
        with _opened(file) as database:
            if not _is_ours(database):
                raise ProfileSourceError(str(file), "is no database of MLflow: it has no tables runs and metrics")
            yield database
    except sqlite3.Error as fault:
        raise ProfileSourceError(str(file), f"cannot be read: {fault}") from fault


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a database that somebody else made: nothing in it is run, and nothing is written."""
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=_BUSY_S)) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
            database.execute(f"PRAGMA {pragma}")
        yield database


def _is_ours(database: sqlite3.Connection) -> bool:
    """Whether both are tables: a view could compute without end."""
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name IN (?, ?)", _TABLES)
    return {name for (name,) in found} == set(_TABLES)
