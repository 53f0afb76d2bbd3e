"""Lines of a file that somebody else made: one without an end is read in pieces, so that memory stays bounded."""

from collections.abc import Iterator
from typing import Protocol, TypeVar

Line = TypeVar("Line", bytes, str)
Line_co = TypeVar("Line_co", bytes, str, covariant=True)


class LineReader(Protocol[Line_co]):
    """A file that is read by lines."""

    def readline(self, size: int, /) -> Line_co:
        """Return up to ``size`` of a line, with its end; nothing at the file's end."""
        ...


def bounded_lines(file: LineReader[Line], longest: int) -> Iterator[Line]:
    """Yield lines; pieces of ``longest`` of a longer one."""
    while line := file.readline(longest):
        yield line
