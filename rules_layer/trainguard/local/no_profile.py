"""A job that has no profile: what it saved of its training is all there is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainguard.errors import ObjectMissingError
from trainguard.ports import ByteStream


@dataclass(frozen=True, slots=True)
class NoProfile:
    """A source without files.

    Parameters
    ----------
    place : str
        Where the job's files lie, as a person reads it.
    job : str
        The name of the job's folder.
    read_beside : callable
        Returns what a file in the job's folder holds, by its name and the most bytes; None where there is none.
    """

    place: str
    job: str
    read_beside: Callable[[str, int], bytes | None]

    def names(self) -> Sequence[str]:
        """Return no name."""
        return []

    def size(self, name: str) -> int:
        """Refuse: there is no file."""
        raise ObjectMissingError(self.place, name)

    def read(self, name: str) -> bytes:
        """Refuse: there is no file."""
        raise ObjectMissingError(self.place, name)

    def open(self, name: str) -> ByteStream:
        """Refuse: there is no file."""
        raise ObjectMissingError(self.place, name)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Refuse: there is no file."""
        del start, length
        raise ObjectMissingError(self.place, name)

    def beside(self, name: str, max_bytes: int) -> bytes | None:
        """Return what a file in the job's folder holds, at most one byte more than ``max_bytes``."""
        return self.read_beside(name, max_bytes)
