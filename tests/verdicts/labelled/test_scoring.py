"""The scorer sees what a report says rightly, and what it says wrongly."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.verdicts.labelled.catalogue.stock import HEALTHY, QUIET, ordinary
from tests.verdicts.labelled.description import Growth, Job, Piece
from tests.verdicts.labelled.figures import Figures, Sampling
from tests.verdicts.labelled.ledger_checks import true_shares
from tests.verdicts.labelled.machines import TWO_GPUS
from tests.verdicts.labelled.profile_files import START
from tests.verdicts.labelled.reported import read_report
from tests.verdicts.labelled.scoring import JobScore, scored
from tests.verdicts.labelled.truth import Fault

HANG = Fault(kind="hang", onset_min=40, end_min=100, wasted_min=60)
JOB = Job(
    name="hang",
    group="test",
    about="Stops from minute 40 to 100 of 120.",
    machine=TWO_GPUS,
    minutes=120,
    pieces=ordinary(120, HEALTHY, Piece(load=QUIET, start_min=40, end_min=100)),
    faults=(HANG,),
)
LEAKING = replace(JOB, growth=(Growth(points=50, start_min=20, end_min=120),))
LOST_AT_WORK = "at work"


def _iso(minute: float) -> str:
    return datetime.fromtimestamp(START + 60.0 * minute, UTC).isoformat()


def _episode(start: float, end: float, **said: Any) -> dict[str, Any]:
    node = {"nodes": ["algo-1"], "gpus": ["gpu0"], "wasted_s": 3_600.0}
    return {"start": _iso(start), "end": _iso(end), **node, **said}


def _finding(rule: str = "LowGPUUtilization", **said: Any) -> dict[str, Any]:
    return {
        "rule": rule,
        "finding_kind": "stopped",
        "severity": "critical",
        "score": 50.0,
        "wasted_share": 0.5,
        "explained_by": None,
        "episodes": [_episode(40, 100)],
        "facts": [],
        **said,
    }


def _report(*findings: dict[str, Any], job: Job = JOB, level: str | None = None, **ledger: float) -> dict[str, Any]:
    rules = [finding["rule"] for finding in findings]
    true = true_shares(job)
    buckets = {"idle" if bucket == LOST_AT_WORK else bucket: share for bucket, share in true.items()} | ledger
    return {
        "verdict": {
            "level": level or ("unhealthy" if findings else "healthy"),
            "rule": rules[0] if rules else None,
            "causes": rules,
            "wasted_share": 0.5,
        },
        "findings": list(findings),
        "ledger": [{"bucket": bucket, "share": share} for bucket, share in buckets.items()],
    }


def _score(*findings: dict[str, Any], job: Job = JOB, **said: Any) -> JobScore:
    return scored(job, read_report(_report(*findings, job=job, **said)))


def _wrong(score: JobScore) -> set[str]:
    return {check.what for check in score.checks if not check.holds}


def test_a_true_finding_holds_in_every_check() -> None:
    score = _score(_finding())
    assert score.faults[0].found
    assert score.first_is_right
    assert {check.what for check in score.faults[0].checks} == {"start", "end", "kind", "loss", "job's loss"}
    assert _wrong(score) == set()


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"episodes": [_episode(50, 100)]}, {"start"}),
        ({"episodes": [_episode(40, 119)]}, {"end"}),
        ({"wasted_share": 0.3}, {"loss", "job's loss"}),
        ({"wasted_share": 0.55}, set()),
        ({"wasted_share": None}, {"loss", "job's loss"}),
        ({"finding_kind": "never_used"}, {"kind"}),
    ],
)
def test_a_finding_is_wrong_where_it_differs_from_the_label(said: dict[str, Any], wrong: set[str]) -> None:
    assert _wrong(_score(_finding(**said))) == wrong


def test_the_ledger_is_held_against_the_samples() -> None:
    true = true_shares(JOB)
    assert true["start_up"] == pytest.approx(2 / 120, abs=0.001)
    assert true["tail"] == pytest.approx(1 / 120, abs=0.001)
    assert true[LOST_AT_WORK] == pytest.approx((60 + 0.07 * 57) / 120, abs=0.02)
    assert sum(true.values()) == pytest.approx(1.0)
    assert _wrong(_score(_finding(), compute=true["compute"] + 0.02)) == {"ledger: compute"}
    healthy = replace(JOB, faults=(), pieces=ordinary(120))
    assert _score(job=healthy).is_right
    assert not _score(job=healthy, level="unknown").is_right


def test_finding_of_another_time_or_rule_misses_the_fault() -> None:
    assert not _score(_finding(episodes=[_episode(2, 20)])).faults[0].found
    other = _score(_finding("GPUMemoryIncrease"))
    assert not other.faults[0].found
    assert other.unexplained == ("GPUMemoryIncrease",)


def test_the_episode_that_meets_the_fault_is_held_against_it() -> None:
    assert _wrong(_score(_finding(episodes=[_episode(2, 20), _episode(41, 99), _episode(110, 119)]))) == set()


def test_episodes_of_one_fault_are_taken_together() -> None:
    job = replace(JOB, nodes=2, faults=(replace(HANG, nodes=(1, 2), wasted_min=120),))
    both = [_episode(40, 100), _episode(42, 100, nodes=["algo-2"])]
    assert _wrong(_score(_finding(episodes=both), job=job)) == set()
    elsewhere = replace(job, faults=(replace(HANG, nodes=(2,), wasted_min=120),))
    assert _wrong(_score(_finding(episodes=both), job=elsewhere)) == {"node"}
    touching = [_episode(2, 50), _episode(40, 100)]
    assert _wrong(_score(_finding(episodes=touching))) == set()


def test_a_symptom_shows_the_fault_but_does_not_stand_first() -> None:
    score = _score(_finding("CPUBottleneck"))
    assert score.faults[0].found
    assert score.first_is_right is False


def test_the_planted_node_and_gpu_are_to_be_named() -> None:
    job = replace(JOB, nodes=2, faults=(replace(HANG, nodes=(2,), gpus=(1,)),))
    named = {"nodes": ["algo-2"], "gpus": ["gpu1"]}
    assert {"node", "gpu"}.isdisjoint(_wrong(_score(_finding(episodes=[_episode(40, 100, **named)]), job=job)))
    assert {"node", "gpu"} <= _wrong(_score(_finding(), job=job))


def test_two_faults_need_findings_of_their_own_the_graver_first() -> None:
    starved = Fault(kind="loader, cores full", onset_min=5, end_min=35, wasted_min=15)
    job = replace(JOB, faults=(HANG, starved))
    low = _finding()
    cpu = _finding("CPUBottleneck", episodes=[_episode(5, 35, wasted_s=900.0)], wasted_share=0.125)
    assert _wrong(_score(low, cpu, job=job)) == set()
    dear = replace(job, faults=(HANG, replace(starved, wasted_min=(60, 70))))
    assert "job's loss" in _wrong(_score(low, cpu, job=dear))
    assert _wrong(_score(cpu, low, job=job)) == {"order"}
    both = _score(_finding(episodes=[_episode(5, 100)]), job=job)
    assert [fault.found for fault in both.faults] == [True, False]


def test_a_fire_on_a_healthy_job_counts() -> None:
    healthy = replace(JOB, faults=())
    figures = Figures([_score(job=healthy), _score(_finding(), job=healthy), _score(job=healthy, level="unknown")], [])
    assert (figures.healthy_fires.count, figures.healthy_fires.of) == (1, 3)
    assert (figures.called_healthy.count, figures.called_healthy.of) == (1, 3)


def test_a_healthy_job_counts_at_each_interval() -> None:
    healthy = _score(job=replace(JOB, faults=()))
    figures = Figures([healthy], [Sampling(5.0, _score(_finding(), job=healthy.job), healthy)])
    assert (figures.healthy_fires.count, figures.healthy_fires.of) == (1, 2)


def test_the_graver_job_of_a_pair_is_to_have_the_higher_score() -> None:
    small = replace(JOB, name="small", faults=(replace(HANG, wasted_min=15),))
    grave = _score(_finding(score=20.0))
    light = _score(_finding(score=30.0), job=small)
    figures = Figures([grave, light], [])
    assert figures.out_of_order == [(grave, light)]
    assert Figures([grave, replace(light, faults=(replace(light.faults[0], score=20.0),))], []).out_of_order == []


def test_jobs_that_lose_nearly_as_much_are_no_pair() -> None:
    less, far_less = (replace(JOB, name=f"{lost}", faults=(replace(HANG, wasted_min=lost),)) for lost in (51, 50))
    assert Figures([_score(_finding()), _score(_finding(), job=less)], []).pairs == []
    assert len(Figures([_score(_finding()), _score(_finding(), job=far_less)], []).pairs) == 1


def test_a_leak_that_fails_sooner_is_graver() -> None:
    def leak(hours: float, score: float) -> JobScore:
        fault = Fault(kind="leak", onset_min=10, fails_in_h=hours)
        return _score(_finding("GPUMemoryIncrease", score=score), job=replace(LEAKING, faults=(fault,)))

    soon, late = leak(0.5, 10.0), leak(4.0, 12.0)
    assert Figures([soon, late], []).out_of_order == [(soon, late)]


def test_leak_that_soon_ends_the_job_outranks_a_small_loss() -> None:
    leak = replace(LEAKING, faults=(Fault(kind="leak", onset_min=10, fails_in_h=0.5),))
    small = replace(JOB, faults=(replace(HANG, wasted_min=8),))
    soon, loss = _score(_finding("GPUMemoryIncrease", score=5.0), job=leak), _score(_finding(score=8.0), job=small)
    assert Figures([soon, loss], []).out_of_order == [(soon, loss)]
    large = _score(_finding(score=50.0))
    assert Figures([soon, large], []).pairs == []


def test_a_sampling_is_lost_with_another_main_finding() -> None:
    described = _score(_finding())
    assert not Sampling(5.0, described, described).lost
    assert Sampling(5.0, _score(), described).lost
    assert Sampling(5.0, _score(_finding("CPUBottleneck")), described).lost
    small = replace(JOB, faults=(replace(HANG, kind="small batch"),))
    batch, low = (_score(_finding(rule), job=small) for rule in ("BatchSize", "LowGPUUtilization"))
    assert not Sampling(5.0, batch, batch).lost
    assert Sampling(5.0, low, batch).lost
    healthy = replace(JOB, faults=())
    assert Sampling(5.0, _score(_finding(), job=healthy), _score(job=healthy)).lost
    assert not Sampling(5.0, _score(job=healthy), _score(job=healthy)).lost
