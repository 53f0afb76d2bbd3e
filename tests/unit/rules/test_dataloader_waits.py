"""Dataloader against what waiting for batches costs: the GPUs' work, and the share of the time."""

import pytest

from tests.support.framework_traces import read
from tests.unit.rules.loaders import CORES, DEFAULTS, RULE, START, busy_at, folded, job, own_fetches, seconds_of
from trainguard.records import Status
from trainguard.rules.rule_inputs import NodeFacts
from trainguard.rules.rule_result import RuleResult
from trainguard.telemetry.framework import FrameworkEvents


@pytest.mark.parametrize(("level", "told"), [(70.0, True), (69.0, False)])
def test_given_too_few_loaders_when_the_gpus_are_busy_all_the_same_then_the_advice_says_so(
    level: float, told: bool
) -> None:
    collected = {RULE.name: folded(read(seconds_of(2)))}
    nodes = {"algo-1": NodeFacts("algo-1", busy_at(level), cores=CORES, collected=collected)}

    result = RULE.judge(job({}, framework_seen=True, nodes=nodes, closed=True), DEFAULTS)

    assert result.status is Status.FIRED
    advice = result.advice or ""
    assert ("all the same" in advice) is told
    if told:
        assert advice.endswith(
            "; the used GPUs of algo-1 are 70 % busy on average all the same, so expect little of it."
        )


def judge_waits(level: float, *objects: FrameworkEvents, elapsed_s: float = 100.0) -> RuleResult:
    nodes = {"algo-1": NodeFacts("algo-1", busy_at(level), cores=CORES, collected={RULE.name: folded(*objects)})}
    view = job({}, nodes=nodes, framework_seen=True, system_through=START + elapsed_s, closed=elapsed_s < 600.0)
    return RULE.judge(view, DEFAULTS)


def test_given_too_few_loaders_when_the_gpus_are_97_percent_busy_then_it_is_said_and_does_not_fire() -> None:
    result = judge_waits(97.0, read(own_fetches(0.9, range(100))))

    assert (result.status, result.advice, result.wasted_share) == (Status.OK, None, None)
    assert result.reason == (
        "algo-1 has 0 loader processes for 8 cores: 0 % (min_threshold 70 %). It costs little: the training processes "
        "waited 90 % of the time for batches and the used GPUs left 3 % of the time undone, and it fires from 15 % of "
        "the time on."
    )


@pytest.mark.parametrize(("wait_s", "status"), [(0.1, Status.OK), (0.2, Status.FIRED)])
def test_given_low_gpus_when_batches_are_waited_for_then_only_a_good_part_of_the_time_fires(
    wait_s: float, status: Status
) -> None:
    result = judge_waits(50.0, read(own_fetches(wait_s, range(100))))

    assert result.status is status
    assert result.wasted_share == (pytest.approx(0.2) if status is Status.FIRED else None)
    assert result.gpus == (("gpu0",) if status is Status.FIRED else ())


def test_given_waits_that_begin_late_in_a_long_job_when_judged_then_those_of_late_fire_and_say_since_when() -> None:
    day = range(0, 72_000, 60)
    healthy, late = own_fetches(0.01, day), own_fetches(0.5, range(72_000, 74_400))

    before = judge_waits(50.0, read(healthy), elapsed_s=72_000.0)
    after = judge_waits(50.0, read(healthy), read(late), elapsed_s=74_400.0)

    assert (before.status, after.status) == (Status.OK, Status.FIRED)
    assert after.onset is not None
    assert abs(after.onset - START - 72_000.0) <= 1_200.0
