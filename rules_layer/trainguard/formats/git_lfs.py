"""Pointers of Git LFS: what a repository holds in place of a large file that was not fetched.

The form is that of https://github.com/git-lfs/git-lfs, docs/spec.md: the first line names the version.
"""

from trainguard.core.errors import TelemetryFormatError

MARK = b"version https://git-lfs.github.com/spec/"
WHY = "is a pointer of Git LFS, expected the file itself: run `git lfs pull` in its repository"


def is_pointer(beginning: bytes) -> bool:
    """Whether a file is a pointer, by its first bytes, 7 or more."""
    return len(beginning) >= len(b"version") and MARK.startswith(beginning[: len(MARK)])


def refuse_pointer(name: str, beginning: bytes) -> None:
    """Raise TelemetryFormatError for a pointer."""
    if is_pointer(beginning):
        raise TelemetryFormatError(name, WHY)
