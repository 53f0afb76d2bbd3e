"""Bounds of what verdicts come to: what overlaps, what is left, who has fallen silent, who comes first."""

from dataclasses import replace
from typing import Any

import pytest
from trainguard.engine.verdicts.joint_loss import joint_nodes

from tests.support.verdicts import fired, quiet
from trainguard.engine.verdicts.combine import combine
from trainguard.engine.verdicts.episodes import FiringHistory, Liveness, StoredEpisode
from trainguard.engine.verdicts.explanations import Explanation, advice_of
from trainguard.engine.verdicts.final import final
from trainguard.engine.verdicts.findings import RankedFinding, rank_findings
from trainguard.engine.verdicts.liveness import ends_episode, known_until, liveness_of, with_liveness
from trainguard.engine.verdicts.merged_episodes import merged_episodes
from trainguard.engine.verdicts.nearness import is_near
from trainguard.engine.verdicts.overlap import left_of, loss_weights, on_same_nodes, shared_share, split_parts
from trainguard.engine.verdicts.severity import score_of, wasted_share_of
from trainguard.engine.verdicts.verdict import Reach, Verdict, shown_status
from trainguard.finding import MOST_EPISODES, Episode, Finding
from trainguard.pricing.cost import Account
from trainguard.records import JOB_NODE, Status
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
def test_given_a_cause_at_a_time_when_held_against_a_symptom_then_it_explains_what_both_have_and_five_minutes_around(
    symptom: tuple[float, float | None], cause: tuple[float, float | None], share: float, left: int
) -> None:
    episodes, causes = spans(symptom), [spans(cause)]
    assert shared_share(episodes, causes, UNTIL) == share
    found = left_of(episodes, causes, UNTIL)
    assert [part for _, part in found] == [1.0 - share] * left
    assert split_parts(episodes, causes, UNTIL) == [share if share < 0.75 else 1.0]


def test_given_episodes_when_weighed_then_by_their_loss_else_by_their_length_else_alike() -> None:
    both = spans((0.0, 100.0), (200.0, 500.0))
    assert loss_weights([replace(both[0], wasted_s=9.0), replace(both[1], wasted_s=1.0)], UNTIL) == [0.9, 0.1]
    assert loss_weights([replace(both[0], wasted_s=9.0), both[1]], UNTIL) == [0.25, 0.75]
    assert loss_weights(spans((0.0, 0.0), (5.0, 5.0), (9.0, 9.0), (9.0, 9.0)), UNTIL) == [0.25] * 4


def test_given_causes_that_follow_each_other_when_split_then_each_has_what_those_before_it_do_not() -> None:
    symptom = spans((10_000.0, 14_000.0), nodes=("a", "b"))
    causes = [spans((10_000.0, 11_700.0), nodes=("a",)), spans((10_000.0, 13_700.0)), spans((5_000.0, 6_000.0))]
    assert split_parts(symptom, causes, UNTIL) == [0.25, 0.75, 0.0]
    assert split_parts(symptom, causes[:1], UNTIL) == [0.5]
    assert split_parts(symptom, [], UNTIL) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [((), ("a",), True), (("a",), (), True), (("a", "b"), ("b",), True), (("a",), ("b",), False)],
)
def test_given_episodes_on_nodes_when_compared_then_one_of_the_whole_job_has_all(
    one: tuple[str, ...], other: tuple[str, ...], same: bool
) -> None:
    assert on_same_nodes(Episode(0.0, 1.0, one), Episode(0.0, 1.0, other)) is same


def losing(episodes: list[Episode], charged: float | None, rule: str = RULE, unexplained: bool = True) -> RankedFinding:
    found = Finding(rule, None, "so.", episodes=tuple(episodes))
    left = tuple(episodes) if unexplained else ()
    return RankedFinding(found, 1.0, True, None, None, None, (1, 1), None, charged_nodes=charged, unexplained=left)


def lost(start: float, end: float | None, share: float, *gpus: str, nodes: tuple[str, ...] = ("a",)) -> Episode:
    length_s = (1_000.0 if end is None else end) - start
    return Episode(start, end, nodes, gpus, wasted_s=share * length_s * max(len(nodes), 1))


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (lost(0.0, 400.0, 0.5), lost(400.0, 800.0, 0.5), 1.0),
        (lost(0.0, 400.0, 0.5), lost(200.0, 600.0, 0.5), 0.75),
        (lost(0.0, 400.0, 0.25), lost(0.0, 400.0, 0.5), 2.0 / 3.0),
        (lost(0.0, 400.0, 0.5, "gpu0"), lost(0.0, 400.0, 0.25, "gpu1"), 1.0),
        (lost(0.0, 400.0, 0.5, "a/gpu0"), lost(0.0, 400.0, 0.25, "gpu0", "b/gpu1"), 2.0 / 3.0),
        (lost(0.0, 400.0, 0.75, "gpu0"), lost(0.0, 400.0, 0.75, "gpu1"), 1.0 / 1.5),
        (lost(0.0, 400.0, 0.5, "gpu0"), lost(0.0, 400.0, 0.5), 0.5),
        (lost(0.0, None, 0.5), lost(600.0, 1_000.0, 0.5), 1.0 - 0.2 / 0.7),
        (lost(0.0, 400.0, 0.5), lost(0.0, 400.0, 0.5, nodes=("b",)), 1.0),
        (lost(0.0, 400.0, 0.5), lost(0.0, 400.0, 0.5, nodes=()), 0.5),
        (lost(0.0, 400.0, 0.5, nodes=("a", "b")), lost(0.0, 400.0, 0.5), 2.0 / 3.0),
    ],
)
def test_given_two_findings_when_their_losses_are_joined_then_what_is_lost_at_once_on_the_same_gpus_counts_once(
    first: Episode, second: Episode, together: float
) -> None:
    both = [losing([first], 0.25), losing([second], 0.75)]
    assert joint_nodes(both, 1_000.0) == pytest.approx(together)


def test_given_findings_whose_times_are_not_known_when_joined_then_the_largest_loss_counts() -> None:
    known = losing([lost(0.0, 400.0, 0.5)], 0.25)
    assert joint_nodes([], 1_000.0) is None
    assert joint_nodes([losing([], None)], 1_000.0) is None
    assert joint_nodes([known, losing([lost(400.0, 800.0, 0.5)], 0.75)], None) == 0.75
    assert joint_nodes([known, losing([], 0.75, unexplained=False)], 1_000.0) == 0.75
    assert joint_nodes([known, losing([lost(9.0, 9.0, 0.0)], 0.75)], 1_000.0) == pytest.approx(1.0)
    assert joint_nodes([losing([lost(9.0, 9.0, 0.0)], 0.75)], 1_000.0) == 0.75
    assert joint_nodes([losing([lost(0.0, 400.0, 0.5), lost(0.0, 400.0, 0.25)], 0.75)], 1_000.0) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("status", "measured", "threshold", "near"),
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
def test_given_a_measure_when_it_is_less_than_a_tenth_from_its_threshold_then_the_rule_is_near_a_change(
    status: Status, measured: float | None, threshold: float | None, near: bool
) -> None:
    result = RuleResult(status, "so.", measured=measured, threshold=threshold)
    assert is_near(result, FiringHistory()) is near
    assert is_near(replace(result, near=True), FiringHistory()) is (status is not Status.NOT_APPLICABLE)
    assert is_near(result, FiringHistory(is_open=True)) is False
    assert is_near(result, FiringHistory(is_open=True, clean_since=5.0)) is True


def part(*, is_open: bool = False, fired_at: float | None = None, alerted: int = 0, at: float | None = None) -> Verdict:
    history = FiringHistory(is_open=is_open, times_fired=1, fired_at=fired_at, alerted=alerted)
    result = RuleResult(Status.FIRED if is_open else Status.OK, "so.")
    return Verdict(RULE, result, history, 60.0, watermark_s=at)


def stale(at: float | None, alerted: int = 0) -> Verdict:
    return replace(part(alerted=alerted, at=at), liveness=Liveness.STALE)


@pytest.mark.parametrize(
    ("parts", "liveness", "ends"),
    [
        ([part()], Liveness.KNOWN, True),
        ([part(is_open=True, fired_at=1.0)], Liveness.KNOWN, False),
        ([stale(100.0)], Liveness.STALE, False),
        ([stale(100.0), part(alerted=1)], Liveness.KNOWN, True),
        ([stale(100.0), part(is_open=True, fired_at=1_000.0)], Liveness.ANEW, True),
        ([stale(100.0), part(is_open=True, fired_at=999.0)], Liveness.KNOWN, False),
        ([stale(100.0), stale(200.0), part(is_open=True, fired_at=1_099.0)], Liveness.KNOWN, False),
        ([stale(None), part(is_open=True, fired_at=900.0)], Liveness.ANEW, True),
        ([stale(None), part(is_open=True, fired_at=899.0)], Liveness.KNOWN, False),
        ([stale(100.0), part(is_open=True)], Liveness.KNOWN, False),
        ([stale(100.0), part(is_open=True, fired_at=2_000.0), part(is_open=True, fired_at=5.0)], Liveness.KNOWN, False),
    ],
)
def test_given_parts_of_which_some_are_silent_when_asked_then_only_who_began_after_all_is_anew(
    parts: list[Verdict], liveness: Liveness, ends: bool
) -> None:
    named = {f"algo-{number}": each for number, each in enumerate(parts)}
    assert liveness_of(named) is liveness
    assert ends_episode(combine(RULE, named)) is ends


@pytest.mark.parametrize(
    ("watermark_s", "ahead", "is_open"), [(None, 899.0, True), (None, 900.0, False), (5.0, None, True)]
)
def test_given_a_node_without_a_watermark_when_others_are_ahead_then_it_is_silent_from_the_epoch_on(
    watermark_s: float | None, ahead: float | None, is_open: bool
) -> None:
    found = with_liveness(part(is_open=True), watermark_s, ahead)
    assert (found.history.is_open, found.watermark_s) == (is_open, watermark_s)


def test_given_a_rule_that_failed_when_its_episode_was_open_then_it_is_an_error_and_open_no_more() -> None:
    failed = replace(part(is_open=True), result=RuleResult(Status.ERROR, "failed."))
    found = with_liveness(failed, 50.0, 50.0)
    assert (found.result.status, found.history.is_open, found.watermark_s) == (Status.ERROR, False, 50.0)
    assert shown_status(failed) is Status.ERROR
    assert shown_status(replace(failed, result=RuleResult(Status.OK, "so."))) is Status.FIRED


def test_given_nodes_when_asked_how_far_a_job_is_known_then_as_far_as_the_last_that_is_heard_of() -> None:
    assert known_until({"a": part(at=100.0), "b": part(at=999.0), JOB_NODE: part(at=5.0)}) == 100.0
    assert known_until({"a": part(at=100.0), "b": part(at=1_000.0)}) == 1_000.0
    assert known_until({"a": part(), "b": part(at=7.0)}) == 7.0
    assert known_until({JOB_NODE: part()}) is None
    assert known_until({"a": part(is_open=True), "b": part(at=7.0)}) == 7.0


def episodes_of(
    *of: tuple[float, float | None], threshold: float | None = None, earlier: int = 0, **said: Any
) -> Verdict:
    result = RuleResult(Status.OK, "so.", threshold=threshold)
    return Verdict(RULE, result, FiringHistory(), merged=tuple(spans(*of, **said)), merged_earlier=earlier)


def test_given_episodes_of_nodes_when_merged_then_those_that_touch_are_one_and_the_rest_are_counted() -> None:
    many = [(100.0 * place, 100.0 * place + 50.0) for place in range(MOST_EPISODES + 2)]
    found = merged_episodes({"a": episodes_of(*many, earlier=3), "b": episodes_of(earlier=5)}, 2)
    assert (len(found.episodes), found.earlier, found.episodes[0].start) == (MOST_EPISODES, 7, 200.0)
    assert merged_episodes({"a": episodes_of(*many[:8], earlier=3)}, 1).earlier == 3
    touching = merged_episodes({"a": episodes_of((0.0, 50.0), (60.0, None)), "b": episodes_of((50.0, 59.0))}, 2)
    assert [(each.start, each.end) for each in touching.episodes] == [(0.0, 59.0), (60.0, None)]
    open_ = merged_episodes({"a": episodes_of((0.0, None)), "b": episodes_of((9_000.0, 9_500.0))}, 2)
    assert [(each.start, each.end, each.nodes) for each in open_.episodes] == [(0.0, None, ("a", "b"))]
    assert merged_episodes({"a": episodes_of()}, 1).episodes == ()


@pytest.mark.parametrize(("threshold", "worst"), [(None, 40.0), (70.0, 20.0), (10.0, 40.0)])
def test_given_an_episode_of_two_nodes_when_merged_then_the_measure_furthest_from_the_threshold_stays(
    threshold: float | None, worst: float
) -> None:
    parts = {
        "a": episodes_of((0.0, 50.0), measured=40.0, wasted_s=None, reason="mild"),
        "b": episodes_of((0.0, 50.0), measured=20.0, wasted_s=0.5, reason="grave", threshold=threshold),
    }
    (found,) = merged_episodes(parts, 2).episodes
    assert (found.measured, found.wasted_s, found.reason) == (worst, 0.5, "grave")


def test_given_a_part_of_the_whole_job_when_merged_with_nodes_then_the_larger_loss_counts() -> None:
    whole = episodes_of((0.0, 50.0), wasted_s=10.0)
    for of_node, counts in ((25.0, 25.0), (15.0, 20.0)):
        (found,) = merged_episodes({JOB_NODE: whole, "a": episodes_of((0.0, 50.0), wasted_s=of_node)}, 2).episodes
        assert (found.wasted_s, found.nodes) == (counts, ())
    placed = episodes_of((0.0, 50.0), wasted_s=10.0, gpus=("a/gpu0", "b/gpu1"))
    for of_node, counts in ((25.0, 25.0), (15.0, 20.0)):
        (found,) = merged_episodes({JOB_NODE: placed, "a": episodes_of((0.0, 50.0), wasted_s=of_node)}, 2).episodes
        assert (found.wasted_s, found.nodes) == (counts, ("a", "b"))
    (alone,) = merged_episodes({JOB_NODE: placed}, 3).episodes
    assert (alone.wasted_s, alone.spread, alone.nodes, alone.gpus) == (30.0, 3, ("a", "b"), ("a/gpu0", "b/gpu1"))


@pytest.mark.parametrize(
    ("parts", "first"),
    [
        ({"a": fired(RULE, wasted=0.9), "b": replace(quiet(RULE, Status.ERROR), rule=RULE)}, "a"),
        ({"a": quiet(RULE), "b": quiet(RULE, Status.ERROR)}, "b"),
        ({"a": quiet(RULE, Status.WARMING_UP), "b": quiet(RULE)}, "b"),
        ({"a": quiet(RULE), "b": quiet(RULE)}, "a"),
        ({"a": fired(RULE), "b": fired(RULE, wasted=0.5)}, "b"),
        ({"a": fired(RULE, affected_share=0.9), "b": fired(RULE, affected_share=0.8)}, "a"),
    ],
)
def test_given_verdicts_of_nodes_when_combined_then_the_gravest_speaks(parts: dict[str, Verdict], first: str) -> None:
    assert combine(RULE, parts).worst_first[0] == first


@pytest.mark.parametrize(
    ("affected", "nodes", "score"), [(0, 0, 40.0), (1, 1, 40.0), (0, 2, 10.0), (1, 2, 25.0), (2, 2, 40.0)]
)
def test_given_the_nodes_that_are_affected_when_scored_then_one_counts_a_quarter_and_all_count_whole(
    affected: int, nodes: int, score: float
) -> None:
    assert score_of(wasted_share=0.4, affected_share=None, reach=Reach(affected, nodes, None)) == pytest.approx(score)


@pytest.mark.parametrize(
    ("said", "paid_s", "share"), [(None, 1_000.0, 0.25), (0.5, 1_000.0, 0.5), (0.5, 0.0, 0.5), (None, 100.0, 1.0)]
)
def test_given_episodes_when_their_loss_is_asked_then_it_is_of_the_nodes_they_were_on_and_no_more_than_all(
    said: float | None, paid_s: float, share: float
) -> None:
    on = (Episode(0.0, 500.0, ("a", "b"), wasted_s=400.0), Episode(600.0, 700.0, spread=4, wasted_s=200.0))
    verdict = replace(fired(RULE, wasted=said, nodes=(2, 4)), merged=on)
    assert wasted_share_of(verdict, paid_s) == share


def test_given_two_episodes_when_asked_what_they_cost_then_no_more_than_they_lasted_where_that_is_known() -> None:
    assert StoredEpisode(0.0, 100.0, wasted_until_s=150.0, wasted_before_s=20.0).wasted_s == 130.0
    assert StoredEpisode(0.0, 100.0, wasted_until_s=150.0, has_onset=True).wasted_s == 100.0
    assert StoredEpisode(0.0, 100.0, wasted_until_s=10.0, wasted_before_s=20.0).wasted_s == 0.0
    assert StoredEpisode(0.0, 100.0).wasted_s is None
    assert StoredEpisode(0.0, 100.0, ended_at=80.0).until == 80.0


@pytest.mark.parametrize(
    ("by", "cause", "said"),
    [
        ({"A": 1.0}, "A", "Do what A advises: it names the cause."),
        ({"A": 0.5, "B": 0.5}, None, "Do what A and B advise: they name the causes."),
        ({"A": 0.25, "B": 0.5, "C": 0.25, "D": 0.0}, "B", "Do what B, A and C advise: they name the causes."),
    ],
)
def test_given_causes_when_a_symptom_advises_then_the_one_that_explains_most_comes_first(
    by: dict[str, float], cause: str | None, said: str
) -> None:
    assert advice_of(Explanation(by, by, 1.0, ()), cause) == said


@pytest.mark.parametrize(
    ("at", "reason"), [(None, "Ended without a profile"), (5.0, "Ended without what the rule needs: ")]
)
def test_given_a_rule_that_waits_when_the_stream_has_ended_then_it_does_not_apply(
    at: float | None, reason: str
) -> None:
    found = final(quiet(RULE, Status.WAITING_FOR_DATA), at)
    assert (found.result.status, found.ended) == (Status.NOT_APPLICABLE, False)
    assert found.result.reason.startswith(reason)


def test_given_a_job_without_a_start_when_ranked_then_what_the_rule_says_of_now_is_its_loss() -> None:
    verdict = replace(fired(RULE, wasted=0.25), merged=(Episode(0.0, 500.0, wasted_s=400.0),))
    for started_at, watermark_s, share in ((None, 1_000.0, 0.25), (0.0, None, 0.25), (200.0, 1_000.0, 0.5)):
        (found,) = rank_findings([verdict], Account(None, started_at, watermark_s, 1))
        assert (found.wasted_share, found.wasted_nodes) == (share, share)
