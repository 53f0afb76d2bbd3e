"""Runs of MLflow in a folder, ``mlruns/<experiment>/<run>``: its default store before version 3.7."""

import re
from collections.abc import Iterator
from pathlib import Path

from trainguard.sources.mlflow.logged import Logged, RunInfo, logged, run_of, whole
from trainguard.sources.run import SourceRun

META = "meta.yaml"
METRICS = "metrics"
_MOST_META_BYTES = 64 * 1024
_LINE = re.compile(r"(?P<name>[a-z_]+):[ ]+(?P<value>.*)")
_STATES = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
_AT, _VALUE, _STEP = 0, 1, 2


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is that of a run; raises OSError where it cannot be read."""
    return (folder / META).is_file() and (folder / METRICS).is_dir() and "run_id" in _meta(folder)


def read_run_folder(folder: Path) -> SourceRun:
    """Read the run of a folder; raises OSError where it cannot be read."""
    meta = _meta(folder)
    info = RunInfo(
        identity=meta.get("run_id", folder.name),
        name=meta.get("run_name", ""),
        status=_STATES.get(meta.get("status", ""), meta.get("status", "")),
        started_ms=whole(meta.get("start_time")),
        ended_ms=whole(meta.get("end_time")),
        user=meta.get("user_id", ""),
    )
    return run_of(info, _values(folder / METRICS))


def _meta(folder: Path) -> dict[str, str]:
    """Return the plain fields of ``meta.yaml``: MLflow writes one a line."""
    with (folder / META).open("rb") as opened:
        text = opened.read(_MOST_META_BYTES).decode("utf-8", "replace")
    found = (match for line in text.splitlines() if (match := _LINE.fullmatch(line)))
    return {match["name"]: match["value"].strip().strip("'\"") for match in found}


def _values(folder: Path) -> Iterator[Logged | None]:
    """Yield the values of every metric: a file's path is its name, a line has time, value and step."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        key = file.relative_to(folder).as_posix()
        with file.open("r", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if words:
                    yield _value(key, words)


def _value(key: str, words: list[str]) -> Logged | None:
    try:
        return logged(key, float(words[_VALUE]), int(words[_AT]), int(words[_STEP]) if len(words) > _STEP else 0)
    except (ValueError, IndexError):
        return None
