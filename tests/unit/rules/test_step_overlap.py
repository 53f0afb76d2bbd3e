import pytest

from tests.support import framework_traces
from tests.unit.rules.step_batches import DEFAULTS, RULE, batches, judged, steady
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.rules.step_outlier.series import MAX_SERIES, StepOverlap


def timeline_of_steps(first: int, *, every: int, culprit_s: float) -> FrameworkEvents:
    """60 steps of 0.4 s in an object; each ``every``th waits in the loader, each runs an operator for half of it."""
    events = []
    for number in range(first, first + 60):
        at = number * 2.0
        slow = culprit_s if number % every == 0 else 0.0
        duration = 0.4 + slow
        if slow:
            events.append(framework_traces.event("DataLoaderIter", "DataLoaderIter::GetNext", at + 0.4, slow + 0.3))
        events.append(framework_traces.event("cpu_functions", "aten::mm", at, duration / 2.0, tid=1))
        events.append(framework_traces.event("cpu_functions", "aten::outer", at - 0.1, duration + 0.2, tid=1))
        events.append(framework_traces.step(number, at, duration))
    return framework_traces.read(events)


def test_overlap_of_events_is_compared_with_ordinary_steps() -> None:
    state = RULE.state_type()
    for first in range(0, 600, 60):
        RULE.observe(state, timeline_of_steps(first, every=20, culprit_s=1.2), DEFAULTS)

    result = judged(state)

    rows = {row["event"]: row for row in result.plain_details["algo-1"]["framework"]["events"]}
    assert rows["DataLoaderIter"]["slow_steps_percent"] == pytest.approx(75.0, rel=1e-3)
    assert rows["DataLoaderIter"]["ordinary_steps_percent"] == 0.0
    assert rows["aten::mm"]["slow_steps_percent"] == pytest.approx(50.0, rel=1e-3)
    assert rows["aten::mm"]["ordinary_steps_percent"] == pytest.approx(50.0, rel=1e-3)
    assert rows["aten::outer"]["slow_steps_percent"] == pytest.approx(100.0 * 1.0 / 1.8, rel=1e-3)
    assert rows["aten::outer"]["ordinary_steps_percent"] == pytest.approx(100.0 * 0.4 / 0.6, rel=1e-3)
    assert "Step:ModeKeys.TRAIN" not in rows
    assert result.plain_details["algo-1"]["framework"]["events"][0]["event"] == "DataLoaderIter"
    assert result.advice == (
        "Give the data loader more workers, or make batches cheaper to load: DataLoaderIter takes 75 % of the slow "
        "steps' time and 0 % of that of the others. They come every 20 steps."
    )


def test_missing_slow_step_leaves_nothing_to_compare() -> None:
    state = RULE.state_type()
    for first in range(0, 600, 60):
        RULE.observe(state, timeline_of_steps(first, every=20, culprit_s=0.0), DEFAULTS)

    framework = judged(state).plain_details["algo-1"]["framework"]

    assert framework["events"] == []
    assert framework["ordinary_steps_s"] == pytest.approx(0.4 * 420)


def test_comparison_of_endless_event_names_is_bounded() -> None:
    state = RULE.state_type()
    for first in range(0, 900, 60):
        events = [
            framework_traces.step(number, number * 2.0, 0.4 if number % 9 else 1.5)
            for number in range(first, first + 60)
        ]
        events += [
            framework_traces.event(
                "cpu_functions", f"op-{first}-{number}", (first + number % 60) * 2.0, 0.3, tid=number
            )
            for number in range(300)
        ]
        RULE.observe(state, framework_traces.read(events), DEFAULTS)

    assert len(state.overlap.slow.names) <= 64
    assert len(state.overlap.ordinary.names) <= 64
    assert state.overlap.slow.other_us > 0


def test_too_many_processes_give_up_the_event_comparison() -> None:
    state = RULE.state_type()
    for first in range(0, 300, 60):
        RULE.observe(state, timeline_of_steps(first, every=20, culprit_s=1.2), DEFAULTS)
    assert state.overlap != StepOverlap()

    for number in range(MAX_SERIES):
        for batch in batches(steady(10), process=f"algo-1-{number:04d}"):
            RULE.observe(state, FrameworkEvents((batch,)), DEFAULTS)

    assert state.refused
    assert state.overlap == StepOverlap()


@pytest.mark.parametrize(("slow_share", "named"), [(0.55, False), (0.65, True)])
def test_event_that_grows_by_ten_points_is_named_in_the_fire(slow_share: float, named: bool) -> None:
    state = RULE.state_type()
    for first in range(0, 600, 60):
        events = []
        for number in range(first, first + 60):
            duration, share = (1.6, slow_share) if number % 20 == 0 else (0.4, 0.5)
            events.append(framework_traces.event("cpu_functions", "aten::mm", number * 2.0, duration * share, tid=1))
            events.append(framework_traces.step(number, number * 2.0, duration))
        RULE.observe(state, framework_traces.read(events), DEFAULTS)

    advice = judged(state).advice or ""

    assert advice.startswith("Look at it: aten::mm takes 65 %" if named else "No recorded event")
