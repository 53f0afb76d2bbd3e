"""From nodes to the job: the worst node speaks, with what all nodes together say beside it."""

from dataclasses import replace
from typing import Any

import msgspec

from trainguard.core.records import JOB_NODE, Status
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import RuleOutcome, combine
from trainguard.rules.rule_result import RuleResult

RULE = "CPUBottleneck"


def verdict(*, is_open: bool = False, status: Status = Status.OK, **said: Any) -> RuleOutcome:
    times_fired = 1 if is_open else 0
    status = Status.FIRED if is_open else status
    result = RuleResult(status, "said so.", data_points=10, **said)
    return RuleOutcome(
        RULE, result, FiringHistory(is_open=is_open, times_fired=times_fired, alerted=times_fired - 1, judged=5)
    )


def test_node_that_loses_more_speaks_and_both_fired_are_counted() -> None:
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
    assert combined.reach == (2, 4)
    assert (combined.result.data_points, combined.history.judged) == (40, 20)
    assert {fact.name: fact.value for fact in combined.result.facts} == {"nodes_fired": 2, "nodes_judged": 4}


def test_pooled_share_is_shown_beside_the_worst_node() -> None:
    parts = {"algo-1": verdict(pooled=(60, 100)), "algo-2": verdict(pooled=(0, 1_100))}

    assert combine(RULE, parts).result.reason == "said so. Over the judged nodes: 60 of 1,200 points (5 %)."
    assert combine(RULE, {"algo-1": parts["algo-1"]}).result.reason == "said so."
    assert combine(RULE, {"a": verdict(pooled=(0, 0)), "b": verdict(pooled=(0, 0))}).result.reason == "said so."


def test_instance_is_not_too_large_if_one_node_is_busy() -> None:
    small, enough = verdict(oversized=True), verdict()

    assert combine(RULE, {"algo-1": small, "algo-2": small}).result.oversized
    assert not combine(RULE, {"algo-1": enough, "algo-2": small}).result.oversized


def test_affected_nodes_of_an_ended_episode_are_those_that_fired() -> None:
    ended = verdict(wasted_share=0.3)
    ended = replace(ended, history=FiringHistory(times_fired=1))

    assert combine(RULE, {"algo-1": ended, "algo-2": verdict()}).reach == (1, 2)
    assert combine(RULE, {"algo-1": verdict(), "algo-2": verdict()}).reach == (0, 2)


def test_part_of_the_whole_job_spans_all_nodes() -> None:
    whole = verdict(is_open=True, wasted_share=0.25, worst="algo-2")
    alone = combine(RULE, {JOB_NODE: whole}, nodes_of_job=4)
    beside = combine(RULE, {"algo-1": verdict(), "algo-2": verdict(), JOB_NODE: whole}, nodes_of_job=2)

    assert alone.reach == (4, 4)
    assert beside.reach == (2, 2)
    assert beside.result.worst == "algo-2"


def test_warming_node_is_named_while_the_others_speak() -> None:
    parts = {
        "algo-1": verdict(),
        "algo-2": verdict(status=Status.WARMING_UP),
        JOB_NODE: verdict(status=Status.WARMING_UP),
    }
    combined = combine(RULE, parts).result

    assert (combined.status, combined.worst) == (Status.OK, "algo-1")
    assert combined.reason == "said so. 1 of 2 nodes without a verdict: algo-2."
    assert [(fact.name, fact.value) for fact in combined.facts[-2:]] == [
        ("nodes_without_verdict", 1),
        ("node_without_verdict", "algo-2"),
    ]
    assert combine(RULE, {"algo-2": parts["algo-2"]}).result.status is Status.WARMING_UP
    assert combine(RULE, {"algo-2": parts["algo-2"], "algo-3": parts["algo-2"]}).result.reason == "said so."


def test_node_that_fires_is_none_without_a_verdict() -> None:
    held = replace(verdict(status=Status.WARMING_UP), history=FiringHistory(is_open=True, times_fired=1, judged=5))
    parts = {"algo-1": held, "algo-2": verdict(is_open=True, wasted_share=0.5), "algo-3": verdict()}
    combined = combine(RULE, parts)

    assert combined.result.reason == "2 of 3 nodes fire; worst algo-2: said so."
    assert combined.waiting_nodes == ()


def test_ended_episode_is_spoken_for_by_the_node_that_fired() -> None:
    ended = replace(verdict(affected_share=0.1), history=FiringHistory(times_fired=1))

    assert combine(RULE, {"algo-1": verdict(affected_share=0.9), "algo-2": ended}).result.worst == "algo-2"
    parts = {"algo-1": verdict(status=Status.ERROR), "algo-2": ended}
    assert combine(RULE, parts).result.status is Status.ERROR


def test_errors_precede_verdicts_and_those_precede_waiting() -> None:
    parts = {
        "algo-1": verdict(),
        "algo-2": verdict(status=Status.ERROR),
        "algo-3": verdict(status=Status.NOT_APPLICABLE),
    }
    assert combine(RULE, parts).result.status is Status.ERROR
    del parts["algo-2"]
    assert combine(RULE, parts).result.status is Status.OK


def test_least_severe_node_of_an_episode_counts_as_alerted() -> None:
    def told(severity: str | None, episode: int) -> RuleOutcome:
        fired = verdict(is_open=True)
        told = msgspec.structs.replace(fired.history, alerted=episode, alerted_severity=severity)
        return replace(fired, history=told)

    parts = {"algo-1": told("critical", 1), "algo-2": told("medium", 1), "algo-3": told("low", 0), "algo-4": verdict()}
    assert combine(RULE, parts).history.alerted_severity == "medium"
    assert combine(RULE, {**parts, "algo-5": told(None, 1)}).history.alerted_severity is None


def test_points_of_nodes_are_those_of_the_worst_nodes_kind() -> None:
    by_points, by_minutes = (60, 100), (90, 100)
    worst = verdict(is_open=True, kind="slow", pooled=by_minutes, pooled_by={"waits": by_points, "slow": by_minutes})
    other = verdict(kind="waits", pooled=(10, 100), pooled_by={"waits": (10, 100), "slow": (30, 100)})

    facts = {fact.name: fact.value for fact in combine(RULE, {"algo-1": worst, "algo-2": other}).result.facts}

    assert (facts["points_seen_on_nodes"], facts["points_judged_on_nodes"]) == (120, 200)


def test_the_job_as_a_whole_counts_no_nodes() -> None:
    parts = {"algo-1": verdict(), "algo-2": verdict(), JOB_NODE: verdict(is_open=True)}

    assert combine(RULE, parts).result.facts == ()


def test_of_many_nodes_without_a_verdict_four_are_facts() -> None:
    waiting = {f"algo-{place}": verdict(status=Status.WARMING_UP) for place in range(2, 8)}
    result = combine(RULE, {"algo-1": verdict(), **waiting}).result

    assert result.reason.endswith("6 of 7 nodes without a verdict: algo-2, algo-3, algo-4 and 3 more.")
    assert [fact.value for fact in result.facts if fact.name == "node_without_verdict"] == [
        f"algo-{place}" for place in range(2, 6)
    ]
