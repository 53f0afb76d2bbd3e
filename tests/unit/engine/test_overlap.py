"""Which finding is the reason for another: both were there, at the same time, on the same nodes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.verdicts import fired, over
from trainguard.engine.verdicts.findings import RankedFinding, rank_findings
from trainguard.engine.verdicts.overlap import SLACK_S, covered_s, shared_share
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.finding import Episode
from trainguard.pricing.cost import Account
from trainguard.report.causes import wasted_share

HOUR_S = 3_600.0
DAY = Account(instance_type="ml.p3.2xlarge", started_at=0.0, watermark_s=24.0 * HOUR_S, nodes=1)
LOW = "LowGPUUtilization"


def held(*hours: tuple[float, float | None], nodes: tuple[str, ...] = (), rate: float = 0.7) -> tuple[Episode, ...]:
    """Return episodes from hour to hour, of which a share ``rate`` was lost."""
    return tuple(
        Episode(
            HOUR_S * start,
            None if end is None else HOUR_S * end,
            nodes=nodes,
            wasted_s=rate * HOUR_S * ((24.0 if end is None else end) - start),
        )
        for start, end in hours
    )


def with_episodes(verdict: Verdict, episodes: tuple[Episode, ...]) -> Verdict:
    wasted = sum(each.wasted_s or 0.0 for each in episodes) / (24.0 * HOUR_S)
    result = replace(verdict.result, wasted_share=wasted)
    reach = replace(verdict.over_nodes, wasted_nodes=wasted)
    return replace(verdict, merged=episodes, result=result, reach=reach)


def ranked(**episodes: tuple[Episode, ...]) -> dict[str, RankedFinding]:
    """Return the findings of a job of a day that has ended, by rule and in order."""
    verdicts = [replace(with_episodes(over(rule), of), ended=True) for rule, of in episodes.items()]
    return {finding.rule: finding for finding in rank_findings(verdicts, DAY)}


def test_given_slow_steps_all_day_when_gpus_are_low_for_three_hours_then_the_steps_are_not_the_reason() -> None:
    found = ranked(
        LowGPUUtilization=held((6.0, 7.0), (12.0, 13.0), (20.0, 21.0)),
        StepOutlier=held((0.5, 24.0), rate=0.1),
    )

    assert found[LOW].explained_by is None
    assert found[LOW].explained_share == pytest.approx(0.0, abs=0.01)


def test_given_slow_steps_in_the_hours_of_low_gpus_when_ranked_then_they_are_the_reason() -> None:
    found = ranked(LowGPUUtilization=held((6.0, 7.0), (12.0, 13.0)), StepOutlier=held((6.0, 7.0), (12.0, 13.0)))

    assert found[LOW].explained_by == "StepOutlier"
    assert list(found) == ["StepOutlier", LOW]


def test_given_three_times_of_low_gpus_when_two_have_reasons_then_the_third_stands_for_itself() -> None:
    found = ranked(
        LowGPUUtilization=held((2.0, 4.0), (8.0, 10.0), (14.0, 15.0)),
        CPUBottleneck=held((2.0, 4.0)),
        IOBottleneck=held((8.0, 10.0)),
    )

    assert found[LOW].explained_by is None
    assert found[LOW].explained_share == pytest.approx(0.8)
    assert [each.start for each in found[LOW].unexplained] == [14.0 * HOUR_S]
    assert [(rule, round(found[rule].score, 1)) for rule in found] == [
        ("CPUBottleneck", 5.8),
        ("IOBottleneck", 5.8),
        (LOW, 2.9),
    ]


def test_given_a_reason_that_lets_go_late_when_ranked_then_it_is_the_reason_all_the_same() -> None:
    found = ranked(LowGPUUtilization=held((2.0, 4.0)), CPUBottleneck=held((2.0, 24.0), rate=0.08))

    assert found[LOW].explained_by == "CPUBottleneck"


def test_given_a_reason_on_another_node_when_ranked_then_it_explains_nothing() -> None:
    found = ranked(
        LowGPUUtilization=held((2.0, 4.0), nodes=("algo-1",)), CPUBottleneck=held((2.0, 4.0), nodes=("algo-2",))
    )

    assert found[LOW].explained_by is None


def test_given_a_reason_that_is_over_when_low_gpus_go_on_for_long_then_it_explains_its_time_alone() -> None:
    verdicts = [
        with_episodes(fired(LOW), held((2.0, None))),
        with_episodes(over("CPUBottleneck"), held((2.0, 4.0))),
    ]
    found = {finding.rule: finding for finding in rank_findings(verdicts, DAY)}

    assert found[LOW].explained_by is None
    assert found[LOW].explained_share == pytest.approx((2.0 * HOUR_S + SLACK_S) / (22.0 * HOUR_S))


spans = st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 100.0)).map(lambda each: (min(each), max(each)))


@given(spans, st.lists(spans, max_size=6))
def test_given_any_spans_when_one_is_covered_then_never_by_more_than_its_length_nor_less_than_by_one(
    span: tuple[float, float], by: list[tuple[float, float]]
) -> None:
    covered = covered_s(span, by)

    assert 0.0 <= covered <= span[1] - span[0] + 1e-9
    assert all(covered >= covered_s(span, [each]) - 1e-9 for each in by)


@given(spans)
def test_given_a_finding_when_held_against_itself_then_it_shares_all_of_its_time(span: tuple[float, float]) -> None:
    episodes = [Episode(*span)]

    assert shared_share(episodes, [episodes], span[1]) == pytest.approx(1.0)


@pytest.mark.parametrize(("unknown", "share"), [(False, 0.2), (True, 0.5)], ids=["by the loss", "by the time"])
def test_given_a_mild_episode_with_a_reason_and_a_grave_one_without_when_shared_then_each_counts_by_its_loss(
    unknown: bool, share: float
) -> None:
    mild, grave = *held((1.0, 2.0), rate=0.2), *held((5.0, 6.0), rate=0.8)
    symptom = [mild, replace(grave, wasted_s=None) if unknown else grave]

    assert shared_share(symptom, [[mild]], 24.0 * HOUR_S) == pytest.approx(share, abs=1e-6)


def several() -> dict[str, RankedFinding]:
    """Return the findings of a day with a slow disk from hour 2 to 8, and a hang from hour 12 to 15."""
    disk, hang = held((2.0, 8.0)), held((12.0, 15.0), rate=1.0)
    waited = replace(disk[0], reason="95 % of the points are low.", advice="Feed the GPUs.")
    idled = replace(hang[0], idle_node="idle", reason="idle for 3 h.", advice="Stop it.")
    return ranked(LowGPUUtilization=(waited, idled), IOBottleneck=disk)


def test_given_low_gpus_of_two_looks_when_one_has_a_reason_then_the_other_stands_for_itself() -> None:
    found = several()

    assert list(found) == ["IOBottleneck", LOW]
    assert found[LOW].explained_by is None
    assert [each.start for each in found[LOW].unexplained] == [12.0 * HOUR_S]
    assert found[LOW].explained_share == pytest.approx(4.2 / 7.2)


def test_given_a_finding_of_several_kinds_when_the_job_has_ended_then_it_speaks_of_what_cost_most() -> None:
    late, mild = held((12.0, 18.0)), held((20.0, 21.0), rate=0.2)
    grave = replace(late[0], idle_node="idle", reason="idle for 6 h.", advice="Stop it.")
    newest = replace(mild[0], reason="95 % of the points are low.", advice="Feed the GPUs.")

    finding = ranked(LowGPUUtilization=(grave, newest))[LOW]

    assert finding.finding.advice == "Stop it."
    assert finding.finding.reason.startswith("1970-01-01 12:00 to 18:00 UTC: idle for 6 h.")
    assert finding.idle_node == "idle"


def test_given_what_is_left_of_low_gpus_when_the_waste_is_told_then_it_is_of_that_alone() -> None:
    found = several()

    assert wasted_share(found[LOW], 1) == pytest.approx(3.0 / 24.0)
    assert wasted_share(replace(found[LOW], explained_by="IOBottleneck"), 1) == pytest.approx(7.2 / 24.0)


@pytest.mark.parametrize(("rate", "cause"), [(0.28, "IOBottleneck"), (0.25, None)])
def test_given_low_gpus_of_two_looks_when_a_cause_is_weighed_then_against_the_loss_of_its_look_alone(
    rate: float, cause: str | None
) -> None:
    waited, hang = held((2.0, 8.0), rate=0.8), held((12.0, 15.0), rate=1.0)
    found = ranked(
        LowGPUUtilization=(*waited, replace(hang[0], idle_node="idle")), IOBottleneck=held((2.0, 8.0), rate=rate)
    )

    assert found[LOW].explained_share == pytest.approx(4.8 / 7.8 if cause else 0.0)
    assert found[LOW].reasons == pytest.approx({cause: 4.8 / 7.8} if cause else {})
    assert found["IOBottleneck"].charged_nodes == pytest.approx((4.8 if cause else 6.0 * rate) / 24.0)
    assert [each.start / HOUR_S for each in found[LOW].unexplained] == [12.0] if cause else [2.0, 12.0]


def test_given_looks_with_one_cause_each_when_ranked_then_each_cause_has_the_part_of_its_look() -> None:
    late = held((0.0, 6.0), rate=1.0)
    found = ranked(
        LowGPUUtilization=(replace(late[0], idle_node="never used"), *held((8.0, 10.0), (14.0, 15.0), rate=1.0)),
        MaxInitializationTime=late,
        CPUBottleneck=held((8.0, 10.0), (14.0, 15.0), rate=1.0),
    )

    assert found[LOW].reasons == pytest.approx({"MaxInitializationTime": 6.0 / 9.0, "CPUBottleneck": 3.0 / 9.0})
    assert (found[LOW].explained_by, found[LOW].unexplained) == ("MaxInitializationTime", ())
