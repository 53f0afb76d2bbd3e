"""A plan without details: the same verdicts from streams that are opened one by one, and kept as little as can be."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from tests.support.delivered import UPLOADS, deliver
from tests.support.delivery import Network
from tests.support.own_rules import OwnJob, OwnParameters, deploy
from tests.support.small_job import JOB, SETTINGS, describe
from trainguard.core.records import JobRecord, Status, StreamRecord
from trainguard.engine.diagnosis.case import job_verdicts, ledger_of, paid_time_of
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.family import ProfilerStreams
from trainguard.engine.streams.job_streams import JobMoment, JobStreams
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome
from trainguard.rules.rule_inputs import JobView
from trainguard.rules.rule_result import RuleResult

Items = tuple[JobRecord, Sequence[StreamRecord]]

SOON = {"trainguard:CPUBottleneck_patience": "20", "trainguard:CPUBottleneck_cpu_threshold": "30"} | {
    "trainguard:CPUBottleneck_gpu_threshold": "60",
    "trainguard:CPUBottleneck_threshold": "10",
}


@pytest.fixture(params=["running", "ended"])
def items(request: pytest.FixtureRequest) -> Items:
    """Return a job and its items: it trains, with bottlenecks and slow steps, or all of its streams have closed."""
    network = Network()
    network.world.training_jobs.set(describe(SETTINGS | SOON))
    deliver(network, UPLOADS if request.param == "ended" else UPLOADS[:-1])
    return network.job(), network.world.nodes.of_job(JOB)


def opened(items: Items, *, detailed: bool) -> tuple[JobRecord, RulePlan, JobStreams]:
    job, records = items
    plan = replace(FAMILIES.plan(job), detailed=detailed)
    return job, plan, FAMILIES.open(job.job, plan, records)


def judged(job: JobRecord, plan: RulePlan, streams: JobStreams) -> tuple[list[RuleOutcome], list[Fire]]:
    return job_verdicts(job, plan, streams, moment=JobMoment(closed=streams.closed))


def bare(verdicts: Sequence[RuleOutcome]) -> list[RuleOutcome]:
    return [replace(each, result=replace(each.result, details={})) for each in verdicts]


def test_job_without_details_is_judged_the_same_otherwise(items: Items) -> None:
    whole, brief = opened(items, detailed=True), opened(items, detailed=False)
    (expected, fires), (verdicts, brief_fires) = judged(*whole), judged(*brief)
    assert {each.result.status for each in verdicts} >= {Status.FIRED, Status.OK}
    (bottleneck,) = (each for each in verdicts if each.rule == "CPUBottleneck")
    assert bottleneck.result.status is Status.FIRED
    assert bare(verdicts) == bare(expected)
    assert bare([fire.verdict for fire in brief_fires]) == bare([fire.verdict for fire in fires])
    assert [(fire.at, fire.ledger) for fire in brief_fires] == [(fire.at, fire.ledger) for fire in fires]
    assert paid_time_of(*brief) == paid_time_of(*whole)
    assert ledger_of(*brief).by_node() == ledger_of(*whole).by_node()
    for name in ("watermark_s", "nodes", "counters", "last_fault"):
        assert getattr(brief[2], name) == getattr(whole[2], name)


def test_streams_without_details_hold_no_large_array_or_state(
    items: Items,
) -> None:
    job, plan, streams = opened(items, detailed=False)
    judged(job, plan, streams)
    profiler = ProfilerStreams.of(streams)
    for system in profiler.system.values():
        assert (system.state.kept.window, system.state.kept.histogram) == ([], b"")
    for stream in profiler.streams.values():
        assert not any(stored.data for stored in stream.state.stored_rules.values())
        with pytest.raises(RuntimeError, match="given up, expected no further judgement"):
            stream.verdicts(closed=False)
        with pytest.raises(RuntimeError, match="given up"):
            stream.store()


class OwnNotes(OwnJob):
    """A rule over the job that reads every node's kept points, and finds that they cannot be written to."""

    name: ClassVar[str] = "OwnNotes"

    def judge(self, view: JobView, parameters: OwnParameters) -> RuleResult:
        del parameters
        return RuleResult(Status.OK, noted(view))


def noted(view: JobView) -> str:
    systems = [facts.system for facts in view.nodes.values() if facts.system is not None]
    said = []
    for system in systems:
        kept = (system.kept_times, system.kept_gpu_utilization, system.kept_gpu_memory, system.kept_cpu_mean)
        assert not any(array.flags.writeable for array in (*kept, system.gpu_histogram, system.ever_active))
        numbers = [float(np.nansum(array)) for array in (*kept, system.gpu_histogram)]
        said.append(f"{system.node} {system.closed} {system.kept_total} {numbers}")
    return "; ".join(said)


def test_joint_rule_sees_all_kept_points_without_details(items: Items, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(monkeypatch, OwnNotes())
    reasons = []
    for detailed in (True, False):
        verdicts, _ = judged(*opened(items, detailed=detailed))
        (own,) = (each for each in verdicts if each.rule == OwnNotes.name)
        reasons.append(own.result.reason)
    assert "algo-2" in reasons[0]
    assert reasons[0] == reasons[1]
