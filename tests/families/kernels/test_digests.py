"""What lies between a trace and a page: digests, their limits, and how they are read back."""

import subprocess
import sys
import textwrap
import time
from contextlib import nullcontext, suppress

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from tests.support.captures import ROOT
from tests.support.faults import Fault
from tests.support.kernel_traces import real_names, real_profile, real_trace
from tests.support.memory import MemoryWorld
from tests.support.small_job import BUCKET, JOB
from trainguard.aws.function_limits import function_limits
from trainguard.core.errors import KernelTraceError, PortUnavailableError, TelemetryFormatError
from trainguard.kernels.captures.digest import (
    BRIEF_KERNELS,
    BRIEF_STEPS,
    LONGEST_STORED_NAME,
    BriefDigest,
    FullDigest,
    StoredTimeline,
    brief,
    decode_brief,
    decode_full,
    restored,
    stored,
)
from trainguard.kernels.join import across_ranks
from trainguard.kernels.timeline.build import timeline_of
from trainguard.kernels.timeline.rows import RowTable
from trainguard.stack.captures.digest import digest_trace
from trainguard.stack.captures.plan import TraceItem

KEY = "digest"
NAMES = real_names()[:4]
ITEM = TraceItem(
    job=JOB, bucket=BUCKET, prefix="", key=f"{ROOT.folder}kernel-traces/a.pt.trace.json", name="a", etag="e", rows=1_000
)


@pytest.mark.parametrize("name", NAMES)
def test_stored_timeline_of_a_real_trace_draws_the_same(name: str) -> None:
    timeline = timeline_of(real_trace(name), 5_000)
    form = msgspec.json.decode(msgspec.json.encode(stored(timeline)), type=StoredTimeline)
    again = restored(KEY, form)
    for field in RowTable.__dataclass_fields__:
        if field != "name":
            assert np.array_equal(getattr(again.rows, field), getattr(timeline.rows, field)), field
    before = [timeline.names[each][:LONGEST_STORED_NAME] if each >= 0 else None for each in timeline.rows.name.tolist()]
    assert [again.names[each] if each >= 0 else None for each in again.rows.name.tolist()] == before
    assert (again.lanes, again.detail, again.left_out) == (timeline.lanes, timeline.detail, timeline.left_out)
    for field in ("level", "launch", "size"):
        assert np.array_equal(getattr(again, field), getattr(timeline, field)), field
    assert (again.start_unix_ns, again.lead_ns, again.window_ns) == (
        timeline.start_unix_ns,
        timeline.lead_ns,
        timeline.window_ns,
    )


FORM = stored(timeline_of(real_trace(NAMES[0]), 300))


@pytest.mark.parametrize("column", sorted(FORM.columns))
def test_stored_timeline_without_a_column_is_refused(column: str) -> None:
    rest = {name: each for name, each in FORM.columns.items() if name != column}
    with pytest.raises(TelemetryFormatError, match=column):
        restored(KEY, with_fields(FORM, columns=rest))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": FORM.size + 1}, "is not of"),
        ({"size": -1}, "rows, expected at most"),
        ({"size": 10**9}, "rows, expected at most"),
        ({"names": []}, "column name"),
        ({"lanes": []}, "column lane"),
        ({"columns": {**FORM.columns, "start": b"no zlib"}}, "column start"),
    ],
    ids=["longer", "negative", "a bomb", "no names", "no lanes", "no zlib"],
)
def test_hostile_timeline_is_refused_and_not_drawn(change: dict[str, object], said: str) -> None:
    with pytest.raises(TelemetryFormatError, match=said):
        restored(KEY, with_fields(FORM, **change))


def test_a_timeline_without_counts_is_refused() -> None:
    digest = FullDigest(profile=real_profile(NAMES[0]), timeline=FORM)
    fields = msgspec.json.decode(msgspec.json.encode(digest))
    fields["timeline"]["left_out"].pop("joins")

    with pytest.raises(TelemetryFormatError, match="joins"):
        decode_full(KEY, msgspec.json.encode(fields))


@given(st.binary(max_size=200))
@example(b"{}")
def test_arbitrary_bytes_are_refused_as_a_digest_by_name(body: bytes) -> None:
    for decode in (decode_brief, decode_full):
        with pytest.raises(TelemetryFormatError, match=KEY):
            decode(KEY, body)


def test_digest_of_another_version_is_refused() -> None:
    body = msgspec.json.encode(with_fields(BriefDigest(fault="x"), format=2))
    with pytest.raises(TelemetryFormatError, match="format 2, expected 1"):
        decode_brief(KEY, body)


@pytest.mark.parametrize("name", NAMES)
def test_brief_profile_counts_omissions_and_compares_the_same(name: str) -> None:
    profile = real_profile(name)
    small = brief(profile)
    assert len(small.kernels) == min(len(profile.kernels), BRIEF_KERNELS)
    assert len(small.kernels) + small.kernels_left_out == len(profile.kernels) + profile.kernels_left_out
    whole = sum(each.total_ns for each in profile.kernels) + profile.kernels_left_out_ns
    assert sum(each.total_ns for each in small.kernels) + small.kernels_left_out_ns == whole
    assert small.findings == profile.findings
    assert across_ranks([small, small]) == across_ranks([profile, profile])


def test_brief_profile_averages_over_all_steps() -> None:
    profile = real_profile(next(name for name in real_names() if real_profile(name).steps))
    (step, *_) = profile.steps
    long = with_fields(profile, steps=[step] * (BRIEF_STEPS + 50))
    other = with_fields(long, rank=7)
    before, after = across_ranks([long, other]), across_ranks([brief(long), brief(other)])
    assert before is not None
    assert after is not None
    assert after.lines == before.lines


def digested(world: MemoryWorld, item: TraceItem = ITEM) -> BriefDigest:
    digest_trace(world.objects, item, nullcontext())
    return decode_brief(KEY, world.objects.get(BUCKET, item.digest("brief"), 10**8))


@pytest.mark.parametrize(
    ("body", "said"),
    [(None, "it is gone"), (b"", "empty|no events|holds"), (b"\x00" * 100, ".+"), (b'{"traceEvents": [', ".+")],
    ids=["gone", "empty", "zeros", "cut off"],
)
def test_digest_of_an_unreadable_trace_says_why(body: bytes | None, said: str) -> None:
    world = MemoryWorld()
    if body is not None:
        world.objects.put(BUCKET, ITEM.key, body, "application/json")
    digest = digested(world)
    assert digest.profile is None or not digest.profile.busy_ns
    if digest.profile is None:
        assert digest.fault
    if body is None:
        assert digest.fault == said


def test_unavailable_s3_writes_no_digest() -> None:
    world = MemoryWorld()
    world.objects.put(BUCKET, ITEM.key, b"{}", "application/json")
    world.faults.schedule("ReadableObjects.open_stream", Fault.FAIL_BEFORE)
    with pytest.raises(PortUnavailableError):
        digest_trace(world.objects, ITEM, nullcontext())
    assert not list(world.objects.list(BUCKET, ROOT.report, ""))


def test_etag_or_timeline_changes_the_digest_name() -> None:
    items = (ITEM, with_fields(ITEM, etag="f"), with_fields(ITEM, rows=2_000))
    assert len({each.digest("brief") for each in items} | {each.digest("full") for each in items}) == 6


def test_timeout_names_the_trace_and_later_work_goes_on() -> None:
    def forever() -> None:
        with function_limits(memory_mib=100_000, seconds=0.01, what="a.json"):
            while True:
                pass

    with pytest.raises(KernelTraceError, match=r"a\.json.*was not read within"):
        forever()
    time.sleep(0.02)


def test_alarm_dropped_by_a_callback_is_raised_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainguard.aws.function_limits.REPEAT_S", 0.01)

    def drops_one() -> None:
        with function_limits(memory_mib=100_000, seconds=0.01, what="a.json"):
            with suppress(KernelTraceError):
                while True:
                    pass
            while True:
                pass

    with pytest.raises(KernelTraceError, match="was not read within"):
        drops_one()


def test_given_no_time_when_reading_then_nothing_is_begun() -> None:
    with (
        pytest.raises(KernelTraceError, match="was not read within 0 s"),
        function_limits(memory_mib=100_000, seconds=-3.0, what="a.json"),
    ):
        pytest.fail("the reading began")


def test_out_of_memory_is_an_error_and_not_a_crash() -> None:
    code = """
        from trainguard.aws.function_limits import function_limits
        try:
            with function_limits(memory_mib=256, seconds=60.0, what="a"):
                held = [bytes(1 << 20) for _ in range(2_000)]
        except MemoryError:
            held = None
        print(len(bytes(1 << 29)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == str(1 << 29), done.stderr


def test_given_a_full_digest_when_encoded_then_it_is_read_back() -> None:
    profile = real_profile(NAMES[0])
    digest = FullDigest(profile=profile, timeline=FORM)
    again = decode_full(KEY, msgspec.json.encode(digest))
    assert again.profile == profile
    assert again.timeline == FORM
    assert with_fields(restored(KEY, FORM), trace="x").trace == "x"
