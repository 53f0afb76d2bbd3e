"""CPUBottleneck where counters are means over the sampling interval: GPUs that are slow, and in no point idle."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import JOB_START, Replay, node_minutes, series
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.rules.bottlenecks.cpu_and_io import (
    CPU_WORDS,
    CPUBottleneck,
    CPUBottleneckParameters,
    IOBottleneck,
    IOBottleneckParameters,
)
from trainguard.rules.bottlenecks.rule import SLOW_SHARE, _minutes, _points
from trainguard.rules.bottlenecks.state import MinuteCount, Share, Tally
from trainguard.rules.rule_result import FactSheet

RULE = CPUBottleneck()
DEFAULTS = CPUBottleneckParameters()


def means(gpu: float, *, cpu: float, full: float, interval_s: float, minutes: float = 60.0, gpus: int = 1) -> Replay:
    """Judge a node whose counters are means: GPUs at ``gpu``, all cores at ``cpu`` and ``full`` of them full."""
    count = round(minutes * 60.0 / interval_s)
    base = series(np.full((count, gpus), gpu), cpu=99.0, interval_s=interval_s)
    state, result = RULE.state_type(), None
    for minute in node_minutes(base, closed=True):
        points = len(minute.snapshots)
        snapshots = replace(minute.snapshots, cpu_mean=np.full(points, cpu), cores_full=np.full(points, full))
        RULE.observe(state, replace(minute, snapshots=snapshots), DEFAULTS)
        result = RULE.judge(state, minute.view, DEFAULTS)
    assert result is not None
    return Replay((), (result,), state, minute.view)


@pytest.mark.parametrize("interval_s", [0.1, 0.5, 5.0, 60.0, 90.0])
def test_mean_of_slow_gpus_beside_full_cores_fires_above_10(
    interval_s: float,
) -> None:
    result = means(45.0, cpu=97.0, full=8.0, interval_s=interval_s).last

    assert (result.status, result.plain_details["bottlenecked"]) == (Status.FIRED, 0)
    assert result.wasted_share == pytest.approx(0.50, abs=0.01)
    assert (result.onset, result.gpus) == (JOB_START, ("gpu0",))
    assert (
        "the GPUs were below 80 % on average, at 45 % in the newest, while the cores were 97 % busy on average"
        in result.reason
    )
    assert result.advice is not None
    assert result.advice.startswith("The cores are 97 % busy on average, which leaves little: use fewer")
    assert "more data loader processes" not in result.advice


def test_slow_gpus_beside_some_full_cores_advise_more_loaders() -> None:
    result = means(45.0, cpu=30.0, full=4.0, interval_s=60.0).last

    assert result.status is Status.FIRED
    assert "while 4 cores were full on average" in result.reason
    assert result.advice is not None
    assert result.advice.startswith("The cores are 30 % busy on average, so that others are free: use more data loader")


@pytest.mark.parametrize(
    ("gpu", "cpu", "full", "gpus"),
    [
        pytest.param(95.0, 97.0, 8.0, 1, id="busy GPUs beside full cores"),
        pytest.param(45.0, 14.0, 1.0, 1, id="a process that launches small work, or waits in a loop for its GPU"),
        pytest.param(45.0, 14.0, 8.0, 8, id="eight of them for eight GPUs"),
        pytest.param(45.0, 60.0, 0.0, 1, id="free cores"),
    ],
)
def test_slow_means_without_limiting_cores_are_silent(gpu: float, cpu: float, full: float, gpus: int) -> None:
    assert means(gpu, cpu=cpu, full=full, interval_s=60.0, gpus=gpus).last.status is Status.OK


def test_ended_job_describes_slow_minutes_long_over() -> None:
    state, results = RULE.state_type(), []
    for number, minute in enumerate(node_minutes(series(np.full(100, 45.0), interval_s=60.0), closed=True)):
        slow = number < 60
        snapshots = replace(
            minute.snapshots,
            gpu_utilization=np.full((len(minute.snapshots), 1), 45.0 if slow else 95.0),
            cpu_mean=np.full(len(minute.snapshots), 97.0 if slow else 20.0),
            cores_full=np.full(len(minute.snapshots), 8.0 if slow else 0.0),
        )
        RULE.observe(state, replace(minute, snapshots=snapshots), DEFAULTS)
        results.append(RULE.judge(state, minute.view, DEFAULTS))

    said = results[-1]
    assert (said.status, said.pooled, said.measure) == (Status.FIRED, (60, 100), SLOW_SHARE)
    assert said.reason == (
        "in the minutes of 60 of 100 points on algo-1 (60 %, threshold 50 %) the GPUs were below 80 % on average, at "
        "45 %, while the cores were 97 % busy on average."
    )
    assert (said.advice or "").startswith("The cores are 97 % busy on average, which leaves little: ")


def minute_of(gpu: float, *, lost: float = 0.0, level: float = 0.0, peak: float = 0.0, judged: int = 8) -> MinuteCount:
    """Return a minute of two GPUs by its means, percent."""
    sums = {name: round(100 * judged * each) for name, each in {"gpu": gpu, "level": level, "peak": peak}.items()}
    return MinuteCount(5, judged, 0, gpus=2, lost=round(100.0 * judged * lost), **sums)


@pytest.mark.parametrize(
    ("minute", "by_cores", "by_io"),
    [
        (minute_of(50.0), False, False),
        (minute_of(50.0, lost=24.875), False, False),
        (minute_of(50.0, lost=25.0), True, True),
        (minute_of(79.875, level=80.0), True, True),
        (minute_of(80.0, level=80.0), False, False),
        (minute_of(79.875, level=79.875), False, True),
        (minute_of(50.0, level=15.0), False, True),
        (minute_of(50.0, level=14.875), False, False),
        (minute_of(50.0, peak=3.0), True, False),
        (minute_of(50.0, peak=2.875), False, False),
        (minute_of(50.0, peak=50.0), True, False),
        (minute_of(50.0, peak=50.125), True, True),
        (minute_of(0.0, level=99.0, judged=0), False, False),
    ],
)
def test_minute_is_slow_with_limiting_cores_or_waiting_gpus(minute: MinuteCount, by_cores: bool, by_io: bool) -> None:
    assert RULE.is_slow(minute, DEFAULTS) is by_cores
    assert IOBottleneck().is_slow(minute, IOBottleneckParameters()) is by_io


@pytest.mark.parametrize(
    ("level", "peak", "cause", "advice"),
    [
        (80.0, 0.0, "the cores were 80 % busy on average", "The cores are 80 % busy on average, which leaves little: "),
        (79.0, 1.5, "1.5 cores were full on average", "The cores are 79 % busy on average, so that others are free: "),
        (79.0, 1.4, "a core was full", "The cores are 79 % busy on average, so that others are free: "),
    ],
)
def test_full_cores_are_distinguished_from_free_ones(level: float, peak: float, cause: str, advice: str) -> None:
    facts = (
        Fact(name="share_of_samples", value=0.6, unit="share", node="algo-1", threshold=0.5),
        Fact(name="samples_found", value=6),
        Fact(name="samples", value=10),
        Fact(name="mean_utilization_slow", value=45.0, unit="%", threshold=80.0),
        Fact(name="mean_core_utilization", value=level, unit="%"),
        Fact(name="cores_full", value=peak),
    )
    words = CPU_WORDS(FactSheet(Status.FIRED, "slow", facts))
    assert words.reason.endswith(f"while {cause}.")
    assert (words.advice or "").startswith(advice)


@pytest.mark.parametrize(
    ("hits", "judged", "lost", "least", "percent", "wasted"),
    [(0, 0, 0, 1, 0.0, 0.0), (3, 4, 20_000, 1, 75.0, 0.5), (3, 4, 20_000, 8, 75.0, 0.25), (0, 0, 20_000, 8, 0.0, 0.25)],
)
def test_share_is_of_judged_points_or_of_the_required_minimum(
    hits: int, judged: int, lost: int, least: int, percent: float, wasted: float
) -> None:
    share = Share(hits, judged, lost)
    assert (share.percent, share.wasted_of(least)) == (percent, wasted)


def test_shares_of_minutes_keep_hits_and_judged_apart() -> None:
    slow = MinuteCount(1, 8, 0, gpu=800 * 45)
    kept = Tally(judged=40, minutes=[slow, MinuteCount(2, 12, 0, gpu=1_200 * 99)], slow=16, slow_lost=7_000)
    found = _minutes(kept, [slow])
    assert (found.recent.hits, found.recent.judged) == (8, 20)
    assert (found.whole.hits, found.whole.judged) == (24, 40)
    assert (found.recent.lost, found.whole.lost) == (slow.wasted, 7_000 + slow.wasted)
    assert slow.wasted > 0


def test_shares_of_points_keep_hits_judged_and_lost_apart() -> None:
    kept = Tally(
        judged=40, bottlenecked=9, lost=500, minutes=[MinuteCount(1, 8, 3, lost=200), MinuteCount(2, 12, 1, lost=400)]
    )
    found = _points(kept)
    assert (found.recent.hits, found.recent.judged, found.recent.lost) == (4, 20, 600)
    assert (found.whole.hits, found.whole.judged, found.whole.lost) == (9, 40, 500)
