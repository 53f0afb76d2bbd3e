"""Episodes: when a condition that holds is a new fire, and when it is over."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainguard.engine.verdicts.episodes import FiringHistory, fire_id

CLEAR_S = 180.0


def feed(episode: Any, pattern: Any, start: Any = 0) -> Any:
    """Evaluate once a minute: ``x`` the condition holds, ``.`` it does not. Returns the minutes that began episodes."""
    return [
        minute
        for minute, mark in enumerate(pattern, start)
        if episode.update(holds=mark == "x", watermark_s=60.0 * minute, clear_after_s=CLEAR_S)
    ]


def test_given_a_condition_that_holds_on_when_evaluated_then_one_episode_begins() -> None:
    episode = FiringHistory()
    assert feed(episode, "..xxxxx") == [2]
    assert (episode.is_open, episode.violations, episode.times_fired, episode.fired_at) == (True, 5, 1, 120.0)


def test_given_a_short_clean_spell_when_the_condition_returns_then_it_is_the_same_episode() -> None:
    episode = FiringHistory()
    assert feed(episode, "xx..xx") == [0]


def test_given_clean_windows_when_they_last_exactly_long_enough_then_the_episode_is_over() -> None:
    episode = FiringHistory()
    feed(episode, "x...")
    assert episode.is_open
    feed(episode, ".", start=4)
    assert not episode.is_open
    assert feed(episode, "x", start=5) == [5]
    assert episode.times_fired == 2


def test_given_two_evaluations_of_one_minute_when_the_condition_holds_then_it_is_one_violation() -> None:
    episode = FiringHistory()
    for watermark_s in (60.0, 75.0, 119.9, 120.0):
        episode.update(holds=True, watermark_s=watermark_s, clear_after_s=CLEAR_S)
    assert episode.violations == 2


def test_given_nothing_judged_when_asked_then_there_is_no_affected_share() -> None:
    assert FiringHistory().affected_share is None


def test_given_evaluations_when_some_could_not_judge_then_the_affected_share_is_of_those_that_could() -> None:
    episode = FiringHistory()
    for minute, judged in enumerate((False, False, True, True, True, True)):
        episode.update(holds=minute >= 5, watermark_s=60.0 * minute, clear_after_s=CLEAR_S, judged=judged)
        episode.update(holds=minute >= 5, watermark_s=60.0 * minute + 30.0, clear_after_s=CLEAR_S, judged=judged)
    assert (episode.judged, episode.violations, episode.affected_share) == (4, 1, 0.25)


@given(st.text(alphabet="x.", max_size=60))
def test_given_any_history_when_evaluated_then_every_violation_lies_in_an_episode(pattern: Any) -> None:
    episode = FiringHistory()
    began = feed(episode, pattern)
    assert len(began) == episode.times_fired
    assert episode.violations == pattern.count("x")
    assert episode.judged == len(pattern)
    assert bool(began) == ("x" in pattern)


def test_given_one_job_rule_and_episode_when_named_then_every_node_derives_the_same_fire_and_no_other() -> None:
    base = ("arn:aws:sagemaker:eu-west-1:1:training-job/a", "LowGPUUtilization", 0)
    names = {
        fire_id(*base),
        fire_id(*base),
        fire_id(base[0] + "b", base[1], 0),
        fire_id(base[0], "CPUBottleneck", 0),
        fire_id(base[0], base[1], 1),
    }
    assert len(names) == 4
