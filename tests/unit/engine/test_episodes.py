"""Episodes: when a condition that holds is a new fire, and when it is over."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.verdicts.episodes import FiringHistory, fire_id
from trainguard.engine.verdicts.words import past_words
from trainguard.finding import MOST_EPISODES, Fact
from trainguard.records import Status
from trainguard.rules.registry import SPECS
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.spec import RuleSpec
from trainguard.rules.words import FactSheet, Words

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


def test_given_an_execution_that_an_earlier_version_named_when_its_fire_is_named_again_then_it_is_the_same() -> None:
    name = fire_id("arn:aws:sagemaker:eu-west-1:1:training-job/a", "LowGPUUtilization", 3)
    assert name == "eb72cb0da8205ed9241f"


def low(onset: float | None = None, *, measured: float = 40.0, **said: Any) -> RuleResult:
    """Return a result that holds, with a threshold of 70."""
    return RuleResult(Status.FIRED, "low.", measured=measured, threshold=70.0, onset=onset, **said)


def hold(history: FiringHistory, minutes: range, result: RuleResult) -> None:
    """Evaluate once a minute while the condition holds."""
    for minute in minutes:
        at = 60.0 * minute
        history.update(holds=True, watermark_s=at, clear_after_s=CLEAR_S)
        history.note("Rule", result, watermark_s=at)


def rest(history: FiringHistory, minutes: range) -> None:
    """Evaluate once a minute while it does not hold."""
    for minute in minutes:
        history.update(holds=False, watermark_s=60.0 * minute, clear_after_s=CLEAR_S)


def test_given_an_onset_when_a_fire_comes_later_then_the_episode_runs_from_the_onset_to_the_last_time_it_held() -> None:
    history = FiringHistory()
    hold(history, range(30, 41), low(600.0, gpus=("gpu3",)))
    (going_on,) = history.shown_episodes("Rule")
    rest(history, range(41, 50))
    (ended,) = history.shown_episodes("Rule")

    assert (going_on.start, going_on.end, going_on.gpus) == (600.0, None, ("gpu3",))
    assert (ended.start, ended.end) == (600.0, 2_400.0)
    assert history.fired_at == 1_800.0


def test_given_a_finding_that_stands_when_its_rule_says_that_it_was_over_then_the_episode_ends_there() -> None:
    history = FiringHistory()
    hold(history, range(30, 35), low(0.0))
    hold(history, range(35, 41), low(0.0, until=2_040.0))
    (episode,) = history.shown_episodes("Rule")

    assert (episode.start, episode.end, history.is_open) == (0.0, 2_040.0, True)


def test_given_two_episodes_when_each_measured_something_then_each_has_its_own_worst() -> None:
    history = FiringHistory()
    hold(history, range(10, 21), low(300.0))
    rest(history, range(21, 30))
    hold(history, range(30, 35), low(1_500.0, measured=20.0))
    hold(history, range(35, 41), low(1_500.0, measured=30.0))

    assert [each.measured for each in history.shown_episodes("Rule")] == [40.0, 20.0]


def test_given_an_onset_before_the_episode_before_was_over_when_it_fires_then_the_two_do_not_overlap() -> None:
    history = FiringHistory()
    hold(history, range(10, 21), low(300.0))
    rest(history, range(21, 30))
    hold(history, range(30, 33), low(600.0))

    assert [(each.start, each.end) for each in history.shown_episodes("Rule")] == [(300.0, 1_200.0), (1_200.0, None)]


def test_given_many_episodes_when_kept_then_the_newest_stay_and_the_others_are_counted() -> None:
    history = FiringHistory()
    for number in range(12):
        hold(history, range(10 * number + 1, 10 * number + 3), low())
        rest(history, range(10 * number + 3, 10 * number + 10))
    shown = history.shown_episodes("Rule")

    assert (len(shown), history.earlier_episodes, history.times_fired) == (MOST_EPISODES, 4, 12)
    assert shown[0].start == 60.0 * 41


def test_given_the_slot_of_a_version_without_episodes_when_read_then_its_history_is_there() -> None:
    slot = msgspec.msgpack.encode({"episode": {"is_open": True, "times_fired": 3, "alerted": 2}, "shown": "FIRED"})

    assert msgspec.msgpack.decode(slot, type=StoredRule).history.times_fired == 3


def noted(history: FiringHistory, minutes: range, reason: str) -> None:
    hold(history, minutes, RuleResult(Status.FIRED, reason, advice=f"Mend: {reason}"))


def test_given_an_open_episode_when_its_condition_no_longer_holds_then_it_ends_where_it_held() -> None:
    history = FiringHistory()
    noted(history, range(10, 11), "first")
    assert history.shown_episodes("Rule")[-1].end is None
    feed(history, "..", start=11)
    assert history.is_open
    assert history.shown_episodes("Rule")[-1].end == 600.0


def test_given_many_episodes_when_kept_then_the_newest_and_the_longest_have_their_words() -> None:
    history = FiringHistory()
    for first, minutes, reason in ((10, 2, "mild"), (30, 9, "long"), (50, 3, "mild again"), (70, 4, "newest")):
        noted(history, range(first, first + minutes), reason)
        rest(history, range(first + minutes, first + minutes + 4))
    assert [each.reason for each in history.shown_episodes("Rule")] == ["", "long", "", "newest"]
    assert history.shown_episodes("Rule")[1].advice == "Mend: long"


def test_given_a_rule_with_a_text_when_an_episode_is_kept_then_its_words_are_made_of_facts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def text(sheet: FactSheet) -> Words:
        verb = "was" if sheet.past else "is"
        return Words(f"It {verb} at {sheet.number('speed'):g} rpm.", "Oil it.")

    stands = "it stands"
    spec = RuleSpec(name="Fans", looks_at="a fan", fires_when=stands, condition=stands, text=text)
    monkeypatch.setitem(SPECS, "Fans", spec)
    history = FiringHistory()
    result = RuleResult.of(text, Status.FIRED, "slow", (Fact(name="speed", value=7.0, unit="rpm"),))
    history.update(holds=True, watermark_s=60.0, clear_after_s=CLEAR_S)
    history.note("Fans", result, watermark_s=60.0)

    (stored,) = history.episodes
    assert (stored.reason, stored.advice, stored.kind, stored.facts) == ("", "", "slow", result.facts)
    (shown,) = history.shown_episodes("Fans")
    assert (result.reason, shown.reason, shown.advice) == ("It is at 7 rpm.", "It was at 7 rpm.", "Oil it.")


def test_given_facts_of_another_version_when_shown_then_the_kind_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that lacks a fact of what is stored must not stop the job's other rules."""

    def text(sheet: FactSheet) -> Words:
        return Words(f"It was at {sheet.number('speed'):g} rpm.")

    stands = "it stands"
    spec = RuleSpec(name="Fans", looks_at="a fan", fires_when=stands, condition=stands, text=text)
    monkeypatch.setitem(SPECS, "Fans", spec)
    found = past_words("Fans", "too_slow", (Fact(name="pace", value=7.0),), reason="", advice=None)
    assert found == Words("Fans found too slow, as an earlier version of it says.")
