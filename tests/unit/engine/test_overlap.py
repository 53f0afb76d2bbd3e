"""Which finding is the reason for another: both were there, at the same time, on the same nodes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ledgers import HOUR_S, Part, one_node
from tests.support.verdicts import fired, held, over
from trainguard.core.finding import Episode
from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.engine.verdicts.ranking import SLACK_S, covered_s, rank_findings, shared_share
from trainguard.ledger.bucket import Bucket
from trainguard.pricing.cost import PaidTime

DAY_H = 24.0
DAY = PaidTime(instance_type="ml.p3.2xlarge", started_at=0.0, watermark_s=DAY_H * HOUR_S, nodes=1)
LOW = "LowGPUUtilization"


def lost(*hours: tuple[float, float], rate: float = 0.7, bucket: Bucket = Bucket.UNEXPLAINED) -> list[Part]:
    """Return hours of which a share was lost."""
    return [(begin, end, {bucket: rate}) for begin, end in hours]


def ranked(parts: list[Part], **episodes: tuple[Episode, ...]) -> dict[str, RankedFinding]:
    """Return the findings of a job of a day that has ended, by rule and in order."""
    verdicts = [replace(over(rule), merged=of, ended=True) for rule, of in episodes.items()]
    return {each.rule: each for each in rank_findings(verdicts, DAY, one_node(*parts, hours=DAY_H))}


def test_all_day_slow_steps_are_no_reason_for_three_low_hours() -> None:
    low = ((6.0, 7.0), (12.0, 13.0), (20.0, 21.0))
    found = ranked(lost(*low), LowGPUUtilization=held(*low), StepOutlier=held((0.5, 24.0)))

    assert found[LOW].explained_by is None
    assert found[LOW].explained_share == pytest.approx(0.0, abs=0.01)


def test_slow_steps_in_the_hours_of_low_gpus_are_the_reason() -> None:
    both = held((6.0, 7.0), (12.0, 13.0))
    found = ranked(lost((6.0, 7.0), (12.0, 13.0)), LowGPUUtilization=both, StepOutlier=both)

    assert found[LOW].explained_by == "StepOutlier"
    assert list(found) == ["StepOutlier", LOW]


def test_third_low_time_without_a_reason_stands_for_itself() -> None:
    found = ranked(
        lost((2.0, 4.0), (8.0, 10.0), (14.0, 15.0)),
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


def test_reason_that_ends_late_is_still_the_reason() -> None:
    found = ranked(lost((2.0, 4.0)), LowGPUUtilization=held((2.0, 4.0)), CPUBottleneck=held((2.0, 24.0)))

    assert found[LOW].explained_by == "CPUBottleneck"


def test_reason_that_begins_late_claims_what_it_explains() -> None:
    """Rules look over windows: the symptom shows from when on it was."""
    found = ranked(lost((2.0, 4.0)), LowGPUUtilization=held((2.0, 4.0)), CPUBottleneck=held((2.4, 4.0)))

    assert found[LOW].explained_by == "CPUBottleneck"
    assert found["CPUBottleneck"].loss is not None
    assert found["CPUBottleneck"].loss.share == pytest.approx(0.7 * 2.0 / DAY_H)


def test_reason_on_another_node_explains_nothing() -> None:
    found = ranked(
        lost((2.0, 4.0)),
        LowGPUUtilization=held((2.0, 4.0), nodes=("algo-1",)),
        CPUBottleneck=held((2.0, 4.0), nodes=("algo-2",)),
    )

    assert found[LOW].explained_by is None


def test_ended_reason_explains_only_its_time_of_low_gpus() -> None:
    verdicts = [fired(LOW, (2.0, None)), over("CPUBottleneck", (2.0, 4.0))]
    ledger = one_node(*lost((2.0, DAY_H)), hours=DAY_H)
    found = {finding.rule: finding for finding in rank_findings(verdicts, DAY, ledger)}

    assert found[LOW].explained_by is None
    # What each lost is known of the ledger, which slack is no part of.
    assert found[LOW].explained_share == pytest.approx((2.0 * HOUR_S + SLACK_S) / (22.0 * HOUR_S))


spans = st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 100.0)).map(lambda each: (min(each), max(each)))


@given(spans, st.lists(spans, max_size=6))
def test_covered_time_is_between_the_best_span_and_the_length(
    span: tuple[float, float], by: list[tuple[float, float]]
) -> None:
    covered = covered_s(span, by)

    assert 0.0 <= covered <= span[1] - span[0] + 1e-9
    assert all(covered >= covered_s(span, [each]) - 1e-9 for each in by)


@given(spans)
def test_finding_shares_all_of_its_time_with_itself(span: tuple[float, float]) -> None:
    episodes = [Episode(*span)]

    assert shared_share(episodes, [episodes], span[1]) == pytest.approx(1.0)


@pytest.mark.parametrize(("unknown", "share"), [(False, 0.2), (True, 0.5)], ids=["by the loss", "by the time"])
def test_explained_and_unexplained_episodes_count_by_their_loss(unknown: bool, share: float) -> None:
    mild, grave = held((1.0, 2.0), (5.0, 6.0))
    mild, grave = replace(mild, wasted_s=0.2 * HOUR_S), replace(grave, wasted_s=None if unknown else 0.8 * HOUR_S)

    assert shared_share([mild, grave], [[mild]], DAY_H * HOUR_S) == pytest.approx(share, abs=1e-6)


def several() -> dict[str, RankedFinding]:
    """Return the findings of a day with a slow disk from hour 2 to 8, and a stop from hour 12 to 15."""
    disk, stop = held((2.0, 8.0)), held((12.0, 15.0))
    waited = replace(disk[0], reason="95 % of the points are low.", advice="Feed the GPUs.")
    idled = replace(stop[0], idle_node="idle", reason="idle for 3 h.", advice="Stop it.")
    parts = [*lost((2.0, 8.0)), *lost((12.0, 15.0), rate=1.0)]
    return ranked(parts, LowGPUUtilization=(waited, idled), IOBottleneck=disk)


def test_low_gpus_of_a_symptom_without_a_reason_stand_alone() -> None:
    found = several()

    assert list(found) == ["IOBottleneck", LOW]
    assert found[LOW].explained_by is None
    assert [each.start for each in found[LOW].unexplained] == [12.0 * HOUR_S]
    assert found[LOW].explained_share == pytest.approx(4.2 / 7.2)


def test_ended_job_describes_the_kind_that_cost_most() -> None:
    late, mild = held((12.0, 18.0)), held((20.0, 21.0))
    grave = replace(late[0], idle_node="idle", reason="idle for 6 h.", advice="Stop it.")
    newest = replace(mild[0], reason="95 % of the points are low.", advice="Feed the GPUs.")
    parts = [*lost((12.0, 18.0)), *lost((20.0, 21.0), rate=0.2)]

    finding = ranked(parts, LowGPUUtilization=(grave, newest))[LOW]

    assert finding.finding.advice == "Stop it."
    assert finding.finding.reason.startswith("1970-01-01 12:00 to 18:00 UTC: idle for 6 h.")
    assert finding.idle_node == "idle"


def test_rest_of_low_gpus_claims_only_itself() -> None:
    shares = {rule: each.loss.share for rule, each in several().items() if each.loss is not None}

    assert shares == pytest.approx({LOW: 3.0 / DAY_H, "IOBottleneck": 4.2 / DAY_H})


@pytest.mark.parametrize(("waits", "cause"), [(0.28, "IOBottleneck"), (0.25, None)])
def test_cause_is_weighed_against_the_loss_of_its_own_symptom(waits: float, cause: str | None) -> None:
    """The hours of the one look were lost after the last work, which the cause does not claim."""
    parts: list[Part] = [
        (2.0, 8.0, {Bucket.TAIL: 0.8 - waits, Bucket.UNEXPLAINED: waits}),
        (12.0, 15.0, {Bucket.IDLE: 1.0}),
    ]
    waited, stop = held((2.0, 8.0)), held((12.0, 15.0))
    found = ranked(
        parts, LowGPUUtilization=(*waited, replace(stop[0], idle_node="idle")), IOBottleneck=held((2.0, 8.0))
    )

    assert found[LOW].explained_share == pytest.approx(4.8 / 7.8 if cause else 0.0)
    assert found[LOW].reasons == pytest.approx({cause: 4.8 / 7.8} if cause else {})
    assert [each.start / HOUR_S for each in found[LOW].unexplained] == ([12.0] if cause else [2.0, 12.0])


def test_each_cause_has_the_share_of_its_own_symptom() -> None:
    parts = lost((0.0, 6.0), (8.0, 10.0), (14.0, 15.0), rate=1.0)
    found = ranked(
        parts,
        LowGPUUtilization=(replace(held((0.0, 6.0))[0], idle_node="never used"), *held((8.0, 10.0), (14.0, 15.0))),
        MaxInitializationTime=held((0.0, 6.0)),
        CPUBottleneck=held((8.0, 10.0), (14.0, 15.0)),
    )

    assert found[LOW].reasons == pytest.approx({"MaxInitializationTime": 6.0 / 9.0, "CPUBottleneck": 3.0 / 9.0})
    assert found[LOW].explained_by in {"MaxInitializationTime", "CPUBottleneck"}
    assert found[LOW].unexplained == ()
