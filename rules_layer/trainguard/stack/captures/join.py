"""The digests of a capture and of a job's snapshots to its verdict, its document and its page."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from trainguard.core.errors import ObjectMissingError, PortUnavailableError, TelemetryFormatError
from trainguard.core.ports import ProfileObjects, StreamTask, TaskQueue
from trainguard.engine.streams.session import STREAM_SILENT_S
from trainguard.kernels.captures.capture import capture_verdict, rank_place, snapshot_verdict
from trainguard.kernels.captures.digest import (
    MOST_BRIEF_BYTES,
    MOST_FULL_BYTES,
    BriefDigest,
    decode_brief,
    decode_full,
    restored,
)
from trainguard.kernels.captures.keys import (
    ALL_RANKS,
    DIGESTS,
    DOCUMENT,
    FILES,
    FOLDER,
    KERNELS,
    PAGE,
    RUNS,
    VERDICT,
    capture_folder,
    run_folder,
)
from trainguard.kernels.document import AcrossRanks, JobEntry, KernelProfiles, RankProfile, encode_profiles
from trainguard.kernels.join import across_ranks
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.timeline.build import MOST_RANKS, Timeline
from trainguard.kernels.verdict import CaptureHead, CaptureVerdict, SnapshotsHead, SnapshotVerdict, encode_verdict
from trainguard.report.html.kernels.page import render_kernels
from trainguard.stack.captures.plan import ITEMS, TRACES, CaptureCall, PlannedTraces, TraceItem

LISTED_RANKS = 64
AT_ONCE = 10
# Digests are kept for a rank that comes late.
KEPT_S = 2 * 86_400.0

LEFT_OUT = "{:,} traces beyond the most that a capture may have are left out."
SNAPSHOTS_LEFT_OUT = "{:,} memory snapshots beyond the most that are read are left out."
MOST_LIST_BYTES = 16 * 1024 * 1024


_Read = tuple[TraceItem, RankProfile]
_Profile = TypeVar("_Profile", RankProfile, SnapshotProfile)


@dataclass(frozen=True, slots=True)
class CaptureJoiner:
    """Joins the ranks of captures; ``facts`` describes a job, or gives None, and raises PortUnavailableError."""

    objects: ProfileObjects
    facts: Callable[[str], JobEntry | None]

    def join(self, call: CaptureCall, *, now: float) -> tuple[CaptureVerdict, Exception | None]:
        """Write a capture's files, the verdict last; return it, and why there is no page although there should be one.

        Raises PortUnavailableError, ObjectMissingError.
        """
        planned = self._planned(call)
        read, unread = self._digests(planned.items, lambda digest: digest.profile)
        profiles = [profile for _, profile in read]
        across = across_ranks(profiles)
        snapshots, judged, unread_too = self._snapshots(planned)
        verdict = capture_verdict(_head(call, planned), profiles, across, unread, judged)
        document, drawn = self._document(call, read, across, {**unread, **unread_too})
        document = replace(
            document, snapshots=snapshots[:LISTED_RANKS], snapshots_left_out=len(snapshots[LISTED_RANKS:])
        )
        files = {DOCUMENT: encode_profiles(document)}
        page_fault: Exception | None = None
        try:
            if read or snapshots:
                files[PAGE] = render_kernels(document, drawn).encode()
        except Exception as fault:
            page_fault = fault
        self._write(call, files, encode_verdict(verdict))
        self._clean(call, now)
        return verdict, page_fault

    def _planned(self, call: CaptureCall) -> PlannedTraces:
        key = run_folder(call.root, call.run) + TRACES
        body = self.objects.get(call.bucket, key, MOST_LIST_BYTES)
        try:
            return msgspec.json.decode(body, type=PlannedTraces)
        except (msgspec.DecodeError, UnicodeError) as fault:
            raise TelemetryFormatError(key, f"{fault}, expected the list of a capture's traces") from fault

    def _snapshots(
        self, planned: PlannedTraces
    ) -> tuple[list[SnapshotProfile], SnapshotVerdict | None, Mapping[str, str]]:
        """Return snapshots, those with findings first, the verdict on them, and why others could not be read."""
        snapshots = planned.snapshots
        if snapshots is None:
            return [], None, {}
        read, unread = self._digests(snapshots.items, lambda digest: digest.snapshot)
        profiles = [profile for _, profile in read]
        left_out = [SNAPSHOTS_LEFT_OUT.format(snapshots.left_out)] if snapshots.left_out else []
        head = SnapshotsHead(version=snapshots.version, at=snapshots.at, replaced=snapshots.replaced, notes=left_out)
        return sorted(profiles, key=lambda each: not each.findings), snapshot_verdict(head, profiles, unread), unread

    def _digests(
        self, items: Sequence[TraceItem], wanted: Callable[[BriefDigest], _Profile | None]
    ) -> tuple[list[tuple[TraceItem, _Profile]], dict[str, str]]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            digests = list(pool.map(self._brief, items))
        found, unread = [], {}
        for item, digest in zip(items, digests, strict=True):
            profile = wanted(digest)
            if profile is None:
                unread[item.name] = digest.fault or "its digest is empty"
            else:
                found.append((item, profile))
        return sorted(found, key=lambda each: rank_place(each[1])), unread

    def _brief(self, item: TraceItem) -> BriefDigest:
        key = item.digest("brief")
        try:
            return decode_brief(key, self.objects.get(item.bucket, key, MOST_BRIEF_BYTES))
        except ObjectMissingError:
            return BriefDigest(fault="its digest failed at every attempt")
        except TelemetryFormatError as fault:
            return BriefDigest(fault=fault.reason)

    def _document(
        self, call: CaptureCall, read: Sequence[_Read], across: AcrossRanks | None, unread: Mapping[str, str]
    ) -> tuple[KernelProfiles, list[tuple[RankProfile, Timeline]]]:
        """Return the document, and the ranks that are drawn: of both, those of findings across ranks come first."""
        chosen = _chosen(read, across)
        full = {place: each for place in chosen[:MOST_RANKS] if (each := self._full(read[place][0])) is not None}
        listed = sorted(chosen[:LISTED_RANKS])
        document = KernelProfiles(
            source=f"s3://{call.bucket}/{call.folder}".encode("utf-8", "replace").decode(),
            ranks=[full[place][0] if place in full else read[place][1] for place in listed],
            unread=dict(unread),
            across=across,
            ranks_left_out=len(read) - len(listed),
            job=call.job,
            job_facts=self._facts_of(call.job),
        )
        drawn = [(full[place][0], timeline) for place in sorted(full) if (timeline := full[place][1]) is not None]
        return document, drawn

    def _facts_of(self, job: str) -> JobEntry | None:
        """Return what is known of a job; a page is made without it, too."""
        try:
            return self.facts(job)
        except PortUnavailableError:
            return None

    def _full(self, item: TraceItem) -> tuple[RankProfile, Timeline | None] | None:
        """Return a rank with its timeline; None where only its brief digest can be read."""
        key = item.digest("full")
        try:
            digest = decode_full(key, self.objects.get(item.bucket, key, MOST_FULL_BYTES))
            return digest.profile, None if digest.timeline is None else restored(key, digest.timeline)
        except (ObjectMissingError, TelemetryFormatError):
            return None

    def _write(self, call: CaptureCall, files: Mapping[str, bytes], verdict: bytes) -> None:
        """Write a capture's files, and those of the newest capture beside the report, too; the verdict comes last."""
        root = call.root
        for name, body in files.items():
            self.objects.put(call.bucket, capture_folder(root, call.capture) + name, body, FILES[name])
        captures = (name for name in self.objects.folders(call.bucket, root.report + FOLDER) if name[:1].isdigit())
        if call.capture >= max(captures, default=""):
            for name, body in files.items():
                self.objects.put(call.bucket, root.report + name, body, FILES[name])
        self.objects.put(call.bucket, capture_folder(root, call.capture) + VERDICT, verdict, FILES[VERDICT])

    def _clean(self, call: CaptureCall, now: float) -> None:
        place = run_folder(call.root, call.run)
        old = [
            each.key
            for folder in (DIGESTS, RUNS)
            for each in self.objects.list(call.bucket, call.root.report + folder, "")
            if each.last_modified < now - KEPT_S
        ]
        self.objects.delete(call.bucket, [place + TRACES, place + ITEMS, *old])


def _chosen(read: Sequence[_Read], across: AcrossRanks | None) -> list[int]:
    """Return the places of all ranks: those that come last or compute longest first, then by rank."""
    if across is None or not across.findings:
        return list(range(len(read)))
    lines = {(line.trace, line.rank): line for line in across.lines}
    keys = [(profile.trace, profile.rank) for _, profile in read]
    compared = [place for place, key in enumerate(keys) if key in lines]
    apart = sorted(
        compared,
        key=lambda place: (-lines[keys[place]].last_steps, -lines[keys[place]].compute_ns, place),
    )[:2]
    return [*apart, *(place for place in range(len(read)) if place not in apart)]


def _head(call: CaptureCall, planned: PlannedTraces) -> CaptureHead:
    return CaptureHead(
        capture=call.capture,
        version=planned.version,
        run=call.run,
        folder=call.folder,
        at=planned.at,
        traces=len(planned.items),
        notes=[LEFT_OUT.format(planned.left_out)] if planned.left_out else [],
    )


def notify_evaluator(tasks: TaskQueue, call: CaptureCall, *, now: float) -> None:
    """Have the verdict on a capture applied now, and not by the scheduler's task; raises PortUnavailableError."""
    tasks.send([StreamTask(call.job, ALL_RANKS, KERNELS, "flush", now - STREAM_SILENT_S, call.generation)])
