"""What the rules over a node say of a job in one clause, and when a run of idle snapshots is chance."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.node_replay import node_minutes, series
from trainguard.finding import Fact
from trainguard.records import Status
from trainguard.rules import low_gpu_utilization
from trainguard.rules.cpu_bottleneck import CPUBottleneck
from trainguard.rules.gpu_health import GPUHealth
from trainguard.rules.gpu_health_text import text as health_text
from trainguard.rules.gpu_problems import HealthKind
from trainguard.rules.hung_job import HungJob
from trainguard.rules.hung_watch import WatchState
from trainguard.rules.io_bottleneck import IOBottleneck
from trainguard.rules.low_gpu_idle import idleness_of
from trainguard.rules.low_gpu_output import IDLE_TIME, PAUSED, QUIET_MEAN, SM_P95, TENSOR_P95, WEAK_MEAN
from trainguard.rules.low_gpu_utilization import LowGPUUtilization
from trainguard.rules.protocol import AnySystemRule
from trainguard.rules.rule_inputs import IdleTime
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.words import FactSheet

VIEW = list(node_minutes(series(np.full(30, 95.0), interval_s=150.0), closed=False))[-1].view


@pytest.mark.parametrize(
    ("given", "clause"),
    [
        ({"idle_node": "idle", "measure": IDLE_TIME, "worst": "algo-2"}, "the GPUs of algo-2 stopped working"),
        ({"idle_node": "never used", "measure": IDLE_TIME}, "the GPUs of a node were never used"),
        (
            {"idle_node": "idle", "measure": QUIET_MEAN, "reason": "nearly idle: for 25 min"},
            "the GPUs of a node were nearly idle",
        ),
        (
            {"idle_node": "idle", "reason": "nearly idle, memory held: for 25 min"},
            "the GPUs of a node were idle and held memory",
        ),
        ({"measure": WEAK_MEAN, "worst": "algo-2/gpu0"}, "the GPUs of algo-2 were hardly used"),
        (
            {"measure": SM_P95, "worst": "algo-2/gpu0.mig1"},
            "instances of the partitioned GPUs of algo-2 were hardly used",
        ),
        ({"measure": SM_P95, "worst": "algo-2/gpu0"}, "the GPUs of algo-2 looked busy and used little of themselves"),
        ({"measure": SM_P95}, "the GPUs of a node looked busy and used little of themselves"),
        ({"measure": TENSOR_P95, "worst": "n/gpu0"}, "the GPUs of n looked busy and used little of themselves"),
        (
            {"measure": PAUSED, "reason": "the GPUs of n pause for 20 s every 5 min, 7 % of the paid time"},
            "the GPUs of a node paused for 20 s every 5 min",
        ),
        ({"measure": PAUSED, "reason": "retold"}, "the GPUs of a node paused too often, or for too long"),
    ],
)
def test_given_a_finding_on_gpu_use_when_the_job_is_summed_up_then_one_clause_says_what_it_was(
    given: dict[str, Any], clause: str
) -> None:
    said = RuleResult(Status.FIRED, **{"reason": "", **given})
    assert callable(low_gpu_utilization.SPEC.clause)
    assert low_gpu_utilization.SPEC.clause(said, 1) == clause


def test_given_low_gpus_when_the_job_is_summed_up_then_they_were_not_kept_busy() -> None:
    assert callable(low_gpu_utilization.SPEC.clause)
    said = low_gpu_utilization.SPEC.clause(RuleResult(Status.FIRED, ""), 1)
    assert said.startswith("the GPUs were not kept busy, ")


def test_given_a_gpu_that_is_not_healthy_when_the_job_is_summed_up_then_it_is_named() -> None:
    lost = Fact(name="lost_since", value=1.0, unit="time", node="algo-1", device="gpu3")
    words = health_text(FactSheet(Status.FIRED, HealthKind.LOST, (lost,), past=True))
    assert words.clause == "gpu3 on algo-1 was not healthy"
    assert words.reason == "gpu3 on algo-1 was lost: its driver did not reach it any more."


@pytest.mark.parametrize(
    ("snapshots", "samples", "kept", "paused", "stopped"),
    [(9, 4, 8, 0, False), (10, 4, 8, 0, True), (9, 3, 8, 0, True), (9, 4, 6, 2, False), (9, 4, 9, 0, True)],
)
def test_given_a_run_of_idle_snapshots_when_the_others_make_it_likely_then_it_is_chance_and_the_node_has_not_stopped(
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
def test_given_samples_that_stand_for_20_minutes_each_when_none_is_idle_then_the_node_works(
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
def test_given_a_node_without_a_sample_when_judged_then_the_rule_waits_for_data(rule: AnySystemRule) -> None:
    said = rule.judge(rule.state_type(), replace(VIEW, watermark_s=None), rule.parameters_type())
    assert (said.status, said.reason) == (Status.WAITING_FOR_DATA, "no system metrics of algo-1 yet.")


def test_given_a_node_that_was_never_watched_when_asked_then_nothing_has_lasted() -> None:
    state = WatchState()
    assert (state.through, state.quiet_s, state.paused_s) == (0.0, 0.0, 0.0)
