"""Runs in a bucket: the collections of a job, held from batch to batch, and other jobs' runs by name."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainguard.core.errors import ObjectMissingError, RunMissingError, TelemetryFormatError
from trainguard.core.layout import S3, ProfileRoot
from trainguard.core.ports import BucketFiles
from trainguard.engine.family import ObjectSource
from trainguard.formats.tensors.debug.json_files import (
    MAX_COLLECTIONS_BYTES,
    Collections,
    decode_collections,
    merge_collections,
)
from trainguard.formats.tensors.debug.keys import FOLDER, collections_name, matched_files, run_prefix
from trainguard.formats.tensors.debug.ledger import RunHistory

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainguard.formats.tensors.debug.run import DebugRun

# Jobs whose collections an evaluator holds: some hundred kilobytes each.
MOST_HELD = 32

# Collections files that are read of a job: workers of one script define the same collections.
MOST_READ = 64


@dataclass(slots=True)
class SharedRuns:
    """Collections of jobs by bucket and place, once all workers' are there: those do not change any more."""

    held: "dict[tuple[str, ProfileRoot], FoundCollections]" = field(default_factory=dict)

    def keep(self, bucket: str, root: ProfileRoot, found: "FoundCollections") -> None:
        """Hold a job's collections, in place of the oldest ones where there are many."""
        while len(self.held) >= MOST_HELD:
            del self.held[next(iter(self.held))]
        self.held[bucket, root] = found


class RunObjects(BucketFiles):
    """The files of a run in a bucket; one that is gone between its listing and its reading is a broken one."""

    __slots__ = ()

    @classmethod
    def of(cls, source: ObjectSource, root: ProfileRoot | None = None) -> "RunObjects":
        return cls(source.objects, source.bucket, run_prefix(root or source.root))

    def get(self, name: str, max_bytes: int) -> bytes:
        """Return at most ``max_bytes + 1`` bytes of a file; raises TelemetryFormatError when it is gone."""
        try:
            return self.objects.get(self.bucket, self.prefix + name, max_bytes)
        except ObjectMissingError as fault:
            raise TelemetryFormatError(self.prefix + name, "it is gone") from fault

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``start`` on; raises TelemetryFormatError when the file is gone."""
        try:
            return self.objects.get_range(self.bucket, self.prefix + name, start, length)
        except ObjectMissingError as fault:
            raise TelemetryFormatError(self.prefix + name, "it is gone") from fault


@dataclass(frozen=True, slots=True)
class FoundCollections:
    """The collections of a run, as far as readable; ``number`` of workers is None where no file says so."""

    workers: tuple[str, ...]
    number: int | None
    collections: Collections
    faults: dict[str, str]


def run_collections(source: ObjectSource, files: RunObjects) -> FoundCollections:
    """Return the collections of the source's run, of its first 64 workers; held once every worker has a file."""
    shared = source.shared if isinstance(source.shared, SharedRuns) else SharedRuns()
    held = shared.held.get((source.bucket, source.root))
    if held is not None:
        return held
    workers = tuple(sorted(file.worker for file in matched_files(files, "collections/") if file.kind == "collections"))
    read, faults = [], {}
    for worker in workers[:MOST_READ]:
        try:
            read.append(decode_collections(worker, files.get(collections_name(worker), MAX_COLLECTIONS_BYTES)))
        except TelemetryFormatError as fault:
            faults[worker] = str(fault)
    number = read[0].workers if read else None
    found = FoundCollections(workers, number, merge_collections(read), faults)
    if number is not None and len(workers) >= number:
        shared.keep(source.bucket, source.root, found)
    return found


def open_run(source: ObjectSource, collections: Collections, history: RunHistory) -> "DebugRun":
    from trainguard.formats.tensors.debug.run import DebugRun

    return DebugRun(RunObjects.of(source), collections, history, _other_runs(source))


def _other_runs(source: ObjectSource) -> "Callable[[str], DebugRun]":
    opened: dict[str, DebugRun] = {}

    def other_run(name: str) -> "DebugRun":
        if name not in opened:
            opened[name] = _find(source, name)
        return opened[name]

    return other_run


def _find(source: ObjectSource, name: str) -> "DebugRun":
    """Open another job's run, at its URI or where its job's profile may lie; raises RunMissingError."""
    from trainguard.formats.tensors.debug.run import find_run

    place = _place_of_uri(name) if name.startswith(S3) else source.place_of(name)
    places = [] if name.startswith(S3) else [ProfileRoot(source.root.prefix, name)]
    if place is not None and place[0] == source.bucket and place[1] not in places:
        places.append(place[1])
    for root in places:
        try:
            return find_run(RunObjects.of(source, root), name)
        except RunMissingError:
            continue
    elsewhere = (
        f"its own place is in bucket {place[0]}, which is not read" if place and place[0] != source.bucket else ""
    )
    if not places:
        raise RunMissingError(name, f"{elsewhere}, expected a run in s3://{source.bucket}/")
    where = " or ".join(f"s3://{source.bucket}/{run_prefix(root)}" for root in places)
    further = f"; {elsewhere}" if elsewhere else ""
    raise RunMissingError(name, f"no collections file that can be read, expected {where}collections/{further}")


def _place_of_uri(uri: str) -> tuple[str, ProfileRoot]:
    """Return bucket and place of ``s3://bucket/prefix/job``, or of its debug-output; raises RunMissingError."""
    bucket, _, path = uri.removeprefix(S3).partition("/")
    job = path.strip("/").removesuffix(f"/{FOLDER}")
    prefix, _, name = job.rpartition("/")
    if not bucket or not name or name == FOLDER:
        raise RunMissingError(uri, "it names no job, expected s3://<bucket>/<prefix>/<job>/debug-output")
    return bucket, ProfileRoot(f"{prefix}/" if prefix else "", name)
