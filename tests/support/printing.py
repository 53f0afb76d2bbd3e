"""What functions print, kept in memory: in the place of pytest's capture where no test runs."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import NamedTuple, Protocol


class Captured(NamedTuple):
    """What was printed since the last reading."""

    out: str


class Output(Protocol):
    """What was printed, as pytest captures it."""

    @property
    def out(self) -> str:
        """Standard output."""
        ...


class Capture(Protocol):
    """Gives what was printed since it was last asked."""

    def readouterr(self) -> Output:
        """Return it."""
        ...


class Printed(io.StringIO):
    """Standard output of functions; ``taken`` is the number of bytes that were read so far."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def readouterr(self) -> Captured:
        """Return what was printed since the last reading, and forget it."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        self.taken += len(text.encode())
        return Captured(text)


@contextmanager
def printed() -> Iterator[Printed]:
    """Keep what is printed for a while."""
    kept = Printed()
    with redirect_stdout(kept):
        yield kept
