"""What lies between a trace and a page: digests, their limits, and how they are read back."""

import subprocess
import sys
import textwrap
import time
from contextlib import nullcontext, suppress
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from tests.support.captures import ROOT
from tests.support.kernel_traces import real_names, real_profile, real_trace
from tests.support.small_job import BUCKET, JOB
from trainguard.adapters.function_limits import function_limits
from trainguard.adapters.memory.faults import Fault
from trainguard.adapters.memory.world import MemoryWorld
from trainguard.errors import KernelTraceError, PortUnavailableError, TelemetryFormatError
from trainguard.kernels.captures.brief import BRIEF_KERNELS, BRIEF_STEPS, brief
from trainguard.kernels.captures.digest import BriefDigest, FullDigest, decode_brief, decode_full
from trainguard.kernels.captures.timeline_form import LONGEST_NAME, StoredTimeline, restored, stored
from trainguard.kernels.ranks.join import across_ranks
from trainguard.kernels.timeline.build import timeline_of
from trainguard.kernels.timeline.rows import RowTable
from trainguard.report.captures.digest import TraceDigester
from trainguard.report.captures.plan import TraceItem

KEY = "digest"
NAMES = real_names()[:4]
ITEM = TraceItem(
    job=JOB, bucket=BUCKET, prefix="", key=f"{ROOT.folder}kernel-traces/a.pt.trace.json", name="a", etag="e", rows=1_000
)


@pytest.mark.parametrize("name", NAMES)
def test_given_a_real_trace_when_its_timeline_is_stored_and_read_then_it_draws_the_same(name: str) -> None:
    timeline = timeline_of(real_trace(name), 5_000)
    form = msgspec.json.decode(msgspec.json.encode(stored(timeline)), type=StoredTimeline)
    again = restored(KEY, form)
    for field in RowTable.__dataclass_fields__:
        if field != "name":
            assert np.array_equal(getattr(again.rows, field), getattr(timeline.rows, field)), field
    before = [timeline.names[each][:LONGEST_NAME] if each >= 0 else None for each in timeline.rows.name.tolist()]
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
def test_given_a_stored_timeline_without_a_column_when_read_then_it_is_refused(column: str) -> None:
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
        ({"left_out": {}}, "left out"),
        ({"columns": {**FORM.columns, "start": b"no zlib"}}, "column start"),
    ],
    ids=["longer", "negative", "a bomb", "no names", "no lanes", "no counts", "no zlib"],
)
def test_given_a_hostile_timeline_when_read_then_it_is_refused_and_nothing_is_drawn(
    change: dict[str, object], said: str
) -> None:
    with pytest.raises(TelemetryFormatError, match=said):
        restored(KEY, with_fields(FORM, **change))


@given(st.binary(max_size=200))
@example(b"{}")
def test_given_any_bytes_when_read_as_a_digest_then_they_are_refused_by_name(body: bytes) -> None:
    for decode in (decode_brief, decode_full):
        with pytest.raises(TelemetryFormatError, match=KEY):
            decode(KEY, body)


def test_given_a_digest_of_another_version_when_read_then_it_is_refused() -> None:
    body = msgspec.json.encode(with_fields(BriefDigest(fault="x"), format=2))
    with pytest.raises(TelemetryFormatError, match="format 2, expected 1"):
        decode_brief(KEY, body)


@pytest.mark.parametrize("name", NAMES)
def test_given_a_profile_when_made_brief_then_what_is_left_out_is_counted_and_ranks_compare_the_same(name: str) -> None:
    profile = real_profile(name)
    small = brief(profile)
    assert len(small.kernels) == min(len(profile.kernels), BRIEF_KERNELS)
    assert len(small.kernels) + small.kernels_left_out == len(profile.kernels) + profile.kernels_left_out
    whole = sum(each.total_ns for each in profile.kernels) + profile.kernels_left_out_ns
    assert sum(each.total_ns for each in small.kernels) + small.kernels_left_out_ns == whole
    assert small.findings == profile.findings
    assert across_ranks([small, small]) == across_ranks([profile, profile])


def test_given_more_steps_than_a_brief_profile_holds_when_compared_then_means_are_over_all_of_them() -> None:
    profile = real_profile(next(name for name in real_names() if real_profile(name).steps))
    (step, *_) = profile.steps
    long = with_fields(profile, steps=[step] * (BRIEF_STEPS + 50))
    other = with_fields(long, rank=7)
    before, after = across_ranks([long, other]), across_ranks([brief(long), brief(other)])
    assert before is not None
    assert after is not None
    assert after.lines == before.lines


def digested(world: MemoryWorld, item: TraceItem = ITEM) -> BriefDigest:
    TraceDigester(objects=world.objects, limits=nullcontext).digest(item)
    return decode_brief(KEY, world.objects.get(BUCKET, item.place.brief, 10**8))


@pytest.mark.parametrize(
    ("body", "said"),
    [(None, "it is gone"), (b"", "empty|no events|holds"), (b"\x00" * 100, ".+"), (b'{"traceEvents": [', ".+")],
    ids=["gone", "empty", "zeros", "cut off"],
)
def test_given_a_trace_that_cannot_be_read_when_digested_then_its_digest_says_why(
    body: bytes | None, said: str
) -> None:
    world = MemoryWorld()
    if body is not None:
        world.objects.put(BUCKET, ITEM.key, body, "application/json")
    digest = digested(world)
    assert digest.profile is None or not digest.profile.busy_ns
    if digest.profile is None:
        assert digest.fault
    if body is None:
        assert digest.fault == said


def test_given_s3_that_does_not_answer_when_digested_then_no_digest_is_written() -> None:
    world = MemoryWorld()
    world.objects.put(BUCKET, ITEM.key, b"{}", "application/json")
    world.faults.schedule("ProfileObjects.open_stream", Fault.FAIL_BEFORE)
    with pytest.raises(PortUnavailableError):
        TraceDigester(objects=world.objects, limits=nullcontext).digest(ITEM)
    assert not list(world.objects.list(BUCKET, ROOT.report, ""))


def test_given_another_etag_or_timeline_when_digested_then_the_digest_has_another_name() -> None:
    assert len({ITEM.place, with_fields(ITEM, etag="f").place, with_fields(ITEM, rows=2_000).place}) == 3


def test_given_time_that_runs_out_when_reading_then_the_error_names_the_trace_and_later_work_goes_on() -> None:
    def forever() -> None:
        with function_limits(memory_mib=100_000, seconds=0.01, what="a.json"):
            while True:
                pass

    with pytest.raises(KernelTraceError, match=r"a\.json.*was not read within"):
        forever()
    time.sleep(0.02)


def test_given_an_alarm_that_a_callback_drops_when_time_is_over_then_the_next_one_ends_the_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainguard.adapters.function_limits.REPEAT_S", 0.01)

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


def test_given_memory_that_runs_out_when_reading_then_it_is_an_error_and_not_the_end_of_the_process() -> None:
    code = """
        from trainguard.adapters.function_limits import function_limits
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
    assert replace(restored(KEY, FORM), trace="x").trace == "x"
