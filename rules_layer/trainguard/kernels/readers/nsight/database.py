"""An export as tables, opened so that nothing in it can run: read-only, ordinary tables and stored columns alone."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from trainguard.core.errors import KernelTraceError
from trainguard.kernels.columns import LONGEST_NAME, MOST_NAME_BYTES, MOST_ROWS
from trainguard.kernels.readers.builder import text_of

# What reading a broken database raises: its message may be no text.
FAULTS = (sqlite3.Error, UnicodeError, OverflowError)

BATCH_ROWS = 4_000
_LARGEST_ROW = 16 * 1024 * 1024
_TEXTS = {("NVTX_EVENTS", "text"), ("StringIds", "value"), ("TARGET_INFO_GPU", "name")}
_TEXTS |= {
    ("TARGET_INFO_GPU_METRICS", "metricName"),
    ("TARGET_INFO_SYSTEM_ENV", "value"),
    ("META_DATA_EXPORT", "value"),
}
"""Columns of texts: only the front of each is read."""

_STEPS_BETWEEN_LOOKS = 1_000_000
_MOST_STEPS = 20_000 * 1_000_000
_NAMES: Final = "StringIds"
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _LARGEST_ROW,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 2,
}
_PRAGMAS = ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0", "cache_size=-16384")


class Export:
    """An export in a file that nobody writes to; ``columns`` are the stored ones of each ordinary table.

    ``tally`` counts ``refused_tables`` (views and virtual tables), ``refused_columns`` (computed ones) and
    ``unreadable_parts``. Raises KernelTraceError when it is no database.
    """

    def __init__(self, name: str, path: Path, tally: Counter[str]) -> None:
        self._name = name
        self._tally = tally
        self._rows = 0
        self._texts: dict[int, str] = {}
        try:
            self._base = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
            self._guard()
            self.columns = self._described()
        except FAULTS as fault:
            raise KernelTraceError(name, f"a broken SQLite database ({fault})") from fault
        self._text_of = self._lookup()

    def __enter__(self) -> "Export":
        return self

    def __exit__(self, *_: object) -> None:
        self._base.close()

    def rows(self, table: str, wanted: Sequence[str]) -> Iterator[tuple[list[Any], ...]]:
        """Yield some rows at a time, by column, None for one that is missing; a broken one ends, counted."""
        stored = self.columns.get(table, set())
        held = [column for column in wanted if column in stored]
        if not held:
            return
        listed = ", ".join(_selected(table, column) for column in held)
        try:
            cursor = self._base.execute(f'SELECT {listed} FROM "{table}"')  # noqa: S608 - names of this package
            while found := cursor.fetchmany(BATCH_ROWS):
                self._rows += len(found)
                if self._rows > MOST_ROWS:
                    raise KernelTraceError(self._name, f"over {MOST_ROWS:,} rows, expected a trace of some steps")
                by_name = dict(zip(held, map(list, zip(*found, strict=True)), strict=True))
                yield tuple(by_name.get(column) or [None] * len(found) for column in wanted)
        except FAULTS:
            self._tally["unreadable_parts"] += 1

    def text(self, number: Any) -> str:
        if not isinstance(number, int):
            return ""
        found = self._texts.get(number)
        if found is None:
            found = self._texts[number] = self._text_of(number)
        return found

    def _guard(self) -> None:
        self._base.text_factory = bytes
        for limit, most in _LIMITS.items():
            self._base.setlimit(limit, most)
        for pragma in _PRAGMAS:
            self._base.execute(f"PRAGMA {pragma}")
        looks = iter(range(_MOST_STEPS // _STEPS_BETWEEN_LOOKS))
        self._base.set_progress_handler(lambda: next(looks, None) is None, _STEPS_BETWEEN_LOOKS)
        self._base.set_authorizer(_authorized)

    def _described(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        kinds = self._base.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        for kind, name, statement in kinds:
            if kind not in (b"table", b"view") or not isinstance(name, bytes):
                continue
            is_plain = isinstance(statement, bytes) and statement.lstrip()[:12].upper() == b"CREATE TABLE"
            table = name.decode("utf-8", "replace")
            if kind != b"table" or not is_plain or '"' in table:
                self._tally["refused_tables"] += table.startswith(("CUPTI_", "NVTX_", "TARGET_", _NAMES))
                continue
            found[table] = set()
            for column in self._base.execute(f'PRAGMA table_xinfo("{table}")'):
                if column[6]:
                    self._tally["refused_columns"] += 1
                else:
                    found[table].add(column[1].decode("utf-8", "replace"))
        return found

    def _lookup(self) -> Callable[[int], str]:
        """Return what finds a text: by key where the numbers are one, else in all that were read."""
        if not {"id", "value"} <= self.columns.get(_NAMES, set()):
            return lambda _: ""
        keyed = self._base.execute(f'PRAGMA table_xinfo("{_NAMES}")').fetchall()
        if any(column[1] == b"id" and column[5] == 1 for column in keyed):
            return self._by_key
        texts: dict[int, str] = {}
        spent = 0
        for numbers, values in self.rows(_NAMES, ("id", "value")):
            for number, value in zip(numbers, values, strict=True):
                shown = text_of(value)
                spent += len(shown)
                if spent > MOST_NAME_BYTES:
                    raise KernelTraceError(self._name, f"names of over {MOST_NAME_BYTES:,} bytes, expected less")
                texts[number] = shown
        return lambda number: texts.get(number, "")

    def _by_key(self, number: int) -> str:
        try:
            query = f'SELECT {_selected(_NAMES, "value")} FROM "{_NAMES}" WHERE "id" = ?'  # noqa: S608
            row = self._base.execute(query, (number,)).fetchone()
        except FAULTS:
            self._tally["unreadable_parts"] += 1
            return ""
        return text_of(row[0]) if row else ""


def _selected(table: str, column: str) -> str:
    return f'substr("{column}", 1, {LONGEST_NAME})' if (table, column) in _TEXTS else f'"{column}"'


def _authorized(action: int, first: str | None, second: str | None, *_: object) -> int:
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ):
        return sqlite3.SQLITE_OK
    wanted = (action == sqlite3.SQLITE_PRAGMA and first == "table_xinfo") or (
        action == sqlite3.SQLITE_FUNCTION and second == "substr"
    )
    return sqlite3.SQLITE_OK if wanted else sqlite3.SQLITE_DENY
