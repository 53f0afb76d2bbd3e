"""The stream of a job's captures: what it judges, what is due, what it gives up, and which keys are its own."""

from dataclasses import replace

import pytest

from tests.families.kernels.test_capture_rules import FOUND
from tests.families.kernels.test_capture_session import PLAN, T0, Bucket, judged, waiting
from tests.support.captures import KEY, ROOT, trace_key
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import StreamRecord
from trainguard.engine.kernels.session import KERNEL_PROFILES
from trainguard.kernels.captures.keys import match_key
from trainguard.kernels.rules.registry import KERNEL_RULES


def test_stream_has_due_rows_and_a_copy_to_finish() -> None:
    bucket = Bucket()
    judged(bucket, T0, bucket.trace(T0))
    stream = KERNEL_PROFILES.open_stream(bucket.record, PLAN)
    assert (stream.due, stream.raised, stream.finish()) == (set(), [], [])
    assert {each.rule for each in stream.verdicts(closed=True, of={FOUND.rule})} == {FOUND.rule}
    assert len(stream.verdicts(closed=False)) == len(KERNEL_RULES)
    streams = KERNEL_PROFILES.streams_of({KEY: bucket.record}, {KEY: stream})
    assert streams.stream is stream
    assert KERNEL_PROFILES.streams_of({}, {}).stream is None
    assert list(KERNEL_PROFILES.unit_rules("all-ranks")) == [rule.name for rule in KERNEL_RULES]


def test_rows_of_a_new_verdict_are_due_and_known_to_the_copy() -> None:
    bucket = waiting()
    bucket.answer(bucket.run())
    session, _ = bucket.turn(T0 + 60.0)
    assert session.stream.due == {rule.name for rule in KERNEL_RULES}
    copy = session.stream.finished()
    (before, after) = (each.verdicts(closed=True, of={FOUND.rule})[0] for each in (session.stream, copy))
    assert (before.result, before.history.times_fired) == (after.result, after.history.times_fired)
    fresh = KERNEL_PROFILES.open_stream(StreamRecord(KEY), PLAN)
    assert fresh.finish() == []
    assert fresh.due == set()
    another = KERNEL_PROFILES.open_stream(bucket.record, replace(PLAN, episodes={FOUND.rule: 2}))
    assert [fire.verdict.rule for fire in another.finish()] == [FOUND.rule]
    assert another.store() is another.state


def test_large_item_drops_evidence_before_rules() -> None:
    bucket = Bucket()
    session, _ = judged(bucket, T0, bucket.trace(T0))
    stream, steps = session.stream, []
    while (step := stream.degrade()) is not None:
        steps.append(
            (step, [len(rule.evidence) for rule in stream.state.verdict.rules] if stream.state.verdict else [])
        )
    assert steps == [("degraded_verdict", [0]), ("degraded_verdict", [])]
    assert KERNEL_PROFILES.open_stream(StreamRecord(KEY), PLAN).degrade() is None


@pytest.mark.parametrize(
    ("key", "folder"),
    [
        ("small-job/logs/a.pt.trace.json", "small-job/logs/"),
        ("small-job/logs/a.txt", None),
        ("other/logs/a.pt.trace.json", None),
    ],
)
def test_trace_below_a_known_job_is_its_own_without_lookup(key: str, folder: str | None) -> None:
    asked: list[str] = []

    def known(key: str) -> ProfileRoot | None:
        asked.append(key)
        return ROOT if key.startswith(ROOT.folder) else None

    found = KERNEL_PROFILES.parse_below(key, known)
    assert (None if found is None else found.folder) == folder
    assert asked == ([key] if key.endswith(".json") else [])
    assert KERNEL_PROFILES.parse_key(trace_key(0, T0)) == match_key(trace_key(0, T0))
