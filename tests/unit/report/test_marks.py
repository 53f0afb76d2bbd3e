"""Fires on the time lines: where and when the last episode of each node and rule began."""

from dataclasses import replace
from typing import Any

from tests.support.judged_jobs import Node, judged_job
from tests.support.verdicts import fired, over, quiet
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.report.annotations import MAX_MARKS, TEXT_LENGTH, marks, unmarked
from trainguard.timeline.series import Mark


def at(time: float, verdict: Verdict, **said: Any) -> Verdict:
    episode = FiringHistory(times_fired=2, fired_at=time)
    return replace(verdict, history=episode, result=replace(verdict.result, **said))


def test_given_fires_on_nodes_when_marked_then_each_node_has_its_own_and_its_gpu() -> None:
    low = {
        "algo-1": at(30.0, fired("LowGPUUtilization"), worst="gpu1"),
        "algo-2": at(20.0, over("LowGPUUtilization"), worst="gpu9"),
        "algo-3": quiet("LowGPUUtilization"),
    }
    judged = judged_job(
        fired("LowGPUUtilization", wasted=0.6),
        nodes=[Node(gpus=2), Node(name="algo-2", gpus=2), Node(name="algo-3", gpus=2)],
        by_node={"LowGPUUtilization": low},
    )
    shared: dict[str, Any] = {"rule": "LowGPUUtilization", "severity": "critical"}
    assert marks(judged) == [
        Mark(at=20.0, node="algo-2", gpu=None, text="LowGPUUtilization is fine again.", **shared),
        Mark(at=30.0, node="algo-1", gpu="gpu1", text="LowGPUUtilization fired.", **shared),
    ]
    assert unmarked(judged) == []


def test_given_a_fire_of_the_whole_job_when_marked_then_it_is_of_the_node_that_it_names_or_of_none() -> None:
    judged = judged_job(fired("Dataloader", worst="algo-1"), fired("MaxInitializationTime", wasted=0.2))
    for rule, time in (("Dataloader", 50.0), ("MaxInitializationTime", 40.0)):
        judged.streams.state.stored_rules[rule] = StoredRule(history=FiringHistory(times_fired=1, fired_at=time))
    judged.streams.state.stored_rules["LoadBalancing"] = StoredRule()
    assert [(mark.at, mark.rule, mark.node) for mark in marks(judged)] == [
        (40.0, "MaxInitializationTime", None),
        (50.0, "Dataloader", "algo-1"),
    ]


def test_given_more_fires_than_can_be_marked_when_marked_then_every_rule_keeps_its_first_and_the_rest_is_counted() -> (
    None
):
    nodes = {f"algo-{n}": at(float(n), fired("CPUBottleneck")) for n in range(1, MAX_MARKS + 11)}
    late = {"algo-1": at(9_999.0, fired("StepOutlier"))}
    judged = judged_job(
        fired("CPUBottleneck"), fired("StepOutlier"), by_node={"CPUBottleneck": nodes, "StepOutlier": late}
    )
    found = marks(judged)
    assert len(found) == MAX_MARKS
    assert (found[0].at, found[-1].rule) == (1.0, "StepOutlier")
    assert unmarked(judged) == [f"11 of {MAX_MARKS + 11} fires are not marked."]


def test_given_a_long_reason_when_marked_then_the_mark_s_text_is_short() -> None:
    node = {"algo-1": at(1.0, fired("CPUBottleneck"), reason="x" * 10_000)}
    (mark,) = marks(judged_job(fired("CPUBottleneck"), by_node={"CPUBottleneck": node}))
    assert len(mark.text) == TEXT_LENGTH
