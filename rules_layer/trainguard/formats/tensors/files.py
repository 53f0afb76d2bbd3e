"""Where the files of a run are read from: names below one folder, whole or by ranges."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from trainguard.core.ports import ProfileObjects


class RunFiles(Protocol):
    """The files of one run; a name is relative to the run's folder, with slashes."""

    def get(self, name: str, max_bytes: int) -> bytes:
        """Return at most ``max_bytes + 1`` bytes: one more says "too large". Raises ObjectMissingError."""
        ...

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from offset ``start`` on; fewer, or none, where the file ends."""
        ...

    def names(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Iterate over the names that begin with ``prefix`` and are greater than ``start_after``, in order."""
        ...


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """A run's files in a bucket, below a key prefix that ends in a slash; raises as `ProfileObjects` does."""

    objects: ProfileObjects
    bucket: str
    prefix: str

    def get(self, name: str, max_bytes: int) -> bytes:
        """Return an object's bytes, at most ``max_bytes + 1`` of them."""
        return self.objects.get(self.bucket, self.prefix + name, max_bytes)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes of an object from offset ``start`` on."""
        return self.objects.get_range(self.bucket, self.prefix + name, start, length)

    def names(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Iterate over the names of objects that begin with ``prefix``, in UTF-8 order."""
        after = self.prefix + start_after if start_after else ""
        for each in self.objects.list(self.bucket, self.prefix + prefix, after):
            yield each.key.removeprefix(self.prefix)
