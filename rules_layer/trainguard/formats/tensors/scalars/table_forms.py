"""Tables whose columns say nothing by themselves: of Monitor, of TensorBoard's download, and with a line a value.

Monitor of Stable Baselines (stable_baselines3/common/monitor.py) writes a line an episode below ``#{"t_start": …}``;
TensorBoard names a download ``run-RUN-tag-TAG.csv``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from trainguard.formats.tensors.scalars.run_folders import is_of_mode

_MONITOR = {"r": "episode_reward", "l": "episode_length", "t": "time_elapsed"}
_MONITOR_BEGINS = re.compile(r"\s*#\s*\{\s*\"t_start\"")
_DOWNLOAD = ["wall time", "step", "value"]
_DOWNLOADED = re.compile(r"run-(?P<run>.+?)-tag-(?P<tag>.+)")
# What a browser adds to the name of a second download.
_COPY = re.compile(r"\s?\(\d+\)$")

_CSV = ".csv"
# Columns of tables with a line for each value: of MLflow (mlflow/entities/metric.py, its database), and of scripts.
_LONG = {
    **dict.fromkeys(("key", "metric", "metric_name", "tag", "name", "variable"), "key"),
    **dict.fromkeys(("value", "metric_value"), "value"),
    **dict.fromkeys(("step", "global_step", "iteration", "epoch"), "step"),
    **dict.fromkeys(("run_id", "run_uuid", "run", "run_name", "dir_name"), "run"),
    "is_nan": "is_nan",
    **dict.fromkeys(("", "index", "time", "timestamp", "wall_time", "wall time", "experiment_id"), "beside"),
}


def begins_as_monitor(line: str) -> bool:
    return _MONITOR_BEGINS.match(line) is not None


def is_download(header: Sequence[str]) -> bool:
    return [each.strip().lower() for each in header] == _DOWNLOAD


def names_of_columns(file: str, above: Sequence[str], header: Sequence[str]) -> list[str]:
    """Return what the columns below a header hold, by the lines above it and the name of the file."""
    if any(map(begins_as_monitor, above)):
        return [_MONITOR.get(name, name) for name in header]
    return ["", header[1], tag_of(file)] if is_download(header) else list(header)


def tag_of(file: str) -> str:
    """Return the tag of a download by its name, after a run that says which mode it is of; else the name."""
    stem = _COPY.sub("", _table_in(file)[: -len(_CSV)])
    match = _DOWNLOADED.fullmatch(stem)
    if match is None:
        return stem
    mode = re.split(r"[-_./]", match["run"])[-1]
    return f"{mode}/{match['tag']}" if is_of_mode(mode) else match["tag"]


def _table_in(path: str) -> str:
    """Return the first table that a path names: a local one is read below its own name, as ``loss.csv/metrics.csv``."""
    return next((part for part in path.split("/") if part.lower().endswith(_CSV)), f"value{_CSV}")


@dataclass(slots=True)
class LongTable:
    """A table with a line for each value: the places of its columns, and what was taken."""

    places: Mapping[str, int]
    _values: list[tuple[int, float, str, float]] = field(default_factory=list)
    _run: str | None = None

    @classmethod
    def of(cls, header: Sequence[str]) -> "LongTable | None":
        """Return None of a header with other columns than such a table has."""
        meanings = [_LONG.get(name.strip().lower()) for name in header]
        places = {meaning: place for place, meaning in reversed(list(enumerate(meanings))) if meaning is not None}
        is_long = None not in meanings and {"key", "value", "step"} <= places.keys()
        return cls(places) if is_long else None

    def cell(self, meaning: str, cells: Sequence[str]) -> str:
        place = self.places.get(meaning, len(cells))
        return cells[place] if place < len(cells) else ""

    def is_of_other_run(self, cells: Sequence[str]) -> bool:
        """Whether a row is of another run than the first one."""
        run = self.cell("run", cells)
        self._run = run if self._run is None else self._run
        return run != self._run

    def add(self, line: int, step: float, key: str, value: float) -> None:
        self._values.append((line, step, key, value))

    def rows(self) -> Iterator[tuple[int, float, Mapping[str, float]]]:
        """Yield line, step and values: by steps, in the order of the file where a key goes back to earlier ones."""
        by_key: dict[str, list[float]] = {}
        for _, step, key, _ in self._values:
            by_key.setdefault(key, []).append(step)
        goes_back = any(later <= earlier for steps in by_key.values() for earlier, later in pairwise(steps))
        ordered = self._values if goes_back else sorted(self._values, key=lambda each: each[1])
        row: tuple[int, float, dict[str, float]] | None = None
        for line, step, key, value in ordered:
            if row is not None and (row[1] != step or key in row[2]):
                yield row
                row = None
            row = row or (line, step, {})
            row[2][key] = value
        if row is not None:
            yield row
