"""A job's report as the stack makes it: from state seconds after a fire, and with time lines from a run's parts.

A run that was planned later has read all that an earlier one has. Before it writes it marks the earlier ones; a run
that finds its own mark leaves the report as it is::

    earlier run   plan ....................... put together -> is marked: writes nothing
    later run              plan .. put together -> marks -> writes

Of runs planned within a second of S3's clock, the last one to write stays.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from trainguard.core.errors import (
    ObjectMissingError,
    ReportPartError,
    TelemetryFormatError,
    TimelinePartError,
    UnknownJobError,
)
from trainguard.core.layout import report_links
from trainguard.core.ports import ProfileObjects
from trainguard.core.records import JobRecord, StreamRecord
from trainguard.core.stores import Jobs, NodeStates
from trainguard.core.timestamps import iso_time
from trainguard.engine.jobs.hang_watch import with_hang
from trainguard.engine.streams.session import items_of
from trainguard.formats.profile.keys import SystemKey, parse_key
from trainguard.hangs.files import hang_of
from trainguard.report.job.build import build_report, write_report
from trainguard.report.timeline.digest import NodeDigest, decode_digest
from trainguard.report.training.digest import TrainingDigest, joined
from trainguard.report.training.read import decode_part as decode_run
from trainguard.report.training.read import decode_scalars
from trainguard.stack.report.parts import DAY_S, PARTS_TYPE, DigestItem, RunPlace, decode_items, decode_part
from trainguard.stack.report.plan import require_state

_MARK = "overtaken"


MAX_PART_BYTES = 64 * 1024 * 1024
# An execution ends within a day: older parts are of one that was stopped before it could delete them.
ABANDONED_S = 2 * DAY_S

# Days whose parts are read at once: as many connections as a client keeps.
_AT_ONCE = 10

_AHEAD = 50

# Sentences on missing parts; the rest is counted in one.
MOST_NAMED = 10

_Body = tuple[str, bytes]


class BuildCall(msgspec.Struct, frozen=True):
    """The job to report on, from the parts of ``run``, or from its state; ``drop`` deletes the parts."""

    job: str
    run: str | None = None
    drop: bool = False
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class StackReports:
    """Writes reports, from state or from the parts of a run, and deletes the parts."""

    jobs: Jobs
    nodes: NodeStates
    objects: ProfileObjects

    def answer(self, call: BuildCall, *, now: float) -> dict[str, Any]:
        """Return the place of the page and the number of files; with ``drop``, how many parts were deleted."""
        if call.run and call.drop:
            return {"dropped": self.drop(call.job, call.run, now=now)}
        if call.run:
            page, files = self.full(call.job, call.run, now=now)
        else:
            write = {"hang": self.of_hang, "fire": self.of_fire}.get(call.kind or "", self.from_state)
            page, files = write(call.job, now=now)
        return {"reportUri": page, "files": files}

    def of_fire(self, name: str, *, now: float) -> tuple[str, int]:
        """Write the report as `from_state` does, unless the full report was started before."""
        job = self._job(name)
        return self.from_state(name, now=now) if job.active else (_page(job), 0)

    def of_hang(self, name: str, *, now: float) -> tuple[str, int]:
        """Read the dumps of a job that stands still, and write the report as `of_fire` does."""
        job = self._job(name)
        hang_of(self.objects, job.bucket, job.root)
        return self.of_fire(name, now=now)

    def from_state(self, name: str, *, now: float) -> tuple[str, int]:
        """Write the report of a job's state; return its page's place and of how many files it is.

        Raises UnknownJobError, and StateGoneError when the state has expired.
        """
        job = self._job(name)
        items = items_of(job, self.nodes)
        require_state(job, items)
        built = build_report(job, self._with_dumps(job, items), now=now)
        return _page(job), write_report(self.objects, job, built)

    def full(self, name: str, run: str, *, now: float) -> tuple[str, int]:
        """Write a report with a run's time lines, unless a later run has one; UnknownJobError, ReportPartError."""
        job = self._job(name)
        digests, missing, training = self._gather(job, run)
        if not self._may_write(job, run):
            return _page(job), 0
        items = self._with_dumps(job, items_of(job, self.nodes))
        built = build_report(job, items, now=now, digests=digests, missing=missing)
        if training is not None:
            built = built.with_training(training)
        return _page(job), write_report(self.objects, job, built)

    def drop(self, name: str, run: str, *, now: float) -> int:
        """Delete all files of a run, and others' older than any run; return how many. Raises UnknownJobError."""
        job = self._job(name)
        place = RunPlace(job.root, run)
        keys = [
            listed.key
            for listed in self.objects.list(job.bucket, place.all_runs, "")
            if listed.key.startswith(place.folder) or now - listed.last_modified > ABANDONED_S
        ]
        self.objects.delete(job.bucket, keys)
        return len(keys)

    def _with_dumps(self, job: JobRecord, items: Sequence[StreamRecord]) -> Sequence[StreamRecord]:
        hang = hang_of(self.objects, job.bucket, job.root)
        return items if hang is None else with_hang(job, items, hang)

    def _job(self, name: str) -> JobRecord:
        job = self.jobs.load(name)
        if job is None:
            raise UnknownJobError(name)
        return job

    def _may_write(self, job: JobRecord, run: str) -> bool:
        """Whether the report of a run is to be written; marks the runs that were planned before it."""
        place = RunPlace(job.root, run)
        planned: dict[str, float] = {}
        overtaken = set()
        for listed in self.objects.list(job.bucket, place.all_runs, ""):
            name, _, file = listed.key.removeprefix(place.all_runs).partition("/")
            if file == place.items.removeprefix(place.folder):
                planned[name] = listed.last_modified
            elif file == _MARK:
                overtaken.add(name)
        for name in sorted(planned.keys() - overtaken):
            if planned[name] < planned.get(run, 0.0):
                self.objects.put(job.bucket, f"{place.all_runs}{name}/{_MARK}", b"", PARTS_TYPE)
        return run not in overtaken

    def _gather(
        self, job: JobRecord, run: str
    ) -> tuple[tuple[NodeDigest, ...], tuple[str, ...], TrainingDigest | None]:
        """Read a digest a node, in order of names, sentences on unread parts, and a digest of debug-output.

        A lost part is lost for its day alone. Raises ReportPartError, ObjectMissingError.
        """
        place = RunPlace(job.root, run)
        items = decode_items(place.items, self.objects.get(job.bucket, place.items, MAX_PART_BYTES))
        keys: dict[tuple[str, str], dict[int, str]] = {}
        for listed in self.objects.list(job.bucket, place.nodes, ""):
            if parsed := place.parse_part(listed.key):
                node, date, number = parsed
                keys.setdefault((node, date), {})[number] = listed.key
        digests: dict[str, NodeDigest] = {}
        missing: list[str] = []
        unread = 0
        days = [item for item in items if not item.tensors]
        whole_run = next((item for item in items if item.tensors), None)
        training = None if whole_run is None else self._training(whole_run, missing)
        for item, parts in self._read_days(days, keys):
            whole = digests.setdefault(item.node, NodeDigest(item.node, item.axis))
            through, done, unread_of_day = _merge_day(parts, whole)
            unread += unread_of_day
            if not done:
                missing.append(_sentence(item, through))
        more = len(missing) - MOST_NAMED
        named = missing[:MOST_NAMED]
        if more > 0:
            named.append(f"{more} more days of nodes could not be read.")
        if unread:
            named.append(f"{unread} objects could not be read; the coverage says why.")
        return tuple(digests.values()), tuple(named), training

    def _training(self, item: DigestItem, missing: list[str]) -> TrainingDigest | None:
        """Read the digest of debug-output and files of scalars; ``missing`` gets what is not there."""
        name = item.place.training
        try:
            part = decode_run(self.objects.get(item.bucket, name, MAX_PART_BYTES), name)
            scalars = decode_scalars(part.scalars, name)
        except (ObjectMissingError, TelemetryFormatError):
            what = "The tensors of debug-output" if item.debug_output else "The files of scalars"
            missing.append(f"{what} could not be read.")
            return None
        if not part.done:
            missing.append(f"The tensors of debug-output could not be read{_after(part.digest)}.")
        if item.scalars and not scalars.done:
            missing.append(f"The files of scalars could not be read{_after(scalars.digest)}.")
        return joined(part.digest, scalars.digest)

    def _read_days(
        self, items: Sequence[DigestItem], keys: Mapping[tuple[str, str], Mapping[int, str]]
    ) -> Iterator[tuple[DigestItem, Sequence[_Body]]]:
        """Yield the items in order with the parts that are there of each; raises PortUnavailableError."""

        def read(item: DigestItem) -> list[_Body]:
            return list(self._bodies(item.bucket, keys.get((item.node, item.date), {})))

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="parts") as readers:
            for start in range(0, len(items), _AHEAD):
                ahead = items[start : start + _AHEAD]
                yield from zip(ahead, readers.map(read, ahead), strict=True)

    def _bodies(self, bucket: str, keys: Mapping[int, str]) -> Iterator[_Body]:
        """Yield the parts of a day up to the first that is missing."""
        for number in range(len(keys)):
            key = keys.get(number)
            if key is None:
                return
            try:
                yield key, self.objects.get(bucket, key, MAX_PART_BYTES)
            except ObjectMissingError:
                return


def _merge_day(parts: Sequence[_Body], whole: NodeDigest) -> tuple[str, bool, int]:
    """Merge the parts of a node's day, as far as each begins where the one before ends; return how far that came."""
    through, done, unread = "", False, 0
    for key, body in parts:
        try:
            part = decode_part(key, body)
            if done or part.after != through:
                break
            whole.merge(decode_digest(part.digest, key))
        except (ReportPartError, TimelinePartError):
            break
        through, done, unread = part.through, part.done, unread + part.unread
    return through, done, unread


def _sentence(item: DigestItem, through: str) -> str:
    """Say what of a node's day is missing; ``through`` is the last key that was read, in the order of a digest."""
    if not through:
        return f"{item.node} on {item.date}: the profile could not be read."
    parsed = parse_key(through)
    if isinstance(parsed, SystemKey):
        return f"{item.node} on {item.date}: system metrics could not be read after {iso_time(parsed.minute)}."
    return f"{item.node} on {item.date}: system metrics, and a part of the framework events, could not be read."


def _after(digest: TrainingDigest) -> str:
    return "" if digest.last_step is None else f" after step {digest.last_step}"


def _page(job: JobRecord) -> str:
    return report_links(job=job.job, arn=job.arn, bucket=job.bucket, prefix=job.prefix).page
