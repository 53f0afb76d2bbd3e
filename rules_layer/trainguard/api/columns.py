"""A table as named columns of equal length, which pandas takes as it is."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from trainguard.errors import MissingLibraryError

_ROWS_SHOWN = 20


class Columns(Mapping[str, Sequence[Any]]):
    """A read-only table; iterate over it for the names of its columns.

    Parameters
    ----------
    names : sequence of str
    rows : sequence of sequences
        Each as long as ``names``.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._rows = [tuple(row) for row in rows]
        self._columns = {name: [row[index] for row in self._rows] for index, name in enumerate(names)}

    def __getitem__(self, name: str) -> Sequence[Any]:
        """Return a column; KeyError when there is none of that name."""
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of columns, as of every mapping; `rows` has the rows."""
        return len(self._columns)

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows, each as a mapping by column."""
        return [dict(zip(self._columns, row, strict=True)) for row in self._rows]

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame; times stay epoch seconds.

        Raises
        ------
        MissingLibraryError
            When pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError as missing:
            raise MissingLibraryError("to_pandas", "pandas") from missing
        return pandas.DataFrame(self._columns, columns=list(self._columns))

    def __repr__(self) -> str:
        """Return the names and the number of rows."""
        return f"<Columns {', '.join(self._columns)}: {len(self._rows):,} rows>"

    def _repr_html_(self) -> str:
        """Return a table of the first rows, for a notebook."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self._columns)
        lines = (
            "<tr>" + "".join(f"<td>{'' if each is None else escape(str(each))}</td>" for each in row) + "</tr>"
            for row in self._rows[:_ROWS_SHOWN]
        )
        more = len(self._rows) - _ROWS_SHOWN
        rest = f"<p>and {more:,} more rows</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{rest}"
