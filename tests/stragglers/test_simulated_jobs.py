"""Simulated jobs: their steps are reproduced, planted faults named with their cost, and even jobs silent."""

from dataclasses import replace
from typing import Literal

import pytest

from tests.stragglers.judged import judged
from tests.stragglers.simulated import Job, Planted
from trainguard.stragglers.causes import CauseKind

SHAPES = {
    "1F1B": Job(),
    "GPipe": Job(schedule="GPipe", stages=3, copies=6),
    "two parts a stage": Job(schedule="GPipe", chunks=2),
    "gradients beside passes": Job(schedule="GPipe", chunks=2, stages=2, overlapping=True),
    "one stage": Job(stages=1, copies=8),
    "one copy": Job(copies=1),
}
SLOW: dict[str, tuple[Planted, CauseKind]] = {
    "rank": (Planted("rank", 1.5, 6), CauseKind.RANKS),
    "host": (Planted("host", 1.5, 3), CauseKind.HOST),
    "copy": (Planted("copy", 1.4, 2), CauseKind.COPY),
    "transfers": (Planted("transfers", 30.0), CauseKind.TRANSFERS),
}
PIPELINES = ("1F1B", "GPipe", "two parts a stage")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("planted", [(), (Planted("sequences", 1.6),), (Planted("rank", 2.0),)], ids=str)
def test_replay_reproduces_the_recorded_step(shape: str, planted: tuple[Planted, ...]) -> None:
    job = replace(SHAPES[shape], planted=planted)
    step_s = job.step_s()
    found = judged(job.csv())
    assert found.recorded_s == pytest.approx(step_s)
    assert found.replayed_s == pytest.approx(step_s, rel=1e-4)


@pytest.mark.parametrize("shape", PIPELINES)
@pytest.mark.parametrize("fault", SLOW)
def test_planted_fault_is_named_with_its_cost(shape: str, fault: str) -> None:
    planted, kind = SLOW[fault]
    job = replace(SHAPES[shape], planted=(planted,))
    cost = 1 - job.healthy().step_s() / job.step_s()
    first = judged(job.csv()).causes[0]
    assert first.kind is kind
    assert first.saves == pytest.approx(cost, rel=0.05)
    whose = {"rank": first.ranks, "copy": first.dp_rank, "host": first.host, "transfers": first.kind.value}[fault]
    assert whose == {"rank": [6], "copy": 2, "host": "host-3", "transfers": "transfers"}[fault]


@pytest.mark.parametrize("shape", PIPELINES)
def test_long_stage_is_named_and_saves_what_even_stages_do(shape: str) -> None:
    last = SHAPES[shape].stages - 1
    job = replace(SHAPES[shape], planted=(Planted("stage", 1.6, last),))
    stages = job.stages
    even = 1 + 0.6 / stages
    shared = replace(job, planted=tuple(Planted("stage", even, at) for at in range(stages)))
    first = judged(job.csv()).causes[0]
    assert (first.kind, first.stage, first.unsure) == (CauseKind.STAGE, last, False)
    assert first.saves == pytest.approx(1 - shared.step_s() / job.step_s(), rel=0.05)


@pytest.mark.parametrize("shape", ["1F1B", "GPipe", "one stage"])
def test_uneven_sequences_are_no_slow_rank(shape: str) -> None:
    found = judged(replace(SHAPES[shape], planted=(Planted("sequences", 1.6),), steps=12).csv())
    assert [each.kind for each in found.causes] == [CauseKind.SEQUENCES]
    assert found.causes[0].correlation == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("shape", ["1F1B", "one stage"])
def test_rank_that_is_slow_at_times_is_no_long_sequence(shape: str) -> None:
    job = replace(SHAPES[shape], planted=(Planted("rank", 2.0, 6, every=2),), steps=12)
    first = judged(job.csv()).causes[0]
    assert (first.kind, first.ranks, first.in_steps) == (CauseKind.RANKS, [6], 0.5)
    assert first.saves == pytest.approx(1 - job.healthy().step_s() / job.step_s(), rel=0.05)


def test_slow_stage_of_one_rank_is_unsure() -> None:
    found = judged(replace(SHAPES["one copy"], planted=(Planted("stage", 2.0, 1),)).csv())
    assert (found.causes[0].kind, found.causes[0].stage, found.causes[0].unsure) == (CauseKind.STAGE, 1, True)
    assert found.confidence == "low"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("jitter", [0.0, 0.1])
@pytest.mark.parametrize("steps", [1, 5])
def test_even_job_has_no_cause(shape: str, jitter: float, steps: int) -> None:
    for seed in range(2):
        found = judged(replace(SHAPES[shape], jitter=jitter, steps=steps, seed=seed).csv())
        assert found.causes == []


def test_slow_rank_and_long_sequences_are_told_apart() -> None:
    planted = (Planted("rank", 2.0, 6), Planted("sequences", 1.15))
    found = judged(Job(planted=planted, steps=12).csv())
    assert [each.kind for each in found.causes] == [CauseKind.RANKS]
    assert found.causes[0].ranks == [6]


@pytest.mark.parametrize("schedule", ["1F1B", "GPipe"])
def test_columns_that_can_be_derived_need_not_be_there(schedule: Literal["1F1B", "GPipe"]) -> None:
    job = Job(schedule=schedule, planted=(Planted("rank", 1.5, 6),))
    whole = judged(job.csv())
    short = judged(job.csv({"gmc": "", "seq_id": "", "mc": "", "dp_rank": "", "host": ""}))
    assert short.slowdown == pytest.approx(whole.slowdown)
    assert short.causes == whole.causes
