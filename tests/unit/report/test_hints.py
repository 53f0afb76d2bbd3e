"""Low GPUs that no rule explains: bottlenecks too few to fire are named where they are a good part of the loss."""

from dataclasses import replace

import msgspec
import pytest

from tests.support.judged_jobs import Node, ended, judged_job
from tests.support.verdicts import fired, over
from tests.unit.report.test_verdict import told
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.families.profiler.framework_stream import FrameworkState
from trainguard.records import Status
from trainguard.report.verdict import verdict_of
from trainguard.rules.framework_loop import ProcessLoop
from trainguard.rules.framework_time import FrameworkTimeState
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.words import FactSheet


def counted_bottleneck(rule: str, hits: int) -> Verdict:
    """Return the verdict of a bottleneck rule that counted so many of 1,000 points, too few to fire."""
    text = spec_of(rule).text
    assert text is not None
    clause = text(FactSheet(Status.OK, "")).clause
    result = RuleResult(Status.OK, f"{rule} is quiet.", clause=clause, pooled=(hits, 1_000))
    return Verdict(rule, result, FiringHistory())


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("CPUBottleneck", "the CPU cores could not keep up with the GPUs"),
        ("IOBottleneck", "the GPUs waited for storage or other I/O"),
    ],
)
def test_given_bottlenecks_too_few_to_fire_when_they_are_a_third_of_what_low_gpus_cost_then_they_are_named(
    rule: str, words: str
) -> None:
    low = fired("LowGPUUtilization", wasted=0.6)

    assert told(low, counted_bottleneck(rule, 305), job=ended()).health == (
        f"This job was not healthy: its GPU was 31 % busy on average, in part because {words}, in 30.5 % of the points "
        "(LowGPUUtilization, critical)."
    )
    assert "for no reason that the profile shows" in told(low, counted_bottleneck(rule, 199)).health


def test_given_two_bottlenecks_too_few_to_fire_when_low_gpus_are_told_then_the_larger_is_named() -> None:
    low = fired("LowGPUUtilization", wasted=0.6)
    verdict = told(low, counted_bottleneck("CPUBottleneck", 300), counted_bottleneck("IOBottleneck", 400))

    assert "in part because the GPUs waited for storage or other I/O, in 40 % of the points" in verdict.health


def looping(*covered: float, name: str = "algo-1") -> Node:
    """Return a node whose processes looped for 1,000 s each, and spent so many seconds of them in steps."""
    loops = [
        ProcessLoop(str(process), first_us=1, last_us=1_000_000_001, covered_us=round(seconds * 1e6))
        for process, seconds in enumerate(covered)
    ]
    metrics = FrameworkTimeState(events=1, loops=loops)
    stored_rules = {"OverallFrameworkMetrics": StoredRule(data=msgspec.msgpack.encode(metrics))}
    return Node(name=name, framework=FrameworkState(stored_rules=stored_rules))


@pytest.mark.parametrize(
    ("nodes", "share"),
    [
        ([looping(700)], "30 %"),
        ([looping(600, 800)], "30 %"),
        ([looping(1_000, name="algo-1"), looping(200, name="algo-2")], "40 %"),
    ],
)
def test_given_low_gpus_when_half_as_much_of_the_loop_lies_between_steps_then_that_is_said_and_advised(
    nodes: list[Node], share: str
) -> None:
    said = verdict_of(judged_job(fired("LowGPUUtilization", wasted=0.6), nodes=nodes, job=ended()))
    assert f", with {share} of the training loop between the steps, where batches are loaded (Low" in said.health
    assert said.change.startswith("Look between the steps first: load batches ahead of time")


@pytest.mark.parametrize("node", [looping(701), looping(), Node()])
def test_given_low_gpus_when_the_steps_follow_each_other_then_nothing_is_said_of_the_time_between(node: Node) -> None:
    said = verdict_of(judged_job(fired("LowGPUUtilization", wasted=0.6), nodes=[node], job=ended()))
    assert "for no reason that the profile shows" in said.health
    assert "between the steps" not in said.change


def test_given_low_gpus_when_a_bottleneck_is_seen_too_then_it_is_named_in_place_of_the_time_between_steps() -> None:
    low, bottleneck = fired("LowGPUUtilization", wasted=0.6), counted_bottleneck("CPUBottleneck", 400)
    said = verdict_of(judged_job(low, bottleneck, nodes=[looping(100)], job=ended()))
    assert "in part because the CPU cores could not keep up" in said.health


def test_given_a_job_that_was_interrupted_when_low_gpus_are_told_then_the_pause_is_no_time_between_steps() -> None:
    judged = judged_job(fired("LowGPUUtilization", wasted=0.6), nodes=[looping(100)], job=ended())
    judged = replace(judged, account=replace(judged.account, unpaid_s=600.0))
    assert "between the steps" not in verdict_of(judged).health


def test_given_nodes_that_did_nothing_when_told_then_it_was_not_for_the_time_between_steps() -> None:
    idle = fired("LowGPUUtilization", wasted=0.6, idle_node="idle", worst="algo-1")
    said = verdict_of(judged_job(idle, nodes=[looping(100)], job=ended()))
    assert "between the steps" not in said.health + said.change


def test_given_an_idle_node_when_there_were_bottlenecks_before_then_it_did_not_stop_because_of_them() -> None:
    idle = fired("LowGPUUtilization", wasted=0.6, idle_node="idle", worst="algo-1")

    assert "because the GPUs of algo-1 stopped working" in told(idle, counted_bottleneck("CPUBottleneck", 400)).health


def test_given_bottlenecks_on_one_node_of_two_when_low_gpus_are_told_then_the_share_is_of_the_job() -> None:
    low = fired("LowGPUUtilization", wasted=0.9, nodes=(2, 2))
    one, other = counted_bottleneck("CPUBottleneck", 480), counted_bottleneck("CPUBottleneck", 20)
    judged = judged_job(
        low, one, nodes=[Node(), Node(name="algo-2")], by_node={"CPUBottleneck": {"algo-1": one, "algo-2": other}}
    )

    assert "for no reason that the profile shows" in verdict_of(judged).health


def test_given_a_bottleneck_that_has_fired_before_when_low_gpus_are_told_then_it_is_named_as_found_and_not_twice() -> (
    None
):
    low = fired("LowGPUUtilization", wasted=0.6)
    earlier = over("CPUBottleneck", wasted=0.1)
    counted = replace(earlier, result=replace(earlier.result, pooled=(400, 1_000)))

    health = told(low, counted).health

    assert "in part because" not in health
    assert "also found: CPUBottleneck" in health
