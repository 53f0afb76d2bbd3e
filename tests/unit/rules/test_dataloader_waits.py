"""Dataloader against what waiting for batches costs: the GPUs' work, and the share of the time."""

import pytest

from tests.support.framework_traces import read, step
from tests.unit.rules.loaders import DEFAULTS, RULE, START, job, node_at, own_fetches, seconds_of, workers_of
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.rules.dataloader.text import DataloaderKind
from trainguard.rules.rule_result import RuleResult


@pytest.mark.parametrize(("level", "told"), [(70.0, True), (69.0, False)])
def test_advice_on_too_few_loaders_mentions_busy_gpus(level: float, told: bool) -> None:
    nodes = {"algo-1": node_at(level, read(seconds_of(2)))}

    result = RULE.judge(job({}, framework_seen=True, nodes=nodes, closed=True), DEFAULTS)

    assert result.status is Status.FIRED
    advice = result.advice or ""
    assert ("all the same" in advice) is told
    if told:
        assert advice.endswith("; the GPUs that algo-1 uses were 70 % busy all the same, so expect little of it.")


def judge_waits(level: float, *objects: FrameworkEvents, elapsed_s: float = 100.0) -> RuleResult:
    nodes = {"algo-1": node_at(level, *objects, hours=max(elapsed_s / 3_600.0, 0.2))}
    view = job({}, nodes=nodes, framework_seen=True, system_through=START + elapsed_s, closed=elapsed_s < 600.0)
    return RULE.judge(view, DEFAULTS)


def test_too_few_loaders_with_gpus_97_percent_busy_do_not_fire() -> None:
    result = judge_waits(97.0, read(own_fetches(0.9, range(100))))

    assert (result.status, result.advice, result.wasted_share) == (Status.OK, None, None)
    assert result.reason == (
        "algo-1 has 0 loader processes for 8 cores: 0 % (min_threshold 70 %). That matters little: in the training "
        "loop the training processes waited for batches in 90.1 % of it and the GPUs that algo-1 uses were 97 % busy."
    )


@pytest.mark.parametrize(("wait_s", "status"), [(0.1, Status.OK), (0.2, Status.FIRED)])
def test_waits_with_low_gpus_fire_from_a_good_part_of_time_on(wait_s: float, status: Status) -> None:
    result = judge_waits(50.0, read(own_fetches(wait_s, range(100))))

    assert result.status is status
    assert result.wasted_share == (pytest.approx(0.2) if status is Status.FIRED else None)
    assert result.gpus == (("algo-1/gpu0",) if status is Status.FIRED else ())


def test_late_waits_in_a_long_job_fire_and_say_since_when() -> None:
    day = range(0, 72_000, 60)
    healthy, late = own_fetches(0.01, day), own_fetches(0.5, range(72_000, 74_400))

    before = judge_waits(50.0, read(healthy), elapsed_s=72_000.0)
    after = judge_waits(50.0, read(healthy), read(late), elapsed_s=74_400.0)

    assert (before.status, after.status) == (Status.OK, Status.FIRED)
    assert after.onset is not None
    assert abs(after.onset - START - 72_000.0) <= 1_200.0


@pytest.mark.parametrize(
    ("level", "wait_s", "kind"),
    [
        (10.0, 0.74, DataloaderKind.WAITS),
        (74.0, 0.74, DataloaderKind.WAITS),
        (76.0, 0.74, DataloaderKind.FITS),
        (97.0, 0.74, DataloaderKind.FITS),
        (10.0, 0.26, DataloaderKind.WAITS),
        (10.0, 0.24, DataloaderKind.FITS),
    ],
)
def test_late_batches_fire_even_with_enough_workers(level: float, wait_s: float, kind: DataloaderKind) -> None:
    result = judge_waits(level, read(workers_of(8, wait_s)))

    assert result.kind == kind
    assert result.status is (Status.FIRED if kind is DataloaderKind.WAITS else Status.OK)


def test_facts_of_a_starved_training_are_of_its_loop() -> None:
    result = judge_waits(10.0, read(workers_of(2, 0.74)))

    facts = {fact.name: fact for fact in result.facts}
    waited, used = facts["waiting_share"], facts["mean_utilization"]
    assert waited.value == pytest.approx(0.74, abs=0.01)
    assert waited.threshold == 0.25
    assert waited.start == pytest.approx(START, abs=0.1)
    assert waited.end == pytest.approx(START + 99.74, abs=0.1)
    assert (used.value, used.series, used.node) == (10.0, "GPUUtilization", "algo-1")
    assert START <= (used.start or 0.0) < (used.end or 0.0) <= START + 120.0
    assert result.reason == (
        "The training processes of algo-1 waited for batches in 74.2 % of their loop, and the GPUs that it uses were "
        "10 % busy in that time. algo-1 has 2 loader processes for 8 cores: 25 %."
    )
    assert (result.advice or "").startswith("Raise num_workers from 2 to about 8, one loader process a core of 8, or ")
    assert result.measured == pytest.approx(74.2, abs=0.1)
    assert result.threshold == 25.0
    assert result.confidence == pytest.approx(0.823, abs=0.01)


def test_starved_job_with_a_worker_per_core_needs_cheap_batches() -> None:
    advice = judge_waits(10.0, read(workers_of(8, 0.74))).advice or ""

    assert advice.startswith("Make batches cheaper to load")
    assert "num_workers" not in advice


def test_waits_of_a_young_running_job_are_not_judged_yet() -> None:
    nodes = {"algo-1": node_at(10.0, read(workers_of(8, 0.74)))}
    early = RULE.judge(job({}, nodes=nodes, framework_seen=True, system_through=START + 300.0), DEFAULTS)

    assert (early.status, early.kind) == (Status.WARMING_UP, DataloaderKind.TOO_EARLY)


def steps_of(length_s: float, count: int = 100) -> FrameworkEvents:
    """Return a process without loader events that takes one step a second."""
    return read([step(number, float(number), length_s) for number in range(count)])


@pytest.mark.parametrize(
    ("length_s", "level", "kind"),
    [
        (0.3, 30.0, DataloaderKind.BETWEEN_STEPS),
        (0.9, 30.0, DataloaderKind.NO_LOADERS),
        (0.3, 90.0, DataloaderKind.NO_LOADERS),
    ],
)
def test_a_loop_between_its_steps_fires_while_gpus_idle(length_s: float, level: float, kind: DataloaderKind) -> None:
    result = judge_waits(level, steps_of(length_s))

    assert result.kind == kind
    assert (result.status is Status.FIRED) is (kind is DataloaderKind.BETWEEN_STEPS)
    shares = [fact.value for fact in result.facts if fact.name == "between_steps_share"]
    assert shares == ([pytest.approx(0.7, abs=0.02)] if result.status is Status.FIRED else [])


def test_gaps_of_an_interrupted_job_are_no_waits() -> None:
    nodes = {"algo-1": node_at(30.0, steps_of(0.3))}
    view = job(
        {},
        nodes=nodes,
        framework_seen=True,
        system_through=START + 100.0,
        closed=True,
        interruptions=((START + 10.0, START + 20.0),),
    )
    assert RULE.judge(view, DEFAULTS).kind == DataloaderKind.NO_LOADERS
