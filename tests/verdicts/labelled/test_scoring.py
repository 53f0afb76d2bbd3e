"""The scorer sees what a report says rightly, and what it says wrongly."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.verdicts.labelled.catalogue.stock import HEALTHY, QUIET, ordinary
from tests.verdicts.labelled.description import Growth, Job, Piece
from tests.verdicts.labelled.figures import Figures, Sampling
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
ADVICE = "Check whether the job hangs."


def _iso(minute: float) -> str:
    return datetime.fromtimestamp(START + 60.0 * minute, UTC).isoformat()


def _finding(rule: str = "LowGPUUtilization", **said: Any) -> dict[str, Any]:
    return {
        "rule": rule,
        "severity": "critical",
        "score": 50.0,
        "worst": "gpu0",
        "reason": "every GPU of algo-1 has been idle.",
        "advice": ADVICE,
        "cost": {"lost": 3.0},
        "facts": [],
        **said,
    }


def _report(*findings: dict[str, Any], fired_at: float = 42.0, health: str = "") -> dict[str, Any]:
    return {
        "verdict": {
            "level": "unhealthy" if findings else "healthy",
            "health": health,
            "change": ADVICE,
            "cost": "",
            "lost": 3.0,
        },
        "findings": list(findings),
        "rules": [{"rule": finding["rule"], "fired_at": _iso(fired_at)} for finding in findings],
    }


def _episode(start: float, end: float, **said: Any) -> dict[str, Any]:
    return {"start": _iso(start), "end": START + 60.0 * end, "node": "algo-1", "gpus": ["gpu0"], "cost": 3.0, **said}


def _score(*findings: dict[str, Any], job: Job = JOB, fired_at: float = 42.0, health: str = "") -> JobScore:
    return scored(job, read_report(_report(*findings, fired_at=fired_at, health=health)))


def _wrong(score: JobScore) -> set[str]:
    return {check.what for check in score.checks if not check.holds}


def test_a_true_finding_holds_in_every_check() -> None:
    score = _score(_finding(episodes=[_episode(40, 100)]))
    assert score.faults[0].found
    assert score.first_is_right
    costs = {"cost", "job's cost"}
    assert {check.what for check in score.checks} == {"start", "end", "advice", "misadvice", "claim", "ended"} | costs
    assert _wrong(score) == set()


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"episodes": [_episode(50, 100)]}, {"start"}),
        ({"episodes": [_episode(40, 119)]}, {"end"}),
        ({"episodes": [_episode(40, 100, cost=1.5)]}, {"cost"}),
        ({"episodes": [_episode(40, 100, cost={"lost": 3.2})]}, set()),
        ({"episodes": [_episode(40, 100, cost=None)]}, set()),
        ({"episodes": [_episode(40, 100)], "advice": "Raise the batch size."}, {"advice", "misadvice"}),
        ({"episodes": [_episode(40, 100)], "reason": "no GPU of algo-1 was ever used: never used."}, {"claim"}),
        ({"episodes": [_episode(40, 100)], "reason": "idle from 00:41 to 01:40."}, set()),
        ({"episodes": [_episode(40, 100)], "reason": "idle from 03:41 on."}, {"clock"}),
        ({"facts": [{"name": "idle_time", "value": 3_480.0}]}, set()),
        ({"facts": [{"name": "idle_time", "value": 6_840.0}]}, {"lasted"}),
        ({"reason": "last seen 20.3 min ago: idle."}, {"ended"}),
        ({"reason": "memory is 80 % now."}, {"ended"}),
        ({"advice": "Check whether it hangs, and stop it if it does."}, {"ended"}),
        ({}, set()),
        ({"cost": None}, {"cost"}),
    ],
)
def test_a_finding_is_wrong_where_it_differs_from_the_label(said: dict[str, Any], wrong: set[str]) -> None:
    assert _wrong(_score(_finding(**said))) == wrong


def test_a_finding_of_another_time_or_rule_does_not_show_the_fault() -> None:
    assert not _score(_finding(episodes=[_episode(2, 20)])).faults[0].found
    assert not _score(_finding(), fired_at=20).faults[0].found
    other = _score(_finding("GPUMemoryIncrease"))
    assert not other.faults[0].found
    assert other.unexplained == ("GPUMemoryIncrease",)


def test_the_episode_that_meets_the_fault_is_held_against_it() -> None:
    score = _score(_finding(episodes=[_episode(2, 20), _episode(41, 99), _episode(110, 119)]))
    assert _wrong(score) == set()


def test_episodes_of_one_fault_are_taken_together() -> None:
    job = replace(JOB, nodes=2, faults=(replace(HANG, nodes=(1, 2), wasted_min=120),))
    both = [_episode(40, 100), _episode(42, 100, node="algo-2")]
    assert _wrong(_score(_finding(episodes=both), job=job)) == {"job's cost"}
    untold = [{**episode, "cost": None} for episode in both]
    assert _wrong(_score(_finding(episodes=untold, cost={"lost": 6.0}), job=job)) == {"job's cost"}
    assert "cost" in _wrong(_score(_finding(episodes=untold), job=job))
    more = [*untold, _episode(2, 20, cost=None)]
    assert "cost" in _wrong(_score(_finding(episodes=more, cost={"lost": 6.0}), job=job))
    elsewhere = replace(job, faults=(replace(HANG, nodes=(2,), wasted_min=120),))
    assert "node" in _wrong(_score(_finding(episodes=both), job=elsewhere))
    flickering = [_episode(40, 60, cost=1.0), _episode(65, 100, cost=2.0), _episode(2, 20, cost=9.0)]
    assert _wrong(_score(_finding(episodes=flickering))) == set()
    touching = [_episode(2, 50, cost=9.0), _episode(40, 100)]
    assert _wrong(_score(_finding(episodes=touching))) == set()


def test_a_symptom_shows_the_fault_but_does_not_stand_first() -> None:
    score = _score(_finding("CPUBottleneck"))
    assert score.faults[0].found
    assert score.first_is_right is False


def test_the_planted_node_and_gpu_are_to_be_named() -> None:
    job = replace(JOB, nodes=2, faults=(replace(HANG, nodes=(2,), gpus=(1,)),))
    named = {"node": "algo-2", "gpus": ["gpu1"]}
    assert _wrong(_score(_finding(episodes=[_episode(40, 100, **named)]), job=job)) == set()
    assert _wrong(_score(_finding(episodes=[_episode(40, 100)]), job=job)) == {"node", "gpu"}
    assert _wrong(_score(_finding(worst="gpu1", reason="gpu1 on algo-2 is idle."), job=job)) == set()
    compared = _finding(worst="gpu1", reason="gpu1 on algo-2 is idle, gpu0 on algo-1 is not.")
    assert _wrong(_score(compared, job=job)) == set()
    assert _wrong(_score(_finding(worst="gpu0", reason="gpu0 on algo-1 is idle."), job=job)) == {"node", "gpu"}


def test_two_faults_need_findings_of_their_own_the_graver_first() -> None:
    starved = Fault(kind="loader, cores full", onset_min=5, end_min=35, wasted_min=15)
    job = replace(JOB, faults=(HANG, starved))
    low = _finding(episodes=[_episode(40, 100)])
    cpu = _finding("CPUBottleneck", episodes=[_episode(5, 35, cost=0.75)], advice="Use more data loader processes.")
    assert _wrong(_score(low, cpu, job=job)) == set()
    assert _wrong(_score(low, {**cpu, "advice": "Raise the batch size."}, job=job)) == {"advice", "misadvice"}
    dear = replace(job, faults=(HANG, replace(starved, wasted_min=(40, 60))))
    assert "job's cost" in _wrong(_score(low, cpu, job=dear))
    assert _wrong(_score(cpu, low, job=job)) == {"order"}
    both = _score(_finding(episodes=[_episode(5, 100)]), job=job)
    assert [fault.found for fault in both.faults] == [True, False]
    assert [fault.found for fault in _score(_finding(), job=job).faults] == [True, False]


def test_information_is_no_fire() -> None:
    healthy = replace(JOB, faults=())
    figures = Figures([_score(_finding(severity="information"), job=healthy), _score(_finding(), job=healthy)], [])
    assert (figures.healthy_fires.count, figures.healthy_fires.of) == (1, 2)


def test_the_graver_job_of_a_pair_is_to_have_the_higher_score() -> None:
    small = replace(JOB, name="small", faults=(replace(HANG, wasted_min=15),))
    grave = _score(_finding(score=20.0))
    light = _score(_finding(score=30.0), job=small)
    figures = Figures([grave, light], [])
    assert figures.out_of_order == [(grave, light)]
    assert Figures([grave, replace(light, faults=(replace(light.faults[0], score=20.0),))], []).out_of_order == []


def test_jobs_that_lose_nearly_as_much_are_no_pair() -> None:
    less = replace(JOB, name="less", faults=(replace(HANG, wasted_min=40),))
    little, least = (replace(JOB, name=f"{lost}", faults=(replace(HANG, wasted_min=lost),)) for lost in (12, 4))
    for graver, lighter in ((JOB, less), (little, least)):
        assert Figures([_score(_finding(), job=graver), _score(_finding(), job=lighter)], []).pairs == []


def test_a_leak_that_fails_sooner_is_graver() -> None:
    def leak(hours: float, score: float) -> JobScore:
        fault = Fault(kind="leak", onset_min=10, fails_in_h=hours)
        return _score(_finding("GPUMemoryIncrease", score=score), job=replace(LEAKING, faults=(fault,)))

    soon, late = leak(0.5, 10.0), leak(4.0, 12.0)
    assert Figures([soon, late], []).out_of_order == [(soon, late)]


def test_the_numbers_of_a_leak_are_held_against_its_growth() -> None:
    fault = Fault(kind="leak", onset_min=10, fails_in_h=1.5)
    job = replace(LEAKING, faults=(fault,))

    def said(hourly: float, left_s: float) -> set[str]:
        facts = [{"name": "hourly_increase", "value": hourly}, {"name": "time_left", "value": left_s}]
        finding = _finding("GPUMemoryIncrease", reason="memory grows.", advice="Find what grows.", facts=facts)
        return _wrong(_score({**finding, "cost": None}, job=job, fired_at=12)) - {"advice"}

    assert said(28.0, 4_800.0) == set()
    assert said(60.0, 1_200.0) == {"growth", "full in"}


def test_a_leak_that_ends_the_job_soon_is_graver_than_a_small_loss() -> None:
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
