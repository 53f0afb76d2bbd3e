"""Profiles on disk for the tests of the local engine."""

from collections.abc import Iterable
from pathlib import Path

from tests.support.small_job import Upload, uploads


def write(folder: Path, objects: Iterable[Upload] | None = None) -> Path:
    """Write a job's objects below a folder, as S3 would hold them; return the job's folder."""
    written = list(uploads() if objects is None else objects)
    for upload in written:
        file = folder / upload.key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(upload.body)
    return folder / written[0].key.partition("/")[0]
