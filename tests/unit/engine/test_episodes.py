"""Episodes: when a condition that holds is a new fire, and when it is over."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from trainguard.core.finding import MOST_EPISODES, Fact
from trainguard.core.records import Status
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.verdicts.episodes import FiringHistory, fire_id, past_words
from trainguard.rules.registry import SPECS
from trainguard.rules.rule_result import FactSheet, RuleResult, Words
from trainguard.rules.spec import RuleSpec

CLEAR_S = 180.0


def feed(episode: Any, pattern: Any, start: Any = 0) -> Any:
    """Evaluate once a minute: ``x`` the condition holds, ``.`` it does not. Returns the minutes that began episodes."""
    return [
        minute
        for minute, mark in enumerate(pattern, start)
        if episode.update(holds=mark == "x", watermark_s=60.0 * minute, clear_after_s=CLEAR_S)
    ]


def test_persistent_condition_begins_one_episode() -> None:
    episode = FiringHistory()
    assert feed(episode, "..xxxxx") == [2]
    assert (episode.is_open, episode.violations, episode.times_fired, episode.fired_at) == (True, 5, 1, 120.0)


def test_condition_back_after_a_short_pause_is_the_same_episode() -> None:
    episode = FiringHistory()
    assert feed(episode, "xx..xx") == [0]


def test_clean_windows_of_exact_length_end_the_episode() -> None:
    episode = FiringHistory()
    feed(episode, "x...")
    assert episode.is_open
    feed(episode, ".", start=4)
    assert not episode.is_open
    assert feed(episode, "x", start=5) == [5]
    assert episode.times_fired == 2


def test_two_evaluations_of_one_minute_are_one_violation() -> None:
    episode = FiringHistory()
    for watermark_s in (60.0, 75.0, 119.9, 120.0):
        episode.update(holds=True, watermark_s=watermark_s, clear_after_s=CLEAR_S)
    assert episode.violations == 2


IDLE = (
    Fact(name="idle_time", value=2_400.0, unit="s", threshold=1_200.0, node="n1"),
    Fact(name="idle_since", value=0.0, unit="time", node="n1"),
    Fact(name="first_sample", value=0.0, unit="time", node="n1"),
)
LATER = (IDLE[0], Fact(name="idle_since", value=900.0, unit="time", node="n1"), IDLE[2])
RISEN = (Fact(name="increase", value=20.0, unit="points"), Fact(name="time_left", value=60.0, unit="s"))


@pytest.mark.parametrize(
    ("rule", "kind", "facts", "over"),
    [
        ("LowGPUUtilization", "never_used", IDLE, "idle_at_first"),
        ("LowGPUUtilization", "holds_memory", IDLE, "idle_at_first"),
        ("LowGPUUtilization", "nearly_idle", IDLE, "idle_at_first"),
        ("LowGPUUtilization", "nearly_idle", LATER, "nearly_idle"),
        ("LowGPUUtilization", "holds_memory", LATER, "holds_memory"),
        ("LowGPUUtilization", "gpu_taken", LATER, "idle_at_first"),
        ("LowGPUUtilization", "stopped", LATER, "stopped"),
        ("GPUMemoryIncrease", "leak", RISEN, "leak"),
        ("BatchSize", "small", RISEN, "small"),
    ],
)
def test_what_is_over_keeps_what_stays_true(rule: str, kind: str, facts: tuple[Fact, ...], over: str) -> None:
    episode = FiringHistory()
    feed(episode, "x")
    episode.note(rule, RuleResult(Status.FIRED, "", kind=kind, facts=facts), watermark_s=0.0)
    assert episode.episodes[0].kind == kind
    for _ in range(2):
        episode.end(rule)
        assert episode.episodes[0].kind == over
    assert any(fact.name == "time_left" for fact in episode.episodes[0].facts) == (rule == "BatchSize")


def test_gpus_that_began_late_are_told_to_start_sooner() -> None:
    words = past_words("LowGPUUtilization", "idle_at_first", IDLE, reason="", advice=None)
    assert words.reason == "idle at first: the GPUs of n1 did not work in their first 40 min."
    assert (words.advice or "").startswith("Shorten what comes before the first step on n1")
    taken = (replace(IDLE[0], device="gpu3"),)
    assert past_words("LowGPUUtilization", "idle_at_first", taken, reason="", advice=None).clause == (
        "gpu3 of n1 held memory and did not work for 40 min at first"
    )


def test_nothing_judged_has_no_affected_share() -> None:
    assert FiringHistory().affected_share is None


def test_affected_share_is_of_evaluations_that_could_judge() -> None:
    episode = FiringHistory()
    for minute, judged in enumerate((False, False, True, True, True, True)):
        episode.update(holds=minute >= 5, watermark_s=60.0 * minute, clear_after_s=CLEAR_S, judged=judged)
        episode.update(holds=minute >= 5, watermark_s=60.0 * minute + 30.0, clear_after_s=CLEAR_S, judged=judged)
    assert (episode.judged, episode.violations, episode.affected_share) == (4, 1, 0.25)


@given(st.text(alphabet="x.", max_size=60))
def test_every_violation_lies_in_an_episode(pattern: Any) -> None:
    episode = FiringHistory()
    began = feed(episode, pattern)
    assert len(began) == episode.times_fired
    assert episode.violations == pattern.count("x")
    assert episode.judged == len(pattern)
    assert bool(began) == ("x" in pattern)


def test_every_node_derives_the_same_unique_fire_id() -> None:
    base = ("arn:aws:sagemaker:eu-west-1:1:training-job/a", "LowGPUUtilization", 0)
    names = {
        fire_id(*base),
        fire_id(*base),
        fire_id(base[0] + "b", base[1], 0),
        fire_id(base[0], "CPUBottleneck", 0),
        fire_id(base[0], base[1], 1),
    }
    assert len(names) == 4


def test_execution_name_of_an_earlier_version_stays_the_same() -> None:
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


def test_episode_of_a_late_fire_runs_from_onset_to_last_held() -> None:
    history = FiringHistory()
    hold(history, range(30, 41), low(600.0, gpus=("gpu3",)))
    (going_on,) = history.shown_episodes("Rule")
    rest(history, range(41, 50))
    (ended,) = history.shown_episodes("Rule")

    assert (going_on.start, going_on.end, going_on.gpus) == (600.0, None, ("gpu3",))
    assert (ended.start, ended.end) == (600.0, 2_400.0)
    assert history.fired_at == 1_800.0


def test_episode_ends_when_its_rule_says_it_was_over() -> None:
    history = FiringHistory()
    hold(history, range(30, 35), low(0.0))
    hold(history, range(35, 41), low(0.0, until=2_040.0))
    (episode,) = history.shown_episodes("Rule")

    assert (episode.start, episode.end, history.is_open) == (0.0, 2_040.0, True)


def test_each_of_two_episodes_has_its_own_worst_measure() -> None:
    history = FiringHistory()
    hold(history, range(10, 21), low(300.0))
    rest(history, range(21, 30))
    hold(history, range(30, 35), low(1_500.0, measured=20.0))
    hold(history, range(35, 41), low(1_500.0, measured=30.0))

    assert [each.measured for each in history.shown_episodes("Rule")] == [40.0, 20.0]


def test_early_onset_does_not_overlap_the_episode_before() -> None:
    history = FiringHistory()
    hold(history, range(10, 21), low(300.0))
    rest(history, range(21, 30))
    hold(history, range(30, 33), low(600.0))

    assert [(each.start, each.end) for each in history.shown_episodes("Rule")] == [(300.0, 1_200.0), (1_200.0, None)]


def test_newest_episodes_are_kept_and_the_others_counted() -> None:
    history = FiringHistory()
    for number in range(12):
        hold(history, range(10 * number + 1, 10 * number + 3), low())
        rest(history, range(10 * number + 3, 10 * number + 10))
    shown = history.shown_episodes("Rule")

    assert (len(shown), history.earlier_episodes, history.times_fired) == (MOST_EPISODES, 4, 12)
    assert shown[0].start == 60.0 * 41


def test_slot_of_a_version_without_episodes_keeps_its_history() -> None:
    slot = msgspec.msgpack.encode({"episode": {"is_open": True, "times_fired": 3, "alerted": 2}, "shown": "FIRED"})

    assert msgspec.msgpack.decode(slot, type=StoredRule).history.times_fired == 3


def noted(history: FiringHistory, minutes: range, reason: str) -> None:
    hold(history, minutes, RuleResult(Status.FIRED, reason, advice=f"Repair: {reason}"))


def test_open_episode_ends_where_its_condition_last_held() -> None:
    history = FiringHistory()
    noted(history, range(10, 11), "first")
    assert history.shown_episodes("Rule")[-1].end is None
    feed(history, "..", start=11)
    assert history.is_open
    assert history.shown_episodes("Rule")[-1].end == 600.0


def test_newest_and_longest_kept_episodes_have_their_text() -> None:
    history = FiringHistory()
    for first, minutes, reason in ((10, 2, "mild"), (30, 9, "long"), (50, 3, "mild again"), (70, 4, "newest")):
        noted(history, range(first, first + minutes), reason)
        rest(history, range(first + minutes, first + minutes + 4))
    assert [each.reason for each in history.shown_episodes("Rule")] == ["", "long", "", "newest"]
    assert history.shown_episodes("Rule")[1].advice == "Repair: long"


def test_text_of_a_kept_episode_is_made_from_facts(
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


def test_facts_of_another_version_are_shown_by_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that lacks a fact of what is stored must not stop the job's other rules."""

    def text(sheet: FactSheet) -> Words:
        return Words(f"It was at {sheet.number('speed'):g} rpm.")

    stands = "it stands"
    spec = RuleSpec(name="Fans", looks_at="a fan", fires_when=stands, condition=stands, text=text)
    monkeypatch.setitem(SPECS, "Fans", spec)
    found = past_words("Fans", "too_slow", (Fact(name="pace", value=7.0),), reason="", advice=None)
    assert found == Words("Fans found too slow, as an earlier version of it says.")
