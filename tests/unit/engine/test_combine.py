"""From nodes to the job: the worst node speaks, with what all nodes together say beside it."""

from dataclasses import replace
from typing import Any

import msgspec

from trainguard.engine.streams.last_finding import LastFinding
from trainguard.engine.verdicts.combine import combine
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Reach, Verdict
from trainguard.finding import Fact
from trainguard.records import JOB_NODE, Status
from trainguard.rules.rule_result import RuleResult

RULE = "CPUBottleneck"


def verdict(*, is_open: bool = False, status: Status = Status.OK, **said: Any) -> Verdict:
    times_fired = 1 if is_open else 0
    status = Status.FIRED if is_open else status
    result = RuleResult(status, "said so.", data_points=10, **said)
    return Verdict(
        RULE, result, FiringHistory(is_open=is_open, times_fired=times_fired, alerted=times_fired - 1, judged=5)
    )


def test_given_two_nodes_that_fire_when_combined_then_the_one_that_loses_more_speaks_and_both_are_counted() -> None:
    parts = {
        "algo-1": verdict(is_open=True, wasted_share=0.2, affected_share=0.9, worst="gpu0"),
        "algo-2": verdict(is_open=True, wasted_share=0.6, affected_share=0.7, worst="gpu3"),
        "algo-3": verdict(wasted_share=0.1),
        "algo-4": verdict(),
    }
    combined = combine(RULE, parts)

    assert combined.result.worst == "algo-2/gpu3"
    assert combined.result.reason == "2 of 4 nodes fire; worst algo-2: said so."
    assert combined.affected_share == 0.7
    assert combined.reach == Reach(2, 4)
    assert (combined.result.data_points, combined.history.judged) == (40, 20)
    assert {fact.name: fact.value for fact in combined.result.facts} == {"nodes_fired": 2, "nodes_judged": 4}


def test_given_nodes_that_count_points_when_combined_then_the_pooled_share_stands_beside_the_worst() -> None:
    parts = {"algo-1": verdict(pooled=(60, 100)), "algo-2": verdict(pooled=(0, 1_100))}

    assert combine(RULE, parts).result.reason == "said so. Over 2 nodes: 60 of 1,200 points (5 %)."
    assert combine(RULE, {"algo-1": parts["algo-1"]}).result.reason == "said so."
    assert combine(RULE, {"a": verdict(pooled=(0, 0)), "b": verdict(pooled=(0, 0))}).result.reason == "said so."


def test_given_nodes_of_which_one_has_enough_to_do_then_the_instance_is_not_too_large() -> None:
    small, enough = verdict(oversized=True), verdict()

    assert combine(RULE, {"algo-1": small, "algo-2": small}).result.oversized
    assert not combine(RULE, {"algo-1": enough, "algo-2": small}).result.oversized


def test_given_an_episode_that_is_over_when_combined_then_the_nodes_that_had_fired_are_the_affected_ones() -> None:
    ended = verdict(wasted_share=0.3)
    ended = replace(ended, history=FiringHistory(times_fired=1))

    assert combine(RULE, {"algo-1": ended, "algo-2": verdict()}).reach == Reach(1, 2)
    assert combine(RULE, {"algo-1": verdict(), "algo-2": verdict()}).reach == Reach(0, 2)


def test_given_a_part_of_the_whole_job_when_combined_then_it_reaches_over_all_nodes() -> None:
    whole = verdict(is_open=True, wasted_share=0.25, worst="algo-2")
    alone = combine(RULE, {JOB_NODE: whole}, nodes_of_job=4)
    beside = combine(RULE, {"algo-1": verdict(), "algo-2": verdict(), JOB_NODE: whole}, nodes_of_job=2)

    assert alone.reach == Reach(4, 4)
    assert beside.reach == Reach(2, 2)
    assert beside.result.worst == "algo-2"


def test_given_a_node_that_warms_up_when_the_others_are_judged_then_they_speak_and_it_is_named() -> None:
    parts = {
        "algo-1": verdict(),
        "algo-2": verdict(status=Status.WARMING_UP),
        JOB_NODE: verdict(status=Status.WARMING_UP),
    }
    combined = combine(RULE, parts).result

    assert (combined.status, combined.worst) == (Status.OK, "algo-1")
    assert combined.reason == "said so. 1 of 2 nodes without a verdict: said so."
    assert combine(RULE, {"algo-2": parts["algo-2"]}).result.status is Status.WARMING_UP
    assert combine(RULE, {"algo-2": parts["algo-2"], "algo-3": parts["algo-2"]}).result.reason == "said so."


def test_given_an_episode_that_is_over_when_another_node_lost_nothing_then_the_one_that_had_fired_speaks() -> None:
    ended = replace(verdict(affected_share=0.1), history=FiringHistory(times_fired=1))

    assert combine(RULE, {"algo-1": verdict(affected_share=0.9), "algo-2": ended}).result.worst == "algo-2"
    parts = {"algo-1": verdict(status=Status.ERROR), "algo-2": ended}
    assert combine(RULE, parts).result.status is Status.ERROR


def test_given_a_rule_that_fires_nowhere_when_combined_then_errors_speak_before_verdicts_and_those_before_waiting() -> (
    None
):
    parts = {
        "algo-1": verdict(),
        "algo-2": verdict(status=Status.ERROR),
        "algo-3": verdict(status=Status.NOT_APPLICABLE),
    }
    assert combine(RULE, parts).result.status is Status.ERROR
    del parts["algo-2"]
    assert combine(RULE, parts).result.status is Status.OK


def test_given_nodes_that_fired_for_one_episode_when_combined_then_the_least_grave_counts_as_told() -> None:
    def told(severity: str | None, episode: int) -> Verdict:
        fired = verdict(is_open=True)
        told = msgspec.structs.replace(fired.history, alerted=episode, alerted_severity=severity)
        return replace(fired, history=told)

    parts = {"algo-1": told("critical", 1), "algo-2": told("medium", 1), "algo-3": told("low", 0), "algo-4": verdict()}
    assert combine(RULE, parts).history.alerted_severity == "medium"
    assert combine(RULE, {**parts, "algo-5": told(None, 1)}).history.alerted_severity is None


def test_a_node_without_verdict_has_the_facts_of_then_and_now() -> None:
    idle, points = Fact(name="idle_time", value=1_500.0, unit="s"), Fact(name="points", value=71, threshold=257.0)
    earlier = verdict(is_open=True, facts=(idle,), kind="nearly_idle").result
    now = verdict(status=Status.WARMING_UP, facts=(points,)).result
    waiting = LastFinding.of("Own", earlier, at=600.0, began_at=0.0).with_result("Own", now, 900.0)

    parts = {"algo-1": verdict(is_open=True), "algo-2": Verdict(RULE, waiting, FiringHistory())}
    facts = combine(RULE, parts).result.facts

    assert {fact.name: fact.value for fact in facts if fact.name.startswith("unjudged_")} == {
        "unjudged_idle_time": 1_500.0,
        "unjudged_now_points": 71,
    }
    assert next(fact for fact in facts if fact.name == "unjudged_now_points").threshold == 257.0
