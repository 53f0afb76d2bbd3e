"""LoadBalancing on each bound: points that are needed, nodes that were never used, GPUs that stopped."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.gpu_loads import DEFAULTS, JOB_RULE, RULE, across, counted, judge, node_of, nothing, view_of, work
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.rules.load_balancing.judging import BalanceDetails, LoadBalancingParameters
from trainguard.rules.load_balancing.rule import silence
from trainguard.rules.load_balancing.text import LoadBalancingKind
from trainguard.rules.load_balancing.window import BalanceWindow
from trainguard.rules.rule_inputs import JobView, NodeFacts, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.windows import WarmUpKind

# A full half-hour, epoch seconds.
START = 1_000_000 * 1_800.0


@pytest.mark.parametrize(
    ("interval_s", "points", "status"),
    [
        (0.1, 2_499, Status.WARMING_UP),
        (0.1, 2_500, Status.FIRED),
        (1.0, 499, Status.WARMING_UP),
        (1.0, 500, Status.FIRED),
        (10.0, 499, Status.WARMING_UP),
        (10.0, 500, Status.FIRED),
    ],
)
def test_nodes_need_500_points_and_250_seconds_to_be_compared(interval_s: float, points: int, status: Status) -> None:
    views = [
        view_of(f"algo-{number}", counted(level, points=points), interval_s=interval_s)
        for number, level in enumerate((90, 30), 1)
    ]
    assert across(*views).status is status


@pytest.mark.parametrize(("idle_s", "status"), [(1_200.0, Status.WARMING_UP), (1_200.5, Status.FIRED)])
def test_never_used_node_is_starting_up_for_20_minutes(idle_s: float, status: Status) -> None:
    idle = replace(view_of("algo-2", nothing(), nothing(), idle_run_s=idle_s), first_sample_at=7.0)
    said = across(view_of("algo-1", counted(90)), idle)
    assert said.status is status
    if status is Status.FIRED:
        assert (said.onset, said.gpus) == (7.0, ("algo-2/gpu0", "algo-2/gpu1"))
        assert (said.advice or "").startswith("Let a process use algo-2, or pay for less; look at what is different")
        assert said.plain_details["workloads"]["algo-2"][0] == 2 * 2_401
        assert said.data_points == 1_000 + 2_401


@pytest.mark.parametrize(("low", "unused"), [((0, 1), True), ((1,), False)])
def test_gpu_below_one_percent_is_advised_to_get_a_process(low: tuple[int, ...], unused: bool) -> None:
    gpus = [np.tile(np.array(low, dtype=np.float64), 500 // len(low)), np.full(500, 80.0)]
    advice = judge(node_of(*gpus)).last.advice or ""
    assert advice.startswith("Let a process use gpu0 of algo-1, or pay for less; ") is unused


def test_node_that_does_more_is_named_and_no_gpu_is_behind() -> None:
    said = across(*(view_of(f"algo-{number}", counted(level)) for number, level in enumerate((90, 50, 50, 50), 1)))
    assert (said.status, said.worst, said.gpus) == (Status.FIRED, "algo-1", ())
    assert "algo-1 was at 90 % on average, the other 3 nodes together at 50 %" in said.reason


def windowed(loads: FloatArray, *, interval_s: float = 60.0, first_active_at: float = START) -> NodeView:
    """Return a node that has worked at such loads, float64[T, G], from a full half-hour on."""
    counts = [counted(*column.tolist(), points=len(loads)) for column in loads.T]
    return replace(
        view_of("algo-1", *counts, interval_s=interval_s),
        kept_total=len(loads),
        first_sample_at=START,
        first_active_at=first_active_at,
        watermark_s=START + interval_s * (len(loads) - 1),
    )


def window_of(loads: FloatArray, *, interval_s: float = 60.0) -> BalanceWindow:
    window = BalanceWindow()
    window.add(START + interval_s * np.arange(len(loads), dtype=np.float64), loads)
    return window


def columns(*gpus: list[float]) -> FloatArray:
    return np.column_stack([np.array(gpu) for gpu in gpus])


@pytest.mark.parametrize(("low", "unused"), [([1.0, 1.0], False), ([0.0, 1.0], True)])
def test_gpu_unused_over_the_window_is_advised_to_get_a_process(low: list[float], unused: bool) -> None:
    loads = columns([90.0] * 40, low * 20)
    advice = RULE.judge(window_of(loads), windowed(loads), DEFAULTS).advice or ""
    assert advice.startswith("Let a process use gpu1 of algo-1, or pay for less; ") is unused


def test_noted_gap_with_one_gpu_left_in_the_window_shows_counts() -> None:
    loads = columns([90.0] * 600, [90.0] * 600)
    window = window_of(columns([90.0] * 600, [np.nan] * 600))
    window.judged, window.seen = 600, 20
    assert "the distance of their histograms is 0.00" in RULE.judge(window, windowed(loads), DEFAULTS).reason
    whole = window_of(loads)
    whole.judged, whole.seen = 600, 20
    assert RULE.judge(whole, windowed(loads), DEFAULTS).kind == LoadBalancingKind.EVEN


def job_of(*nodes: tuple[list[float], float]) -> RuleResult:
    """Judge nodes of one GPU each, at levels by minute, and when each became active."""
    facts = {}
    for number, (levels, active_at) in enumerate(nodes, 1):
        loads = columns(levels)
        view = replace(windowed(loads, first_active_at=active_at), node=f"algo-{number}")
        facts[view.node] = NodeFacts(view.node, view, collected={"LoadBalancing": window_of(loads)})
    return JOB_RULE.judge(JobView(START, None, None, False, False, False, facts), DEFAULTS)


def test_onset_of_a_slow_node_ignores_a_later_starting_one() -> None:
    late, steady = START + 2_700.0, [90.0] * 54
    low = [90.0] * 15 + [20.0] * 39
    assert job_of((steady, START), (low, START), (steady, late)).onset == START + 900.0
    early = START + 1_500.0
    assert job_of((steady[:44], START), ([20.0] * 44, START), (steady[:44], early)).onset == early
    full = [90.0] * 60
    assert job_of((full, START), ([20.0] * 60, START)).onset is None
    assert job_of((full, START), ([90.0] * 15 + [20.0] * 45, START)).onset == START + 900.0


def test_only_compared_points_are_counted_beside_small_nodes() -> None:
    few = view_of("algo-3", counted(90, points=200))
    assert across(view_of("algo-1", counted(90)), view_of("algo-2", counted(90)), few).data_points == 2_000


def test_equal_gpus_in_the_window_are_not_self_compared() -> None:
    loads = columns([90.0] * 40, [90.0] * 40)
    said = RULE.judge(window_of(loads), windowed(loads), DEFAULTS)
    assert said.reason.startswith(
        "From 2027-01-15 08:00 to 08:39 UTC gpu1 of algo-1 was at 90 % on average, gpu0 at 90 %, 0 percentage points"
    )


@pytest.mark.parametrize(
    ("loads", "end"),
    [
        (columns([90.0] * 40, [90.0] * 20 + [40.0] * 20),
         ("25 percentage points behind the busiest (threshold 20), and by half of that or more for less than two "
          "thirds of the time.")),
        (columns([90.0] * 40, [90.0] * 20 + [51.0] * 20), "19.5 percentage points behind the busiest (threshold 20)."),
        (columns([100.0, 100.0, 0.0, 100.0] * 5, [0.0, 100.0, 0.0, 100.0] * 5),
         "25 percentage points behind the busiest (threshold 20), which chance may explain."),
        (columns([90.0] * 30, [90.0] * 10 + [60.0] * 20), "20 percentage points behind the busiest (threshold 20)."),
    ],
    ids=["half the time", "below", "few points", "fires"],
)  # fmt: skip
def test_wide_gap_without_a_finding_says_why(loads: FloatArray, end: str) -> None:
    said = RULE.judge(window_of(loads), windowed(loads), DEFAULTS)
    assert (said.status is Status.FIRED) is (len(loads) == 30)
    assert said.reason.endswith(end)


def test_share_of_an_unnoted_window_is_left_to_the_engine() -> None:
    loads = columns([90.0] * 40, [40.0] * 40)
    said = RULE.judge(window_of(loads), windowed(loads), DEFAULTS)
    assert (said.status, said.affected_share, said.onset, said.wasted_share) == (Status.FIRED, None, None, 0.0)
    without = replace(windowed(loads), detailed=False)
    assert RULE.judge(window_of(loads), without, DEFAULTS).plain_details == {}


def test_window_is_reported_if_one_gpu_alone_has_enough_counts() -> None:
    low = np.concatenate([np.full(480, np.nan), np.full(40, 90.0)])
    loads = np.column_stack([np.full(520, 90.0), low])
    counts = np.stack([counted(90, points=520), counted(90, points=40)])
    said = RULE.judge(
        window_of(loads), replace(windowed(columns([90.0] * 520, [90.0] * 520)), gpu_histogram=counts), DEFAULTS
    )
    assert (said.status, said.worst, said.threshold) == (Status.OK, "gpu1", 20.0)
    assert "distances" not in said.plain_details
    late = np.column_stack([np.full(520, 90.0), np.concatenate([np.full(510, np.nan), np.full(10, 90.0)])])
    counts = np.stack([counted(90, points=520), counted(90, points=10)])
    view = replace(windowed(columns([90.0] * 520, [90.0] * 520)), gpu_histogram=counts)
    early = RULE.judge(window_of(late), view, DEFAULTS)
    assert (early.status, early.patience) == (Status.WARMING_UP, "10/20")


@pytest.mark.parametrize(
    ("patience", "points", "told"),
    [
        (120, 60, "algo-1 has 60 of the 120 points that a comparison takes; about 60 min left."),
        (121, 60, "algo-1 has 60 of the 121 points that a comparison takes; about 61 min left at a sampling interval"),
        (20, 19, "algo-1 has 19 of the 20 points that a comparison takes; about 60 s left."),
    ],
)
def test_wait_for_points_over_two_hours_shows_the_interval(patience: int, points: int, told: str) -> None:
    loads = columns([90.0] * points, [90.0] * points)
    said = RULE.judge(window_of(loads), windowed(loads), LoadBalancingParameters(patience=patience))
    assert said.reason.startswith(told)
    assert said.patience == f"{points}/{patience}"


def test_points_outside_the_window_leave_the_counts_missing() -> None:
    loads = columns([90.0] * 40, [90.0] * 40)
    said = RULE.judge(BalanceWindow(), windowed(loads), DEFAULTS)
    assert said.reason.startswith("algo-1 has 40 of the 500 points that a comparison takes; about 7.7 h left")


@pytest.mark.parametrize("busy_min", [9, 12, 15, 18, 30])
@pytest.mark.parametrize("silent_min", [60, 66])
def test_gpu_busy_for_under_a_quarter_of_an_hour_did_not_stop(busy_min: int, silent_min: int) -> None:
    low = [90.0] * busy_min + [0.0] * silent_min
    loads = columns([90.0] * len(low), low)
    view = windowed(loads)
    gaps = window_of(loads).gaps(60.0)
    assert (silence(view, gaps, 1, None) is not None) is (busy_min >= 15)
    assert silence(replace(view, first_active_at=None), gaps, 1, None) is None
    assert silence(replace(view, ever_active=np.array([True, False])), gaps, 1, None) is None


def test_temporary_silence_has_an_end_and_the_finding_is_the_gap() -> None:
    low = [90.0] * 21 + [0.0] * 36 + [90.0] * 18
    loads = columns([90.0] * len(low), low)
    said = RULE.judge(window_of(loads), windowed(loads), DEFAULTS)
    assert said.kind == LoadBalancingKind.STOPPED
    assert said.reason == (
        "gpu1 of algo-1 stopped working at about 2027-01-15 08:21 UTC, and worked again from about 2027-01-15 08:57 "
        "UTC on. From 2027-01-15 08:20 to 09:14 UTC gpu1 of algo-1 was at 31.1 % on average, gpu0 at 90 %, 58.9 "
        "percentage points behind the busiest (threshold 20)."
    )
    assert said.threshold == 20.0
    assert said.measured == pytest.approx(90.0 * 36 / 55)
    assert "why gpu1 of algo-1 stopped at about 2027-01-15 08:21 UTC" in (said.advice or "")
    assert said.clause == "gpu1 of algo-1 stopped working"


def test_silence_before_the_window_began_with_the_imbalance() -> None:
    loads = columns([90.0] * 90, [0.0] * 90)
    view, gaps = windowed(loads, first_active_at=START - 4_500.0), window_of(loads).gaps(60.0)
    found = silence(view, gaps, 1, START - 3_600.0)
    assert found is not None
    assert found[0] == START - 3_600.0
    assert silence(view, gaps, 1, START - 3_600.1) is None
    assert silence(view, gaps, 1, None) is None


@pytest.mark.parametrize(
    ("others", "minutes"),
    [
        ([90.0] * 30 + [90.0] * 120, [*range(30), *range(120, 240)]),
        ([90.0] * 30 + [15.0] * 24 + [90.0] * 96, range(150)),
    ],
)
def test_a_gpu_stopped_when_it_last_worked_whatever_others_did(others: list[float], minutes: Sequence[int]) -> None:
    window, low = BalanceWindow(), [90.0] * 30 + [0.0] * 120
    for minute, *loads in zip(minutes, others, low, strict=True):
        times, values = np.array([START + 60.0 * minute]), np.array([loads])
        window.add(times, values)
        window.note(window.gaps(60.0), times, values)
    view = windowed(columns([90.0] * 90, [0.0] * 90), first_active_at=START)
    found = silence(view, window.gaps(60.0), 1, window.since, window.worked_until(1))
    assert found is not None
    assert found[0] == START + 30 * 60.0 < (window.since or 0.0)


def test_clause_of_an_imbalance_is_of_nodes_or_of_gpus() -> None:
    loads = columns([90.0] * 40, [40.0] * 40)
    of_gpus = RULE.judge(window_of(loads), windowed(loads), DEFAULTS)
    of_nodes = across(view_of("algo-1", counted(90)), view_of("algo-2", counted(30)))
    assert of_gpus.clause == "the GPUs did not share the work evenly"
    assert of_nodes.clause == "the nodes did not share the work evenly"


def test_means_include_all_samples_in_pauses() -> None:
    times = START + 15.0 * np.arange(400, dtype=np.float64)
    at_work = np.arange(400) % 10 >= 8
    loads = np.where(at_work[:, None], [[90.0, 40.0]], 0.0)
    window = BalanceWindow()
    for begin in range(0, 400, 40):
        part = slice(begin, begin + 40)
        window.add_all(times[part], loads[part])
        window.add(times[part][at_work[part]], loads[part][at_work[part]])
    window.add_all(times + 15.0 * 400, np.zeros((400, 2)))
    said = RULE.judge(window, windowed(loads[at_work], interval_s=15.0), DEFAULTS)
    facts = {fact.name: fact for fact in said.facts}
    start = facts["mean_utilization"].start
    assert start is not None
    seen = times >= start
    assert said.kind == LoadBalancingKind.BEHIND
    assert (facts["mean_utilization_at_work"].value, facts["busiest_utilization_at_work"].value) == (40.0, 90.0)
    assert (facts["gap_at_work"].value, facts["gap_at_work"].threshold) == (50.0, 20.0)
    ends = facts["mean_utilization"].end or 0.0
    assert ends <= times[-1] + 600.0
    every = np.concatenate([loads[seen], np.zeros((int((ends - times[-1]) / 15.0), 2))])
    assert facts["mean_utilization"].value == pytest.approx(every[:, 1].mean())
    assert facts["busiest_utilization"].value == pytest.approx(every[:, 0].mean())
    assert times[0] <= (facts["gap_at_work"].start or 0.0) < (facts["gap_at_work"].end or 0.0) <= times[-1]
    assert "outside pauses 40 % and 90 %, 50 percentage points behind the busiest" in said.reason


def test_no_time_of_a_short_job_is_longer_than_the_job() -> None:
    loads = columns([90.0] * 42, [40.0] * 42)
    window = BalanceWindow()
    window.add_all(START + 540.0 + 60.0 * np.arange(42.0), loads)
    window.add(START + 540.0 + 60.0 * np.arange(42.0), loads)
    spans = [(fact.start, fact.end) for fact in RULE.judge(window, windowed(loads), DEFAULTS).facts if fact.start]
    assert set(spans) == {(START + 540.0, START + 540.0 + 60.0 * 41)}


def test_partitioned_gpus_miss_utilization() -> None:
    parted = replace(view_of("algo-1"), mig_names=("gpu0.mig1",))
    window = BalanceWindow()
    assert RULE.judge(window, parted, DEFAULTS).kind == across(parted).kind == WarmUpKind.PARTITIONED
    assert "partitioned (MIG)" in across(parted).reason
    assert across(parted, view_of("algo-2", counted(90))).kind == LoadBalancingKind.NO_OTHER_NODE
    one = replace(view_of("algo-1", counted(1)), mig_names=("gpu1.mig1",))
    assert RULE.judge(window, one, DEFAULTS).reason == "algo-1 has only one GPU, and so none to compare."


def test_gpus_below_one_of_a_distant_pair_are_behind() -> None:
    result = judge(node_of(work(500, 90.0), np.full(500, 20.0), work(500, 60.0)))
    assert result.last.gpus == ("gpu1", "gpu2")
    assert set(result.last.plain_details["distances"]) == {"gpu0", "gpu1"}
    assert BalanceDetails.read(result.last.plain_details).plain() == result.last.plain_details


def test_missing_points_are_those_of_the_second_of_two_intervals() -> None:
    views = [view_of("algo-1", counted(90, points=90)), view_of("algo-2", counted(90, points=30), interval_s=60.0)]
    nodes = {view.node: NodeFacts(view.node, view) for view in views}
    said = JOB_RULE.judge(JobView(0.0, 0.0, None, False, False, False, nodes), LoadBalancingParameters(patience=40))
    assert said.reason.startswith("algo-2 has 30 of the 40 points that a comparison takes; about 10 min left")
