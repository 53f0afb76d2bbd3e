"""A job's captures in hand: what is asked for, taken in, given up and remembered, session by session."""

from collections import Counter
from dataclasses import dataclass, field
from dataclasses import replace as altered

import pytest
from msgspec.structs import replace

from tests.families.kernels.test_capture_rules import FOUND, VERDICT
from tests.support.captures import KEY, ROOT, trace_key
from tests.support.faults import Faults
from tests.support.memory import MemoryProfileObjects
from tests.support.small_job import BUCKET, JOB
from trainguard.core.records import JobRecord, StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.installed import FAMILIES
from trainguard.engine.kernels.session import KERNEL_PROFILES, CaptureRun, CaptureSession, CaptureState
from trainguard.engine.streams.session import Announced, Applied
from trainguard.kernels.captures.keys import match_key, verdict_key
from trainguard.kernels.verdict import MOST_BYTES, CaptureVerdict, encode_verdict

PLAN = FAMILIES.plan(JobRecord(JOB, "arn", BUCKET, ""))
T0 = 1_795_249_200.0
# A stream is flushed so long after what it waits for was written.
WAIT_S = 300.0


@dataclass
class Bucket:
    """A bucket with traces and verdicts, and the item of its job."""

    objects: MemoryProfileObjects = field(default_factory=lambda: MemoryProfileObjects(faults=Faults()))
    record: StreamRecord = field(default_factory=lambda: StreamRecord(KEY, generation=3))

    def trace(self, at: float, *, folder: str = "kernel-traces/", rank: int = 0, body: bytes = b"{}") -> str:
        self.objects.now = at
        key = trace_key(rank, at, folder)
        self.objects.put(BUCKET, key, body, "application/json")
        return key

    def answer(self, asked: CaptureRun, **changes: object) -> CaptureVerdict:
        """Write the verdict of an execution."""
        of_run = {"capture": asked.capture, "version": asked.version, "run": asked.name, "at": T0}
        verdict = replace(VERDICT, **{**of_run, **changes})
        self.objects.put(BUCKET, verdict_key(ROOT, asked.capture), encode_verdict(verdict), "application/json")
        return verdict

    def open(self) -> CaptureSession:
        return KERNEL_PROFILES.open_session(self.record, ObjectSource(self.objects, BUCKET, ROOT, MOST_BYTES), PLAN)

    def turn(
        self, before: float | None, *keys: str, drain: bool = False, closed: bool = False
    ) -> tuple[CaptureSession, list[Applied]]:
        """Announce traces, let a session apply what is ready, and save its item."""
        session = self.open()
        session.announce([Announced(key, match_key(key)) for key in keys])
        applied = list(session.apply(drain=drain, modified_before=before))
        self.record = session.to_record(closed=closed)
        return session, applied

    @property
    def state(self) -> CaptureState:
        return self.open().stream.state

    def run(self) -> CaptureRun:
        run = self.state.run
        assert run is not None
        return run


def waiting(at: float = T0) -> Bucket:
    """Return a bucket with one trace, whose capture is asked for."""
    bucket = Bucket()
    bucket.turn(at, bucket.trace(at))
    return bucket


def folders(count: int) -> list[str]:
    return [f"kernel-traces/part-{number:03d}/" for number in range(count)]


@pytest.mark.parametrize(("count", "left_out"), [(1, 0), (32, 0), (33, 1), (35, 3)])
def test_newest_32_trace_folders_are_listed_and_rest_counted(count: int, left_out: int) -> None:
    bucket = Bucket()
    keys = [bucket.trace(T0, folder=folder) for folder in folders(count)]
    session, _ = bucket.turn(None, *keys, *keys)
    assert [each.removeprefix(ROOT.folder) for each in session.stream.state.folders] == folders(count)[left_out:]
    assert session.counters["folders_left_out"] == left_out
    assert len(bucket.record.pending) == count
    assert bucket.open().has_changes is False


def test_non_traces_and_waiting_folders_announce_nothing_new() -> None:
    bucket = waiting()
    session = bucket.open()
    session.announce([Announced("other", None), Announced("again", match_key(trace_key(1, T0 + 1.0)))])
    assert not session.has_changes
    session.announce([Announced("new", match_key(trace_key(1, T0, "kernel-traces/more/")))])
    assert session.has_changes


def test_nothing_is_requested_without_flush_or_end() -> None:
    bucket = Bucket()
    session, applied = bucket.turn(None, bucket.trace(T0))
    assert (applied, session.requests, bucket.state.run) == ([], (), None)
    assert bucket.record.pending == {f"{ROOT.folder}kernel-traces/": 0}


@pytest.mark.parametrize(("before", "drain", "asked"), [(T0 - 1.0, False, 0), (T0, False, 1), (None, True, 1)])
def test_settled_capture_or_ended_job_is_requested(before: float | None, drain: bool, asked: int) -> None:
    bucket = Bucket()
    session, _ = bucket.turn(before, bucket.trace(T0), drain=drain)
    assert (session.stream.state.asked, len(session.requests)) == (asked, asked)
    folder = f"{ROOT.folder}kernel-traces/"
    assert bucket.record.pending == {folder: int(T0)}
    if not asked:
        return
    run = bucket.run()
    assert (run.attempt, run.folder) == (1, folder)
    assert run.asked_at == (T0 if before is None else before + WAIT_S)
    ((name, payload),) = session.requests
    assert name == run.name
    assert payload == {
        "job": JOB,
        "bucket": BUCKET,
        "prefix": "",
        "generation": 3,
        "run": run.name,
        "capture": run.capture,
        "folder": folder,
    }


def test_execution_name_is_stable_and_distinct_by_attempt() -> None:
    bucket = waiting()
    assert bucket.run().name == "kernels-f1df471683fe2358e184-small-job"
    bucket.turn(T0 + 7_500.0)
    assert (bucket.run().attempt, bucket.run().name) == (2, "kernels-8dde9da4d423c65d0cc5-small-job")


def test_folder_of_a_requested_run_waits_since_then() -> None:
    bucket = waiting()
    run = bucket.run()
    bucket.objects.remove(BUCKET, trace_key(0, T0))
    session, _ = bucket.turn(T0 + 60.0)
    assert session.stream.state.run == run
    assert bucket.record.pending == {run.folder: int(run.asked_at)}


def test_taken_verdict_fires_rules_and_nothing_waits() -> None:
    bucket = waiting()
    run = bucket.run()
    bucket.answer(run)
    session, (applied,) = bucket.turn(T0 + 60.0)
    assert (applied.key, applied.fault, applied.tally) == (verdict_key(ROOT, run.capture), None, Counter())
    assert [fire.verdict.rule for fire in applied.fires] == [FOUND.rule]
    assert (bucket.record.pending, session.requests, bucket.state.asked) == ({}, (), 1)
    assert bucket.record.cursors == {"captures": 1, "written": int(T0) * 1_000_000}
    assert bucket.record.watermark_s == T0
    assert not bucket.turn(T0 + 120.0)[1]


@pytest.mark.parametrize("other", ["another-run", ""])
def test_verdict_of_another_execution_keeps_the_stream_waiting(other: str) -> None:
    bucket = waiting()
    run = bucket.run()
    bucket.answer(run, run=other)
    _, applied = bucket.turn(T0 + 60.0)
    assert (applied, bucket.run()) == ([], run)


@pytest.mark.parametrize(("after_s", "attempt"), [(7_499.0, 1), (7_500.0, 2)])
def test_missing_verdict_requests_another_execution(after_s: float, attempt: int) -> None:
    bucket = waiting()
    first = bucket.run()
    session, applied = bucket.turn(T0 + after_s)
    assert (bucket.run().attempt, bucket.state.asked) == (attempt, attempt)
    assert [each.fault for each in applied] == [f"execution {first.name} left no verdict"] * (attempt - 1)
    assert session.has_changes is (attempt == 2)
    assert (bucket.run().capture, bucket.run().version) == (first.capture, first.version)
    assert bucket.run().asked_at == T0 + WAIT_S + (after_s if attempt == 2 else 0.0)


def test_capture_is_abandoned_after_three_unreadable_verdicts() -> None:
    bucket = waiting()
    key = verdict_key(ROOT, bucket.run().capture)
    bucket.objects.put(BUCKET, key, b"{", "application/json")
    faults = [each.fault or "" for minute in range(1, 5) for each in bucket.turn(T0 + 60.0 * minute)[1]]
    assert len(faults) == 3
    assert all(key in fault for fault in faults)
    assert faults[2].startswith(f"capture {next(iter(bucket.state.versions))}: ")
    assert bucket.record.counters == {"captures_given_up": 1}
    assert (bucket.state.run, bucket.state.asked, bucket.record.pending) == (None, 3, {})


@pytest.mark.parametrize(("asked", "goes_on"), [(511, True), (512, False)])
def test_exhausted_executions_skip_captures_and_repeat_none(asked: int, goes_on: bool) -> None:
    bucket = Bucket()
    bucket.turn(None, bucket.trace(T0))
    session = bucket.open()
    session.stream.state.asked = asked
    faults = [each.fault for each in session.apply(drain=True, modified_before=None)]
    bucket.record = session.to_record(closed=False)
    assert (session.stream.state.run is not None) is goes_on
    assert bucket.record.counters == ({} if goes_on else {"captures_passed_over": 1})
    assert faults == ([] if goes_on else ["1 capture not judged: 512 executions have judged captures of it"])
    if goes_on:
        bucket.turn(T0 + 7_500.0)
        assert bucket.record.counters == {"captures_given_up": 1}
        assert bucket.state.asked == 512


@pytest.mark.parametrize(("count", "passed_over"), [(8, 0), (9, 1), (10, 2)])
def test_more_than_eight_waiting_captures_skip_the_oldest(count: int, passed_over: int) -> None:
    bucket = Bucket()
    keys = [bucket.trace(T0 + 400.0 * number) for number in range(count)]
    _, applied = bucket.turn(T0 + 400.0 * count, *keys)
    said = {1: "1 capture", 2: "2 captures"}.get(passed_over)
    faults = [] if said is None else [f"{said} not judged: they are older than the 8 newest that wait"]
    assert [each.fault for each in applied] == faults
    assert bucket.record.counters == ({"captures_passed_over": passed_over} if passed_over else {})
    assert len(bucket.state.versions) == passed_over
    assert bucket.record.pending == {f"{ROOT.folder}kernel-traces/": int(T0 + 400.0 * (count - 1))}


def test_oldest_of_two_due_captures_is_requested_first() -> None:
    bucket = Bucket()
    keys = [bucket.trace(T0 + 500.0, folder="kernel-traces/a/"), bucket.trace(T0, folder="kernel-traces/b/")]
    bucket.turn(T0 + 600.0, *keys)
    assert bucket.run().folder.endswith("/b/")
    assert bucket.record.pending == {
        f"{ROOT.folder}kernel-traces/a/": int(T0 + 500.0),
        f"{ROOT.folder}kernel-traces/b/": int(T0),
    }


def judged(bucket: Bucket, before: float, *keys: str, **changes: object) -> tuple[CaptureSession, list[Applied]]:
    """Let a capture be asked for, and take in its verdict."""
    bucket.turn(before, *keys)
    bucket.answer(bucket.run(), **changes)
    return bucket.turn(before)


@pytest.mark.parametrize(
    ("at", "count_judged", "tally", "newest"),
    [
        (T0 + 1.0, 4, Counter(), T0 + 1.0),
        (T0, 4, Counter(), T0),
        (T0 - 1.0, 4, Counter({"late": 1}), T0),
        (T0 + 1.0, 0, Counter(), T0),
    ],
    ids=["newer", "as new", "older", "not judged"],
)
def test_older_or_empty_second_verdict_is_ignored(
    at: float, count_judged: int, tally: Counter[str], newest: float
) -> None:
    bucket = Bucket()
    judged(bucket, T0, bucket.trace(T0))
    second = bucket.trace(T0 + 900.0)
    _, (applied,) = judged(bucket, T0 + 900.0, second, at=at, judged=count_judged, rules=[])
    assert (applied.tally, applied.fault) == (tally, "object x: 1 late".replace("x", applied.key) if tally else None)
    kept = bucket.state.verdict
    assert kept is not None
    assert (kept.at, bucket.state.captures, bucket.record.watermark_s) == (newest, 2, newest)
    rows = {each.rule: each.result.status.value for each in bucket.open().stream.verdicts(closed=False)}
    assert rows[FOUND.rule] == ("OK" if kept.rules == [] else "FIRED")


@pytest.mark.parametrize(("unread", "why"), [(1, {"a.json": "it is no trace"}), (2, {})])
def test_unread_traces_are_counted_and_one_is_named(unread: int, why: dict[str, str]) -> None:
    bucket = Bucket()
    _, (applied,) = judged(bucket, T0, bucket.trace(T0), unread=unread, unread_why=why)
    named = "a.json: it is no trace" if why else ": the reason is unknown"
    (capture,) = bucket.state.versions
    assert applied.fault == f"{unread} of 4 traces of capture {capture} were not read; {named}"
    assert bucket.record.counters == {"bad_traces": unread}
    assert [fire.verdict.rule for fire in applied.fires] == [FOUND.rule]


def test_capture_is_judged_again_for_a_late_rank() -> None:
    bucket = Bucket()
    judged(bucket, T0, bucket.trace(T0))
    (version,) = bucket.state.versions.values()
    bucket.turn(T0 + 60.0, bucket.trace(T0 + 5.0, rank=1))
    assert bucket.run().version != version


def known(count: int, year: int = 2024) -> dict[str, str]:
    return {f"{year}{number:04d}T000000Z-01234567": "v" for number in range(count)}


@pytest.mark.parametrize(("count", "asked", "dropped"), [(254, 2, 0), (255, 2, 0), (256, 1, 1)])
def test_newest_256_captures_are_kept_and_older_stay_judged(count: int, asked: int, dropped: int) -> None:
    bucket = Bucket()
    session, _ = bucket.turn(None, bucket.trace(T0), bucket.trace(T0 - 1e8, folder="kernel-traces/older/"))
    session.stream.state.versions = known(count)
    bucket.record = session.to_record(closed=False)
    for minute in range(1, 6):
        bucket.turn(T0 + 60.0 * minute)
        if bucket.state.run is not None:
            bucket.answer(bucket.run())
    assert bucket.state.asked == asked
    assert len(bucket.state.versions) == 256
    assert len(bucket.state.versions.keys() & known(count).keys()) == count - dropped


@pytest.mark.parametrize(("others", "asked"), [(254, 1), (255, 1), (256, 0)])
def test_oldest_kept_capture_is_judged_again_for_a_late_rank(others: int, asked: int) -> None:
    bucket = Bucket()
    session, _ = judged(bucket, T0, bucket.trace(T0))
    known_now = {**session.stream.state.versions, **known(others, 2027)}
    session.stream.state.versions = dict(sorted(known_now.items())[-256:])
    bucket.record = session.to_record(closed=False)
    bucket.turn(T0 + 60.0, bucket.trace(T0 + 5.0, rank=1))
    assert bucket.state.asked == 1 + asked


def test_folder_of_too_many_objects_is_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainguard.kernels.captures.keys.MOST_LISTED", 1)
    bucket = Bucket()
    keys = [bucket.trace(T0), bucket.trace(T0 + 1.0, rank=1)]
    bucket.turn(T0 + 60.0, *keys)
    bucket.turn(T0 + 120.0)
    assert bucket.record.counters == {"folders_cut_off": 1}


def test_item_round_trip_keeps_the_state() -> None:
    bucket = Bucket()
    judged(bucket, T0, bucket.trace(T0))
    before = bucket.record
    assert altered(bucket.open().to_record(closed=True), closed=False) == before
    assert bucket.open().to_record(closed=True).closed
