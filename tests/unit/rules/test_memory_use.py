"""GPUMemoryIncrease on memory in use: a leak and its rate, and everything that only looks like one."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.unit.rules.device_minutes import Rows, devices, replay_devices
from tests.unit.rules.node_replay import JOB_START, node_minutes
from trainguard.core.records import Status
from trainguard.rules.gpu_memory_increase.rise import MOST_LEVELS, UseLevels, fold_use
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncrease, GPUMemoryIncreaseParameters, judge_use
from trainguard.rules.rule_result import RuleResult

TOTAL = 80e9
# Gigabytes in use at a minute of the job.
Used = Callable[[float], float]


@dataclass(frozen=True)
class Judged:
    """What was said after each minute, and what is remembered."""

    results: tuple[RuleResult, ...]
    in_use: dict[str, UseLevels]

    @property
    def last(self) -> RuleResult:
        return self.results[-1]

    @property
    def statuses(self) -> tuple[Status, ...]:
        return tuple(result.status for result in self.results)


ANY_MINUTE = list(node_minutes(Rows([[90.0, 90.0]] * 3).series(), closed=False))[-1]


def judge(used: Used, *, minutes: int = 120, second: Used | None = None, increase: float = 10.0) -> Judged:
    in_use: dict[str, UseLevels] = {}
    results = []
    for minute in range(minutes):
        values = {gpu: [1e9 * of(minute + part) for part in (0.1, 0.5, 0.9)] for gpu, of in _devices(used, second)}
        found = devices(minute, {"MemoryUsedBytes": values, "MemoryTotalBytes": dict.fromkeys(values, TOTAL)})
        fold_use(in_use, replace(ANY_MINUTE, devices=found))
        view = replace(ANY_MINUTE.view, watermark_s=JOB_START + 60.0 * minute + 55.0)
        results.append(judge_use(in_use, view, increase))
    return Judged(tuple(results), in_use)


def _devices(used: Used, second: Used | None) -> list[tuple[str, Used]]:
    return [("gpu0", used), *([] if second is None else [("gpu1", second)])]


def leaking(rate: float, since: float = 0.0, base: float = 30.0) -> Used:
    """Return memory that grows by ``rate`` gigabytes an hour."""
    return lambda at: base + rate * max(at - since, 0.0) / 60.0


def test_leak_says_its_rate_and_when_the_gpu_is_full() -> None:
    said = judge(leaking(8.0)).last
    assert said.status is Status.FIRED
    assert (said.worst, said.gpus) == ("gpu0", ("gpu0",))
    assert "8 GB an hour" in said.reason
    assert said.time_left_s == pytest.approx(3_600.0 * (80.0 - 46.0) / 8.0, rel=0.05)
    assert said.onset == pytest.approx(JOB_START, abs=900.0)
    assert "Save a checkpoint within" in (said.advice or "")


@pytest.mark.parametrize(("increase", "status"), [(18.6, Status.FIRED), (18.7, Status.OK)])
def test_leak_fires_above_the_threshold_only(increase: float, status: Status) -> None:
    assert judge(leaking(8.0), increase=increase).last.status is status


def test_leak_that_begins_late_has_a_late_onset() -> None:
    said = judge(leaking(12.0, since=180.0), minutes=300).last
    assert said.status is Status.FIRED
    assert said.onset == pytest.approx(JOB_START + 60.0 * 180.0, abs=1_800.0)


def sawtooth(period: float, height: float) -> Used:
    return lambda at: 30.0 + height * (at % period) / period


HEALTHY: dict[str, Used] = {
    "steady": lambda _: 62.0,
    "noise": lambda at: 60.0 + 0.3 * np.sin(7.0 * at),
    "sawtooth-of-5-min": sawtooth(5.0, 20.0),
    "sawtooth-of-40-min": sawtooth(40.0, 20.0),
    "cache-that-fills": lambda at: 30.0 + 40.0 * (1.0 - np.exp(-at / 15.0)),
    "longer-sequence": lambda at: 30.0 if at < 60.0 else 55.0,
    "two-longer-sequences": lambda at: 30.0 + 15.0 * (at >= 40.0) + 15.0 * (at >= 80.0),
    "evaluations": lambda at: 30.0 + 30.0 * (at % 30.0 > 25.0),
    "filled-at-the-start": lambda at: min(8.0 * at, 72.0),
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("minutes", [100, 400])
def test_moving_memory_never_fires(name: str, minutes: int) -> None:
    statuses = judge(HEALTHY[name], minutes=minutes).statuses
    assert [minute for minute, status in enumerate(statuses) if status is Status.FIRED] == []


def test_ended_leak_fires_no_more() -> None:
    said = judge(lambda at: 30.0 + 10.0 * min(at, 120.0) / 60.0, minutes=360)
    assert Status.FIRED in said.statuses[:125]
    assert said.last.status is Status.OK
    held = [each for each in said.results if each.status is Status.FIRED][-1]
    reason, advice = held.kept_texts
    assert " rose and stopped: " in reason
    assert (advice or "").startswith("Nothing needs to be changed if a cache")
    assert held.until == pytest.approx(JOB_START + 60.0 * 120.0, abs=180.0)
    assert held.time_left_s is None
    assert not any(fact.name == "time_left" for fact in held.facts)


def test_given_two_devices_when_one_leaks_then_it_alone_is_named() -> None:
    said = judge(lambda _: 60.0, second=leaking(10.0)).last
    assert (said.status, said.worst, said.gpus) == (Status.FIRED, "gpu1", ("gpu1",))


def test_given_a_long_job_when_judged_then_its_state_stays_small() -> None:
    use = judge(leaking(0.5), minutes=900).in_use["gpu0"]
    assert len(use.levels) <= MOST_LEVELS
    assert use.stride == 64


def test_activity_is_judged_where_memory_in_use_is_missing() -> None:
    node = Rows([[90.0, 90.0]] * 60).series(interval_s=15.0)
    said = replay_devices(GPUMemoryIncrease(), GPUMemoryIncreaseParameters(), node, lambda _: {}).last
    assert "memory activity" in said.reason


def test_leak_of_memory_known_as_a_share_is_found() -> None:
    def at(minute: int) -> dict[str, dict[str, list[float]]]:
        return {"MemoryUsedPercent": {"gpu0": [20.0 + 30.0 * minute / 120.0]}}

    node = Rows([[90.0]] * 120).series()
    said = replay_devices(GPUMemoryIncrease(), GPUMemoryIncreaseParameters(), node, at).last
    assert said.status is Status.FIRED
    assert "GB" not in said.reason
    assert "of its memory" in said.reason
