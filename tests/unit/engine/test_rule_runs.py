"""A rule on one stream from run to run: when it fires, is near a change, warms up, is due to be shown or failed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgspec
import pytest

from tests.support.ledgers import one_node
from tests.support.own_rules import OwnJob, OwnParameters, OwnRule, OwnState
from tests.support.verdicts import claiming_kind
from trainguard.core.errors import RuleConfigError, RuleFailedError
from trainguard.core.finding import Patience
from trainguard.core.records import JobRecord, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.streams.rule_runner import RuleRunner, StoredRule, gone_rules
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.job import Ledger
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.registry import SPECS
from trainguard.rules.rule_result import RuleResult

RULE = LowGPUUtilization()
NAME = RULE.name
PLAN = FAMILIES.plan(JobRecord("job", "arn", "bucket", ""))
FIRED, OK, WARMING_UP = (
    RuleResult(status, f"{status.value}.") for status in (Status.FIRED, Status.OK, Status.WARMING_UP)
)
ERROR, INAPPLICABLE = (RuleResult(status, f"{status.value}.") for status in (Status.ERROR, Status.NOT_APPLICABLE))


@dataclass
class Runs:
    """Runs of a rule with set answers; each is in a process of its own."""

    rule: Any = RULE
    stored: dict[str, StoredRule] = field(default_factory=dict)
    episodes: Mapping[str, int] = field(default_factory=dict)

    def say(self, at: float, result: RuleResult, **how: Any) -> list[Fire]:
        self.runner = RuleRunner([self.rule], self.stored, replace(PLAN, episodes=self.episodes))
        return self.again(at, result, **how)

    def again(self, at: float, result: RuleResult, **how: Any) -> list[Fire]:
        """Let the same process run the rule."""
        fires = self.runner.run(None, lambda *_: result, watermark_s=at, interval_s=0.5, **how)
        self.runner.store()
        return fires

    def verdicts(self, result: RuleResult, **how: Any) -> list[RuleOutcome]:
        self.runner = RuleRunner([self.rule], self.stored, replace(PLAN, episodes=self.episodes))
        return self.runner.verdicts(lambda *_: result, interval_s=0.5, **how)

    @property
    def entry(self) -> StoredRule:
        return self.stored[NAME]


def test_condition_makes_one_fire_per_episode() -> None:
    runs, fired = Runs(), []
    for at, result, episode in [
        (60.0, OK, 0),
        (120.0, FIRED, 0),
        (180.0, FIRED, 0),
        (240.0, OK, 1),
        (90_000.0, OK, 1),
        (90_060.0, FIRED, 1),
        (90_120.0, ERROR, 2),
        (90_180.0, INAPPLICABLE, 2),
        (90_240.0, FIRED, 2),
    ]:
        runs.episodes = {NAME: episode}
        fired += [
            (fire.at, fire.verdict.rule, len(fire.verdict.episodes), runs.entry.history.alerted)
            for fire in runs.say(at, result)
        ]
    assert fired == [(120.0, NAME, 1, 0), (90_060.0, NAME, 1, 1), (90_240.0, NAME, 1, 2)]
    assert (runs.entry.began_at, runs.entry.watermark_s) == (60.0, 90_240.0)
    assert (runs.entry.history.judged, runs.entry.history.violations) == (7, 4)


def test_rule_that_reports_a_failure_is_as_if_never_asked() -> None:
    runs = Runs()
    assert runs.say(60.0, ERROR) == []
    assert (runs.entry.began_at, runs.entry.watermark_s, runs.entry.history) == (None, 0.0, FiringHistory())


@pytest.mark.parametrize(
    ("result", "is_near", "warms_up"),
    [
        (OK, False, False),
        (replace(OK, near_threshold=True), True, False),
        (replace(OK, progress=Patience(seen=5, needed=9)), False, False),
        (WARMING_UP, False, False),
        (replace(WARMING_UP, progress=Patience(seen=5, needed=9)), False, True),
        (replace(OK, measured=31.0, threshold=30.0), True, False),
    ],
)
def test_only_the_last_run_tells_of_near_change_and_warm_up(result: RuleResult, is_near: bool, warms_up: bool) -> None:
    runs = Runs()
    runs.say(60.0, result)
    assert (runs.runner.near_threshold, runs.runner.is_warming_up) == ({NAME} if is_near else set(), warms_up)
    runs.again(120.0, OK)
    assert (runs.runner.near_threshold, runs.runner.is_warming_up) == (set(), False)
    runs.again(180.0, result)
    assert (runs.runner.near_threshold, runs.runner.is_warming_up) == ({NAME} if is_near else set(), warms_up)


@pytest.mark.parametrize(
    ("first", "second", "after_s", "due"),
    [
        (FIRED, FIRED, 299.0, False),
        (FIRED, FIRED, 300.0, True),
        (OK, OK, 300.0, False),
        (OK, OK, 1_799.0, False),
        (OK, OK, 1_800.0, True),
        (ERROR, ERROR, 900.0, True),
        (INAPPLICABLE, INAPPLICABLE, 900.0, False),
        (INAPPLICABLE, INAPPLICABLE, 3_599.0, False),
        (INAPPLICABLE, INAPPLICABLE, 3_600.0, True),
        (OK, FIRED, 1.0, True),
        (FIRED, OK, 1.0, True),
    ],
)
def test_unchanged_row_is_due_only_when_it_is_old(
    first: RuleResult, second: RuleResult, after_s: float, due: bool
) -> None:
    runs = Runs()
    runs.say(600.0, first)
    assert runs.runner.due == {NAME}
    runs.say(600.0 + after_s, second)
    assert runs.runner.due == ({NAME} if due else set())
    assert runs.entry.published == second.status.value
    assert runs.entry.published_at == (600.0 + after_s if due else 600.0)


@pytest.mark.parametrize(
    ("result", "held", "reason"),
    [
        (FIRED, True, "FIRED."),
        (ERROR, True, "ERROR."),
        (OK, False, "OK."),
        (OK, True, "1970-01-01 00:02 to 00:03 UTC: FIRED. By 1970-01-01 00:03 UTC: OK."),
    ],
)
def test_earlier_finding_precedes_the_current_result(result: RuleResult, held: bool, reason: str) -> None:
    runs = Runs()
    runs.say(120.0, FIRED if held else OK)
    runs.say(180.0, FIRED if held else OK)
    (verdict,) = runs.verdicts(result)
    assert (verdict.result.reason, verdict.result.status) == (reason, result.status)
    assert runs.verdicts(result, of=["another"]) == []
    assert [each.rule for each in runs.verdicts(result, of=[NAME])] == [NAME]
    ended = replace(verdict.result, reason=reason.replace("By 1970-01-01 00:03 UTC", "At the end"))
    assert runs.verdicts(result, closed=True)[0].result == ended


def test_unreadable_state_resets_its_rule_and_makes_it_due() -> None:
    runs = Runs(stored={NAME: StoredRule(data=b"\xc1", published="OK", published_at=60.0)})
    (verdict,) = runs.verdicts(OK)
    assert verdict.result.reason.startswith("OK. Its stored state was of another version (")
    assert runs.runner.due == {NAME}
    assert runs.entry.data == b""
    runs.runner.store()
    assert runs.entry.data == msgspec.msgpack.encode(RULE.state_type())


def test_severity_of_a_fire_is_its_claim_in_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is asked for when something fires, and only then."""
    monkeypatch.setitem(SPECS, NAME, replace(SPECS[NAME], text=None))
    asked: list[bool] = []

    def ledger() -> Ledger:
        asked.append(True)
        return one_node((0.0, 1.0, {Bucket.UNEXPLAINED: 0.6}), hours=1.0)

    runs, found = Runs(), replace(FIRED, onset=0.0, kind=claiming_kind(NAME))
    assert runs.say(60.0, OK, ledger=ledger) == []
    assert asked == []
    (fire,) = runs.say(120.0, found, ledger=ledger)
    assert fire.ledger is not None
    assert fire.ledger.gpu_seconds(Bucket.UNEXPLAINED) == pytest.approx(0.6 * 3_600.0)
    assert (asked, runs.entry.history.alerted_severity) == ([True], "critical")
    assert runs.say(180.0, found, ledger=ledger) == []
    assert asked == [True]


class Own(OwnRule):
    """A custom rule under a name that is known."""

    name: ClassVar[str] = NAME


class Failing(Own):
    """One that fails in its judgement."""

    def judge(self, state: OwnState, view: object, parameters: OwnParameters) -> RuleResult:
        raise LookupError("x" * 600)


def judging(rule: Any, state: Any, parameters: Any) -> RuleResult:
    result: RuleResult = rule.judge(state, None, parameters)
    return result


def observing(rule: Any, state: Any, parameters: Any) -> None:
    state.minutes += 1


def test_failed_rule_is_not_asked_again_and_reported_once() -> None:
    stored: dict[str, StoredRule] = {}
    runner = RuleRunner([Failing()], stored, PLAN)
    for at in (60.0, 120.0):
        assert runner.run(observing, judging, watermark_s=at, interval_s=0.5) == []
        assert runner.due == {NAME}
        assert stored[NAME].data == b""
    fault = stored[NAME].fault
    assert fault is not None
    assert len(fault) == 500
    assert re.fullmatch(r"LookupError in engine/test_rule_runs\.py:\d+: x+", fault)
    assert runner.raised == [f"{NAME}: {fault}"]
    (verdict,) = runner.verdicts(judging, interval_s=0.5)
    assert (verdict.result, verdict.clear_after_s) == (RuleResult(Status.ERROR, f"The rule failed: {fault}."), 0.0)
    with pytest.raises(RuleFailedError):
        runner.state_of(NAME)
    runner.fail(Failing(), ValueError("again"))
    assert runner.raised == [f"{NAME}: {fault}"]


def leaving(*_: Any) -> RuleResult:
    raise SystemExit(3)


def test_rule_that_exits_the_process_has_failed() -> None:
    runner = RuleRunner([Own()], {}, PLAN)
    runner.run(None, leaving, watermark_s=60.0, interval_s=0.5)
    (raised,) = runner.raised
    assert re.fullmatch(rf"{NAME}: SystemExit in engine/test_rule_runs\.py:\d+: 3", raised)
    for failing in (leaving, judging):
        (verdict,) = RuleRunner([Failing()], {}, PLAN).verdicts(failing, interval_s=0.5)
        assert (verdict.result.status, verdict.clear_after_s) == (Status.ERROR, 0.0)


@pytest.mark.parametrize(("rule", "score"), [(RULE, 70.0), (Own(), None)])
def test_only_built_in_rules_may_set_their_severity(rule: Any, score: float | None) -> None:
    runner = RuleRunner([rule], {}, PLAN)
    (fire,) = runner.run(None, lambda *_: replace(FIRED, score=70.0), watermark_s=60.0, interval_s=0.5)
    assert fire.verdict.result.score == score


class Bare(OwnJob):
    """A custom rule that remembers nothing."""

    name: ClassVar[str] = NAME


@pytest.mark.parametrize("rule", [RULE, Bare()])
def test_built_in_or_stateless_rule_packs_nothing(rule: Any) -> None:
    stored: dict[str, StoredRule] = {}
    RuleRunner([rule], stored, PLAN).run(lambda *_: None, lambda *_: OK, watermark_s=60.0, interval_s=0.5)
    assert stored[NAME].data == b""


def test_faulty_parameters_are_an_error_without_a_failure() -> None:
    fault = RuleConfigError(NAME, "patience", "soon", "a number")
    runner = RuleRunner([RULE], {}, replace(PLAN, faults={NAME: fault}))
    assert runner.run(None, lambda *_: FIRED, watermark_s=60.0, interval_s=0.5) == []
    assert runner.verdicts(judging, interval_s=0.5)[0].result == RuleResult(Status.ERROR, str(fault))
    assert runner.raised == []


def test_parameters_refused_while_judging_are_no_failure() -> None:
    fault = RuleConfigError(NAME, "patience", "soon", "a number")

    def refusing(*_: Any) -> RuleResult:
        raise fault

    runner = RuleRunner([RULE], {}, PLAN)
    (verdict,) = runner.verdicts(refusing, interval_s=0.5)
    assert (verdict.result, verdict.clear_after_s) == (RuleResult(Status.ERROR, str(fault)), 0.0)
    assert runner.raised == []


def test_state_of_a_custom_rule_is_stored_as_of_its_observation() -> None:
    stored: dict[str, StoredRule] = {}
    runner = RuleRunner([Own()], stored, PLAN)
    runner.run(observing, judging, watermark_s=60.0, interval_s=0.5)
    assert msgspec.msgpack.decode(stored[NAME].data) == {"minutes": 1, "notes": []}
    state = runner.state_of(NAME)
    state.minutes = 7
    runner.store()
    assert msgspec.msgpack.decode(stored[NAME].data)["minutes"] == 1


def test_only_kept_states_are_held_after_a_release() -> None:
    runner = RuleRunner([RULE], {}, PLAN)
    assert (runner.is_warming_up, runner.near_threshold, runner.due, runner.raised) == (False, set(), set(), [])
    runner.store()
    runner.release(keep=[NAME])
    assert runner.state_of(NAME) is not None
    for asked in (
        runner.store,
        lambda: runner.run(None, judging, watermark_s=60.0, interval_s=0.5),
        lambda: runner.verdicts(judging, interval_s=0.5),
    ):
        with pytest.raises(RuntimeError, match=NAME):
            asked()
    runner.release()
    with pytest.raises(KeyError):
        runner.state_of(NAME)


def test_rules_that_are_gone_say_so_with_what_they_had_found() -> None:
    first = {
        "Gone": StoredRule(history=FiringHistory(times_fired=2, fired_at=60.0)),
        NAME: StoredRule(),
        "Disabled": StoredRule(),
        "Unchosen": StoredRule(),
    }
    second = {"Gone": StoredRule(history=FiringHistory(times_fired=1, fired_at=90.0)), "Also": StoredRule()}
    plan = replace(PLAN, disabled=("Disabled",), unchosen=("Unchosen",))
    also, gone = gone_rules([first, second], plan)
    assert (also.rule, also.history) == ("Also", FiringHistory())
    assert (gone.rule, gone.history) == ("Gone", FiringHistory(times_fired=2, fired_at=90.0))
    assert also.result == gone.result
    assert gone.result.status is Status.DISABLED
    assert gone_rules([{NAME: StoredRule()}], plan) == []
