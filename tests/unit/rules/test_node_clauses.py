"""What the rules over a node say about a job in one clause, and when a run of idle snapshots is chance."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import node_minutes, series
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck, IOBottleneck
from trainguard.rules.gpu_health.rule import GPUHealth
from trainguard.rules.gpu_health.text import HealthKind
from trainguard.rules.gpu_health.text import text as health_text
from trainguard.rules.hung_job.rule import HungJob
from trainguard.rules.hung_job.state import WatchState
from trainguard.rules.low_gpu_utilization.node import idleness_of
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.low_gpu_utilization.text import text
from trainguard.rules.low_gpu_utilization.usage import Kind
from trainguard.rules.protocol import AnySystemRule
from trainguard.rules.rule_inputs import IdleTime
from trainguard.rules.rule_result import FactSheet

VIEW = list(node_minutes(series(np.full(30, 95.0), interval_s=150.0), closed=False))[-1].view


def of_node(
    name: str, value: float, *, unit: str = "", device: str | None = None, threshold: float | None = None
) -> Fact:
    """Return a fact of node n and its 25 minutes."""
    if name in {"pause_length", "period", "low_time"}:
        unit = "s"
    elif name.endswith("_share"):
        unit = "share"
    elif "utilization" in name or "activity" in name:
        unit = "%"
    return Fact(name=name, value=value, unit=unit, node="n", device=device, start=0.0, end=1_500.0, threshold=threshold)


IDLE = (
    of_node("idle_time", 1_500.0, unit="s", device="gpu1", threshold=1_200.0),
    Fact(name="idle_since", value=0.0, unit="time"),
    Fact(name="first_sample", value=0.0, unit="time"),
    Fact(name="gpus", value=2),
    of_node("highest_mean_utilization", 3.0, unit="%", device="gpu1", threshold=10.0),
    Fact(name="idle_as", value=Kind.STOPPED),
)
MEMORY = (of_node("memory_in_use", 3e9, unit="B", device="gpu1"), Fact(name="gpus_holding", value=1))
PAUSES = tuple(
    of_node(name, value, threshold=0.15)
    for name, value in {"pause_length": 20.0, "period": 100.0, "pause_share": 0.2, "paused_time_share": 0.19}.items()
)
IN_PART = tuple(
    of_node(name, value, device="gpu1", threshold=0.5)
    for name, value in {"idle_share": 0.6, "mean_utilization": 8.0, "highest_mean_utilization": 12.0}.items()
)
LOW = tuple(
    of_node(name, value, device="gpu1", threshold=70.0)
    for name, value in {"p95_utilization_at_work": 30.0, "p5_utilization_at_work": 5.0, "low_time": 900.0}.items()
)
LOW_SM = tuple(
    of_node(name, value, device="gpu1", threshold=20.0)
    for name, value in {"p95_activity_at_work": 4.0, "mean_utilization_at_work": 97.0, "minutes_at_work": 20}.items()
)
INSTANCES = tuple(
    of_node(name, value, device="gpu0.mig1", threshold=1.0)
    for name, value in {"p95_sm_activity": 0.5, "highest_sm_activity": 0.5, "low_time": 1_200.0}.items()
)
AFFECTED = Fact(name="gpus_affected", value=2, node="n")


@pytest.mark.parametrize(
    ("kind", "facts", "clause"),
    [
        (Kind.STOPPED, IDLE, "the GPUs of n stopped working"),
        (Kind.NEVER_USED, IDLE, "the GPUs of n were never used"),
        (Kind.NEARLY_IDLE, IDLE, "the GPUs of n were nearly idle"),
        (Kind.HOLDS_MEMORY, (*IDLE, *MEMORY), "the GPUs of n were idle and held memory"),
        (Kind.GPU_HOLDS_MEMORY, (*IDLE, *MEMORY), "gpu1 of n was idle and held memory"),
        (Kind.HARDLY_USED, IDLE, "the GPUs of n were hardly used"),
        (Kind.INSTANCES_LOW, (*INSTANCES, AFFECTED), "instances of the partitioned GPUs of n were hardly used"),
        (Kind.INSTANCES_UNUSED, (*INSTANCES, AFFECTED), "instances of the partitioned GPUs of n were never used"),
        (
            Kind.LOW_ACTIVITY,
            (*LOW_SM, Fact(name="activity", value="SM activity"), AFFECTED),
            "the GPUs of n looked busy and used little of themselves",
        ),
        (Kind.PAUSES, PAUSES, "the GPUs of n paused for 20 s every 100 s"),
        (Kind.IDLE_IN_PART, (*IN_PART, IDLE[3]), "the GPUs of n did nothing in 60 % of 25 min"),
        (Kind.UNDER_USED, (*LOW, Fact(name="samples_at_work", value=500)), "the GPUs were not kept busy"),
        (Kind.FLUCTUATES, (*LOW, Fact(name="samples_at_work", value=500)), "the GPUs were not kept busy"),
        ("", (), "the GPUs were not kept busy"),
    ],
)
@pytest.mark.parametrize("ended", [True, False])
def test_each_kind_of_gpu_use_has_one_clause_whenever_told(
    kind: str, facts: tuple[Fact, ...], clause: str, ended: bool
) -> None:
    end = (Fact(name="stream_end", value=1_500.0, unit="time", node="n"),) if ended else ()
    said = text(FactSheet(Status.FIRED, kind, (*facts, *end)))
    assert said.clause == clause
    past = text(FactSheet(Status.FIRED, kind, facts, past=True))
    if ended:
        assert (said.reason, said.advice) == (past.reason, past.advice)
    for word in ("has been", "stop it if", " works", " are low"):
        assert word not in past.reason


def test_unhealthy_gpu_is_named_in_the_job_summary() -> None:
    lost = Fact(name="lost_since", value=1.0, unit="time", node="algo-1", device="gpu3")
    words = health_text(FactSheet(Status.FIRED, HealthKind.LOST, (lost,), past=True))
    assert words.clause == "gpu3 on algo-1 was not healthy"
    assert words.reason == "gpu3 on algo-1 was lost: its driver did not reach it any more."


@pytest.mark.parametrize(
    ("snapshots", "samples", "kept", "paused", "stopped"),
    [(9, 4, 8, 0, False), (10, 4, 8, 0, True), (9, 3, 8, 0, True), (9, 4, 6, 2, False), (9, 4, 9, 0, True)],
)
def test_likely_chance_run_of_idle_snapshots_is_no_stopped_node(
    snapshots: int, samples: int, kept: int, paused: int, stopped: bool
) -> None:
    view = replace(
        VIEW,
        idle_run_s=150.0 * snapshots,
        kept_total=kept,
        idle_time=IdleTime(samples=samples, paused=paused),
    )
    found = idleness_of(view)
    assert (None if found is None else found.look) == ("silent" if stopped else None)
    assert idleness_of(replace(view, watermark_s=None)) is None


@pytest.mark.parametrize(
    ("idle_s", "quiet_s", "samples", "newest", "idles"),
    [
        (0.0, 0.0, 0, 50.0, False),
        (1.0, 0.0, 0, 50.0, True),
        (1.0, 0.0, 30, 50.0, False),
        (0.0, 1.0, 0, 4.0, True),
        (0.0, 1.0, 0, 5.0, False),
    ],
)
def test_node_works_if_no_20_minute_sample_is_idle(
    idle_s: float, quiet_s: float, samples: int, newest: float, idles: bool
) -> None:
    idle = IdleTime(samples=samples, quiet_s=quiet_s, newest_mean=newest)
    view = replace(VIEW, interval_s=1_200.0, idle_run_s=1_200.0 * idle_s, idle_time=idle, kept_total=2_000)
    assert (idleness_of(view) is not None) is idles


@pytest.mark.parametrize(
    "rule",
    [LowGPUUtilization(), CPUBottleneck(), IOBottleneck(), GPUHealth(), HungJob()],
    ids=lambda each: str(each.name),
)
def test_node_without_a_sample_waits_for_data(rule: AnySystemRule) -> None:
    said = rule.judge(rule.state_type(), replace(VIEW, watermark_s=None), rule.parameters_type())
    assert (said.status, said.reason) == (Status.WAITING_FOR_DATA, "no system metrics of algo-1 were written.")


def test_node_that_was_never_watched_has_no_durations() -> None:
    state = WatchState()
    assert (state.through, state.quiet_s, state.paused_s) == (0.0, 0.0, 0.0)
