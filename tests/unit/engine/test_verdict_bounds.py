"""Bounds of what verdicts come to: what overlaps, what is left, who has fallen silent, who comes first."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.verdicts import fired, quiet
from trainguard.core.finding import MOST_EPISODES, Episode
from trainguard.core.records import JOB_NODE, Status
from trainguard.engine.streams.rule_runner import is_near_threshold
from trainguard.engine.verdicts.episodes import FiringHistory, Liveness, StoredEpisode
from trainguard.engine.verdicts.ranking import (
    Explanation,
    advice_of,
    left_of,
    loss_weights,
    on_same_nodes,
    shared_share,
    split_parts,
)
from trainguard.engine.verdicts.verdict import (
    RuleOutcome,
    combine,
    ends_episode,
    final,
    known_until,
    liveness_of,
    merged_episodes,
    shown_status,
    with_liveness,
)
from trainguard.rules.rule_result import RuleResult

UNTIL = 100_000.0
RULE = "LowGPUUtilization"


def spans(*of: tuple[float, float | None], nodes: tuple[str, ...] = (), **said: Any) -> list[Episode]:
    return [Episode(start, end, nodes, **said) for start, end in of]


@pytest.mark.parametrize(
    ("symptom", "cause", "share", "left"),
    [
        ((10_000.0, 14_000.0), (10_000.0, 12_700.0), 0.75, 0),
        ((10_000.0, 14_000.0), (10_000.0, 12_690.0), 0.7475, 1),
        ((10_000.0, 14_000.0), (14_300.0, 15_000.0), 0.0, 1),
        ((10_000.0, 14_000.0), (14_200.0, 15_000.0), 0.025, 1),
        ((10_000.0, 14_000.0), (8_000.0, 9_700.0), 0.0, 1),
        ((10_000.0, 14_000.0), (5_700.0, None), 1.0, 0),
        ((10_000.0, 14_000.0), (5_400.0, None), 1.0, 0),
        ((10_000.0, 14_000.0), (5_399.0, None), 0.0, 1),
        ((99_000.0, None), (99_000.0, 99_200.0), 0.5, 1),
        ((99_000.0, 99_000.0), (99_300.0, 99_400.0), 1.0, 0),
        ((99_000.0, 99_000.0), (99_301.0, 99_400.0), 0.0, 1),
    ],
)
def test_cause_explains_its_overlap_with_five_minutes_around(
    symptom: tuple[float, float | None], cause: tuple[float, float | None], share: float, left: int
) -> None:
    episodes, causes = spans(symptom), [spans(cause)]
    assert shared_share(episodes, causes, UNTIL) == share
    found = left_of(episodes, causes, UNTIL)
    assert [part for _, part in found] == [1.0 - share] * left
    assert split_parts(episodes, causes, UNTIL) == [share if share < 0.75 else 1.0]


def test_episodes_weigh_by_loss_else_by_length_else_equally() -> None:
    both = spans((0.0, 100.0), (200.0, 500.0))
    assert loss_weights([replace(both[0], wasted_s=9.0), replace(both[1], wasted_s=1.0)], UNTIL) == [0.9, 0.1]
    assert loss_weights([replace(both[0], wasted_s=9.0), both[1]], UNTIL) == [0.25, 0.75]
    assert loss_weights(spans((0.0, 0.0), (5.0, 5.0), (9.0, 9.0), (9.0, 9.0)), UNTIL) == [0.25] * 4


def test_each_cause_has_the_time_not_taken_by_earlier_ones() -> None:
    symptom = spans((10_000.0, 14_000.0), nodes=("a", "b"))
    causes = [spans((10_000.0, 11_700.0), nodes=("a",)), spans((10_000.0, 13_700.0)), spans((5_000.0, 6_000.0))]
    assert split_parts(symptom, causes, UNTIL) == [0.25, 0.75, 0.0]
    assert split_parts(symptom, causes[:1], UNTIL) == [0.5]
    assert split_parts(symptom, [], UNTIL) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [((), ("a",), True), (("a",), (), True), (("a", "b"), ("b",), True), (("a",), ("b",), False)],
)
def test_episode_of_the_whole_job_includes_every_node(one: tuple[str, ...], other: tuple[str, ...], same: bool) -> None:
    assert on_same_nodes(Episode(0.0, 1.0, one), Episode(0.0, 1.0, other)) is same


@pytest.mark.parametrize(
    ("status", "measured", "threshold", "near_threshold"),
    [
        (Status.OK, 9.0, 10.0, False),
        (Status.OK, 9.25, 10.0, True),
        (Status.OK, 11.0, 10.0, False),
        (Status.OK, 10.75, 10.0, True),
        (Status.OK, -9.25, -10.0, True),
        (Status.WARMING_UP, 9.25, 10.0, True),
        (Status.NOT_APPLICABLE, 9.25, 10.0, False),
        (Status.OK, 0.0, 0.0, False),
        (Status.OK, None, 10.0, False),
        (Status.OK, 1.0, None, False),
    ],
)
def test_rule_within_a_tenth_of_its_threshold_is_near_a_change(
    status: Status, measured: float | None, threshold: float | None, near_threshold: bool
) -> None:
    result = RuleResult(status, "so.", measured=measured, threshold=threshold)
    assert is_near_threshold(result, FiringHistory()) is near_threshold
    assert is_near_threshold(replace(result, near_threshold=True), FiringHistory()) is (
        status is not Status.NOT_APPLICABLE
    )
    assert is_near_threshold(result, FiringHistory(is_open=True)) is False
    assert is_near_threshold(result, FiringHistory(is_open=True, clean_since=5.0)) is True


def part(
    *, is_open: bool = False, fired_at: float | None = None, alerted: int = 0, at: float | None = None
) -> RuleOutcome:
    history = FiringHistory(is_open=is_open, times_fired=1, fired_at=fired_at, alerted=alerted)
    result = RuleResult(Status.FIRED if is_open else Status.OK, "so.")
    return RuleOutcome(RULE, result, history, 60.0, watermark_s=at)


def stale(at: float | None, alerted: int = 0) -> RuleOutcome:
    return replace(part(alerted=alerted, at=at), liveness=Liveness.STALE)


@pytest.mark.parametrize(
    ("parts", "liveness", "ends"),
    [
        ([part()], Liveness.KNOWN, True),
        ([part(is_open=True, fired_at=1.0)], Liveness.KNOWN, False),
        ([stale(100.0)], Liveness.STALE, False),
        ([stale(100.0), part(alerted=1)], Liveness.KNOWN, True),
        ([stale(100.0), part(is_open=True, fired_at=1_000.0)], Liveness.RESTARTED, True),
        ([stale(100.0), part(is_open=True, fired_at=999.0)], Liveness.KNOWN, False),
        ([stale(100.0), stale(200.0), part(is_open=True, fired_at=1_099.0)], Liveness.KNOWN, False),
        ([stale(None), part(is_open=True, fired_at=900.0)], Liveness.RESTARTED, True),
        ([stale(None), part(is_open=True, fired_at=899.0)], Liveness.KNOWN, False),
        ([stale(100.0), part(is_open=True)], Liveness.KNOWN, False),
        ([stale(100.0), part(is_open=True, fired_at=2_000.0), part(is_open=True, fired_at=5.0)], Liveness.KNOWN, False),
    ],
)
def test_liveness_is_anew_only_if_all_began_after_the_silence(
    parts: list[RuleOutcome], liveness: Liveness, ends: bool
) -> None:
    named = {f"algo-{number}": each for number, each in enumerate(parts)}
    assert liveness_of(named) is liveness
    assert ends_episode(combine(RULE, named)) is ends


@pytest.mark.parametrize(
    ("watermark_s", "ahead", "is_open"), [(None, 899.0, True), (None, 900.0, False), (5.0, None, True)]
)
def test_node_without_a_watermark_is_silent_since_the_epoch(
    watermark_s: float | None, ahead: float | None, is_open: bool
) -> None:
    found = with_liveness(part(is_open=True), watermark_s, ahead)
    assert (found.history.is_open, found.watermark_s) == (is_open, watermark_s)


def test_failed_rule_closes_its_open_episode_as_an_error() -> None:
    failed = replace(part(is_open=True), result=RuleResult(Status.ERROR, "failed."))
    found = with_liveness(failed, 50.0, 50.0)
    assert (found.result.status, found.history.is_open, found.watermark_s) == (Status.ERROR, False, 50.0)
    assert shown_status(failed) is Status.ERROR
    assert shown_status(replace(failed, result=RuleResult(Status.OK, "so."))) is Status.FIRED


def test_job_is_known_as_far_as_its_last_live_node() -> None:
    assert known_until({"a": part(at=100.0), "b": part(at=999.0), JOB_NODE: part(at=5.0)}) == 100.0
    assert known_until({"a": part(at=100.0), "b": part(at=1_000.0)}) == 1_000.0
    assert known_until({"a": part(), "b": part(at=7.0)}) == 7.0
    assert known_until({JOB_NODE: part()}) is None
    assert known_until({"a": part(is_open=True), "b": part(at=7.0)}) == 7.0


def episodes_of(
    *of: tuple[float, float | None], threshold: float | None = None, earlier: int = 0, **said: Any
) -> RuleOutcome:
    result = RuleResult(Status.OK, "so.", threshold=threshold)
    return RuleOutcome(RULE, result, FiringHistory(), merged=tuple(spans(*of, **said)), merged_earlier=earlier)


def test_touching_node_episodes_are_merged_and_the_rest_counted() -> None:
    many = [(100.0 * place, 100.0 * place + 50.0) for place in range(MOST_EPISODES + 2)]
    found, earlier = merged_episodes({"a": episodes_of(*many, earlier=3), "b": episodes_of(earlier=5)})
    assert (len(found), earlier, found[0].start) == (MOST_EPISODES, 7, 200.0)
    assert merged_episodes({"a": episodes_of(*many[:8], earlier=3)})[1] == 3
    touching, _ = merged_episodes({"a": episodes_of((0.0, 50.0), (60.0, None)), "b": episodes_of((50.0, 59.0))})
    assert [(each.start, each.end) for each in touching] == [(0.0, 59.0), (60.0, None)]
    open_, _ = merged_episodes({"a": episodes_of((0.0, None)), "b": episodes_of((9_000.0, 9_500.0))})
    assert [(each.start, each.end, each.nodes) for each in open_] == [(0.0, None, ("a", "b"))]
    assert merged_episodes({"a": episodes_of()})[0] == ()


@pytest.mark.parametrize(("threshold", "worst"), [(None, 40.0), (70.0, 20.0), (10.0, 40.0)])
def test_merged_episode_keeps_the_most_extreme_measure(threshold: float | None, worst: float) -> None:
    parts = {
        "a": episodes_of((0.0, 50.0), measured=40.0, reason="mild"),
        "b": episodes_of((0.0, 60.0), measured=20.0, reason="longest", threshold=threshold),
    }
    ((found,), _) = merged_episodes(parts)
    assert (found.measured, found.reason) == (worst, "longest")


def test_whole_job_part_affects_all_unless_gpus_name_nodes() -> None:
    nodes = {"a": episodes_of((0.0, 50.0))}
    ((found,), _) = merged_episodes({JOB_NODE: episodes_of((0.0, 50.0)), **nodes})
    assert found.nodes == ()
    placed = episodes_of((0.0, 50.0), gpus=("a/gpu0", "b/gpu1"))
    ((found,), _) = merged_episodes({JOB_NODE: placed, **nodes})
    assert found.nodes == ("a", "b")
    ((alone,), _) = merged_episodes({JOB_NODE: placed})
    assert (alone.nodes, alone.gpus) == (("a", "b"), ("a/gpu0", "b/gpu1"))


@pytest.mark.parametrize(
    ("parts", "first"),
    [
        ({"a": fired(RULE, wasted_share=0.9), "b": replace(quiet(RULE, Status.ERROR), rule=RULE)}, "a"),
        ({"a": quiet(RULE), "b": quiet(RULE, Status.ERROR)}, "b"),
        ({"a": quiet(RULE, Status.WARMING_UP), "b": quiet(RULE)}, "b"),
        ({"a": quiet(RULE), "b": quiet(RULE)}, "a"),
        ({"a": fired(RULE), "b": fired(RULE, wasted_share=0.5)}, "b"),
        ({"a": fired(RULE, affected_share=0.9), "b": fired(RULE, affected_share=0.8)}, "a"),
    ],
)
def test_most_severe_verdict_of_the_nodes_speaks(parts: dict[str, RuleOutcome], first: str) -> None:
    assert combine(RULE, parts).worst_first[0] == first


@pytest.mark.parametrize(
    ("by", "cause", "said"),
    [
        ({"A": 1.0}, "A", "Do what A advises: it names the cause."),
        ({"A": 0.5, "B": 0.5}, None, "Do what A and B advise: they name the causes."),
        ({"A": 0.25, "B": 0.5, "C": 0.25, "D": 0.0}, "B", "Do what B, A and C advise: they name the causes."),
    ],
)
def test_cause_that_explains_most_comes_first_in_the_advice(by: dict[str, float], cause: str | None, said: str) -> None:
    assert advice_of(Explanation(by, by, 1.0, ()), cause) == said


@pytest.mark.parametrize(
    ("at", "reason"), [(None, "Ended without a profile"), (5.0, "Ended without what the rule needs: ")]
)
def test_waiting_rule_does_not_apply_once_the_stream_has_ended(at: float | None, reason: str) -> None:
    found = final(quiet(RULE, Status.WAITING_FOR_DATA), at)
    assert (found.result.status, found.ended) == (Status.NOT_APPLICABLE, False)
    assert found.result.reason.startswith(reason)


def test_episode_ended_by_its_rule_is_over_at_that_time() -> None:
    assert StoredEpisode(0.0, 100.0, ended_at=80.0).until == 80.0
    assert StoredEpisode(0.0, 100.0).until == 100.0
