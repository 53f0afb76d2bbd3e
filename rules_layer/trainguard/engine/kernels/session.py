"""The kernel family, and a job's captures in hand: S3's listing, not a message, decides; one execution at a time."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
from msgspec.structs import replace

from trainguard.core.errors import ObjectMissingError, TelemetryFormatError
from trainguard.core.job_policy import MOST_CAPTURE_EXECUTIONS
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ListedObject
from trainguard.core.records import JobRecord, StreamRecord
from trainguard.core.units import counted
from trainguard.engine.family import Family, ObjectEvents, ObjectSource
from trainguard.engine.outbox import name_of_execution
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import FamilyStreams, FamilyVerdicts, JobMoment, JobState
from trainguard.engine.streams.rule_runner import Evaluate
from trainguard.engine.streams.session import (
    STREAM_SILENT_S,
    Announced,
    Applied,
    Session,
    Stream,
    StreamState,
    state_of,
)
from trainguard.engine.verdicts.verdict import Fire, combine
from trainguard.kernels.captures import keys
from trainguard.kernels.captures.keys import KERNELS, Capture, CaptureTraceKey, captures_at, listed_folder, verdict_key
from trainguard.kernels.memory.names import JSON_ENDINGS, SNAPSHOT_ENDINGS
from trainguard.kernels.rules.registry import KERNEL_RULES
from trainguard.kernels.rules.rule import KernelRule
from trainguard.kernels.verdict import MOST_BYTES, CaptureVerdict, SnapshotVerdict, decode_verdict, shorter
from trainguard.ledger.bucket import StepShares
from trainguard.rules.family_rules import KERNELS as RULES


class CaptureRun(msgspec.Struct):
    """An execution that judges a capture; ``asked_at`` is epoch seconds on S3's clock.

    ``snapshots`` is the version of the snapshots that it judges, too, empty without; of those that S3 had ``before``,
    which is None at the job's end.
    """

    name: str
    capture: str
    version: str
    folder: str
    attempt: int
    asked_at: float
    snapshots: str = ""
    before: float | None = None


class CaptureState(StreamState, kw_only=True):
    """What is stored of a job's captures; ``watermark_s`` is of the newest judged one, epoch seconds.

    ``versions`` are those judged, by capture. ``verdict`` is the newest that judged anything, else the newest, and says
    what the newest snapshots do. ``snapshot_folders`` hold snapshots; ``snapshots`` is the version of those judged.
    """

    folders: list[str] = msgspec.field(default_factory=list)
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    run: CaptureRun | None = None
    verdict: CaptureVerdict | None = None
    captures: int = 0
    asked: int = 0
    snapshot_folders: list[str] = msgspec.field(default_factory=list)
    snapshots: str = ""


class CaptureStream(Stream[CaptureState]):
    @staticmethod
    def rules_of(plan: RulePlan) -> Sequence[KernelRule]:
        return [rule for rule in plan.rules_of(KERNELS) if isinstance(rule, KernelRule)]

    def _judge(self, *, closed: bool) -> Evaluate[KernelRule]:
        del closed
        return lambda rule, _state, _parameters: rule.judge(self.state.verdict)

    def apply(self, verdict: CaptureVerdict) -> list[Fire]:
        """Apply a verdict; return its fires.

        Where it is older than the last one or judged nothing, what it says about snapshots counts alone.
        """
        state = self.state
        held, of_snapshots = state.verdict, verdict.snapshots
        if held is not None and keeps(held, verdict):
            if of_snapshots is None:
                return []
            verdict = replace(held, snapshots=of_snapshots)
        elif held is not None and of_snapshots is None:
            verdict = replace(verdict, snapshots=held.snapshots)
        state.verdict = verdict
        newest = 0.0 if of_snapshots is None else of_snapshots.at
        state.watermark_s = max(verdict.at, newest, state.watermark_s or 0.0)
        return self._run(None)

    def degrade(self) -> str | None:
        if self.state.verdict is None or not self.state.verdict.has_findings:
            return None
        self.state.verdict = shorter(self.state.verdict)
        return "degraded_verdict"


def keeps(held: CaptureVerdict, verdict: CaptureVerdict) -> bool:
    """Return whether what is known of traces stays: the newer verdict judged none, or is of an older capture."""
    return bool(held.judged) and (not verdict.judged or verdict.at < held.at)


MOST_FOLDERS = 32
MOST_VERSIONS = 256
# Captures that wait to be judged; older ones are passed over and counted.
MOST_BACKLOG = 8

# An execution without a verdict is asked for again after this; it ends before.
AGAIN_S = 7_500.0

MOST_ATTEMPTS = 3
GIVEN_UP, PASSED_OVER = "captures_given_up", "captures_passed_over"
_MICROSECONDS = 1_000_000


class CaptureSession(Session[CaptureStream]):
    def __init__(self, record: StreamRecord, source: ObjectSource, plan: RulePlan) -> None:
        state = state_of(record, CaptureState)
        super().__init__(record, source.get, CaptureStream(record.key.node, state, plan))
        self._source = source
        self._waiting: dict[str, int] = dict(record.pending)
        self._asked = state.run

    def announce(self, messages: Sequence[Announced]) -> None:
        state = self.stream.state
        for message in messages:
            if not isinstance(message.parsed, CaptureTraceKey):
                continue
            folder = message.parsed.folder
            folders, others = state.folders, state.snapshot_folders
            if message.parsed.is_snapshot:
                folders, others = others, folders
            # One that waits in neither list was left out before.
            is_new = folder not in folders and (folder not in self._waiting or folder in others)
            self._waiting.setdefault(folder, 0)
            if is_new:
                folders.append(folder)
                self.counters["folders_left_out"] += max(len(folders) - MOST_FOLDERS, 0)
                del folders[:-MOST_FOLDERS]

    def apply(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        if not (drain or modified_before is not None):
            return
        state = self.stream.state
        listed = self._listed()
        captures = self._captures(listed, math.inf)
        newest_s = max((each.newest_at for each in captures), default=0.0)
        now = newest_s if modified_before is None else modified_before + STREAM_SILENT_S
        if state.run is not None:
            yield from self._answered(state.run, now)
        settled = captures if drain else self._captures(listed, modified_before or 0.0)
        due = self._due(settled)
        if len(due) > MOST_BACKLOG:
            older = due[:-MOST_BACKLOG]
            yield self._pass_over(older, f"they are older than the {MOST_BACKLOG} newest that wait")
        if state.asked >= MOST_CAPTURE_EXECUTIONS and state.run is None and (due := self._due(settled)):
            yield self._pass_over(due, f"{MOST_CAPTURE_EXECUTIONS} executions have judged captures of it")
        if state.run is None and (due := self._due(settled)):
            state.run = self._run(_run_of(due[0], now, None if drain else modified_before))
        self._waiting = {each.folder: _waits_since(each) for each in self._due(captures)}
        if state.run is not None:
            self._waiting.setdefault(state.run.folder, int(state.run.asked_at))

    @property
    def has_changes(self) -> bool:
        return self._waiting != self.record.pending or self.stream.state.run != self._asked

    @property
    def requests(self) -> Sequence[tuple[str, dict[str, object]]]:
        run, root = self.stream.state.run, self._source.root
        if run is None:
            return ()
        payload: dict[str, object] = {
            "job": self.record.key.job,
            "bucket": self._source.bucket,
            "prefix": root.prefix,
            "generation": self.record.generation,
            "run": run.name,
            "capture": run.capture,
            "folder": run.folder,
        }
        if run.snapshots:
            payload |= {"snapshots": self.stream.state.snapshot_folders, "before": run.before}
        return ((run.name, payload),)

    def to_record(self, *, closed: bool) -> StreamRecord:
        state = self.stream.state
        cursors = {
            "captures": state.captures or None,
            "written": None if state.watermark_s is None else int(state.watermark_s * _MICROSECONDS),
        }
        return self._record(cursors=cursors, pending=self._waiting, closed=closed)

    def _listed(self) -> Mapping[str, Sequence[ListedObject]]:
        state = self.stream.state
        found = {}
        for folder in dict.fromkeys((*state.folders, *state.snapshot_folders)):
            found[folder], is_cut = listed_folder(self._source.objects, self._source.bucket, folder)
            if is_cut:
                self.counters["folders_cut_off"] = 1
        return found

    def _captures(self, listed: Mapping[str, Sequence[ListedObject]], before: float) -> list[Capture]:
        state = self.stream.state
        of_traces, of_snapshots = (
            {folder: listed[folder] for folder in folders} for folders in (state.folders, state.snapshot_folders)
        )
        return captures_at(self._source.root, of_traces, of_snapshots, before)

    def _due(self, captures: Sequence[Capture]) -> list[Capture]:
        """Return the captures that are not judged as they are now; forgotten ones are."""
        versions = self.stream.state.versions
        oldest = min(versions) if len(versions) >= MOST_VERSIONS else ""
        return [each for each in captures if self._is_new(each, oldest)]

    def _is_new(self, capture: Capture, oldest: str) -> bool:
        state = self.stream.state
        if capture.snapshots is not None and capture.snapshots.version != state.snapshots:
            return True
        return capture.name >= oldest and state.versions.get(capture.name) != capture.version

    def _answered(self, run: CaptureRun, now: float) -> Iterator[Applied]:
        """Apply the verdict of an execution; without one, ask again when it must have ended."""
        state = self.stream.state
        key = verdict_key(self._source.root, run.capture)
        verdict, fault = self._verdict(key, run.name)
        if verdict is not None:
            state.run = None
            yield self._take(key, verdict)
            self._note(run.capture, verdict.version, "" if verdict.snapshots is None else verdict.snapshots.version)
        elif fault is not None or now - run.asked_at >= AGAIN_S:
            state.run = None
            why = fault or f"execution {run.name} left no verdict"
            if run.attempt < MOST_ATTEMPTS and state.asked < MOST_CAPTURE_EXECUTIONS:
                state.run = self._run(replace(run, attempt=run.attempt + 1, asked_at=now))
                yield self._settle(key, Counter(), [], why)
            else:
                self._note(run.capture, run.version, run.snapshots)
                yield self._settle(key, Counter({GIVEN_UP: 1}), [], f"capture {run.capture}: {why}")

    def _verdict(self, key: str, run: str) -> tuple[CaptureVerdict | None, str | None]:
        """Return an execution's verdict, or why it cannot be read; neither while there is none."""
        try:
            verdict = decode_verdict(key, self._source.objects.get(self._source.bucket, key, MOST_BYTES))
        except ObjectMissingError:
            return None, None
        except TelemetryFormatError as error:
            return None, str(error)
        return (verdict, None) if verdict.run == run else (None, None)

    def _take(self, key: str, verdict: CaptureVerdict) -> Applied:
        state = self.stream.state
        held, snapshots = state.verdict, verdict.snapshots
        # Traces are judged again with each new snapshot; they count once.
        is_new = state.versions.get(verdict.capture) != verdict.version
        state.captures += is_new and verdict.has_traces
        tally: Counter[str] = Counter()
        if is_new and held is not None and verdict.judged and keeps(held, verdict):
            # A capture older than the newest one has a page, and no current findings.
            tally["late"] = 1
        elif is_new and verdict.unread:
            tally["bad_traces"] = verdict.unread
        if snapshots is not None and snapshots.version != state.snapshots and snapshots.unread:
            tally["bad_snapshots"] = snapshots.unread
        faults = [_unread(verdict, verdict.traces, "traces", verdict.capture)] if tally["bad_traces"] else []
        if snapshots is not None and tally["bad_snapshots"]:
            faults.append(_unread(snapshots, snapshots.files, "memory snapshots", verdict.capture))
        return self._settle(key, +tally, self.stream.apply(verdict), "; ".join(faults) or None)

    def _pass_over(self, captures: Sequence[Capture], why: str) -> Applied:
        for each in captures:
            self._note(each.name, each.version, "" if each.snapshots is None else each.snapshots.version)
        fault = f"{counted(len(captures), 'capture')} not judged: {why}"
        return self._settle(captures[0].folder, Counter({PASSED_OVER: len(captures)}), [], fault)

    def _note(self, capture: str, version: str, snapshots: str) -> None:
        state = self.stream.state
        state.versions[capture] = version
        for name in sorted(state.versions)[:-MOST_VERSIONS]:
            del state.versions[name]
        state.snapshots = snapshots or state.snapshots

    def _run(self, run: CaptureRun) -> CaptureRun:
        """Count an execution, and return it with its name."""
        key, source, state = self.record.key, self._source, self.stream.state
        state.asked += 1
        what: tuple[object, ...] = (source.bucket, source.root.folder, key.job, self.record.generation)
        what += (run.capture, run.version, run.attempt)
        # Step Functions takes a name once, and the same snapshots may be judged again beside other traces.
        what += (state.asked,) if run.snapshots else ()
        name = name_of_execution(f"kernels-{hashlib.sha256(repr(what).encode()).hexdigest()[:20]}-{key.job}")
        return replace(run, name=name)


def _run_of(capture: Capture, now: float, before: float | None) -> CaptureRun:
    snapshots = "" if capture.snapshots is None else capture.snapshots.version
    return CaptureRun("", capture.name, capture.version, capture.folder, 1, now, snapshots, before)


def _waits_since(capture: Capture) -> int:
    """Return when the newest of what a capture is judged by was written, epoch seconds."""
    return int(capture.at if capture.snapshots is None else max(capture.at, capture.snapshots.at))


def _unread(found: CaptureVerdict | SnapshotVerdict, count: int, what: str, capture: str) -> str:
    name, why = next(iter(found.unread_why.items()), ("", "the reason is unknown"))
    return f"{found.unread} of {count} {what} of capture {capture} were not read; {name}: {why}"


@dataclass(frozen=True)
class CaptureStreams(FamilyStreams):
    @cached_property
    def stream(self) -> CaptureStream | None:
        return next((each for each in self.streams.values() if isinstance(each, CaptureStream)), None)

    @property
    def step_shares(self) -> StepShares | None:
        """What the newest judged capture says about the job's steps; None where no trace has some."""
        verdict = None if self.stream is None else self.stream.state.verdict
        found = None if verdict is None else verdict.shares
        if found is None or not found.steps:
            return None
        return StepShares(
            compute=found.compute + found.copies,
            communication=found.communication,
            peers=found.peers,
            data=found.loader,
            host=found.host,
            other=found.other,
            steps=found.steps,
        )

    def judge(self, job: JobRecord, plan: RulePlan, job_state: JobState, moment: JobMoment) -> FamilyVerdicts:
        del job, plan, job_state, moment
        return [combine(rule, parts) for rule, parts in self.unit_verdicts().items()], []


class KernelFamily(Family):
    """Kernel traces and memory snapshots of all ranks in one stream; another function reads them."""

    name = keys.KERNELS
    title = RULES.title
    units = "ranks"
    expected_keys = keys.EXPECTED_KEYS
    events = ObjectEvents(
        wildcards=(f"*/{keys.TRACE_FOLDER}/*.sqlite", f"*/{keys.TRACE_FOLDER}/*.sqlite.gz"),
        ends=(*keys.TRACE_ENDINGS, *SNAPSHOT_ENDINGS, *JSON_ENDINGS),
    )
    object_cap_bytes = MOST_BYTES
    # The evaluator lists traces, and reads none.
    reads = ("*/rule-output/TrainGuardReport/kernels/*/verdict.json",)
    report = "trainguard.report.job.coverage:CAPTURES"
    streams_type = CaptureStreams
    rules = KERNEL_RULES
    parse_key = staticmethod(keys.match_key)

    @property
    def written(self) -> Sequence[str]:
        return keys.TRACE_READS

    def parse_below(self, key: str, known: Callable[[str], ProfileRoot | None]) -> keys.CaptureTraceKey | None:
        root = known(key) if keys.is_named(key) else None
        return None if root is None else keys.match_below(key, root)

    def open_session(self, record: StreamRecord, source: ObjectSource, plan: RulePlan) -> CaptureSession:
        return CaptureSession(record, source, plan)

    def open_stream(self, record: StreamRecord, plan: RulePlan) -> CaptureStream:
        return CaptureStream(record.key.node, state_of(record, CaptureState), plan)


KERNEL_PROFILES = KernelFamily()
