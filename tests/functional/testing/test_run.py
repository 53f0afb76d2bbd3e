"""Running a rule over a synthetic job: rows and alerts of each kind of rule, and of rules that are wrong."""

import math
from typing import Any

import msgspec
import pytest

from tests.unit.testing.rules import FewNodes, Forgetful, HotCpu, Limit, Loaders, Raising, SlowSteps
from trainguard.core.errors import RuleConfigError, RuleLoadError, SyntheticRunError
from trainguard.core.finding import Severity
from trainguard.core.records import AlertKind, Status
from trainguard.engine.batch import BatchProcessor
from trainguard.rules.extension import AnyRule
from trainguard.testing import SyntheticJob, run_rule

JOB = SyntheticJob(nodes=2, minutes=10)
HOT = JOB.with_series("cpu", 95.0, node="algo-2", start_s=180.0, end_s=240.0)


def test_firing_node_has_alerts_with_begin_and_end() -> None:
    outcome = run_rule(HotCpu(), HOT)
    outcome.assert_fired(times=1).assert_fired(node="algo-2", times=1).assert_not_fired(node="algo-1")
    outcome.assert_status(Status.OK, node="algo-2")
    assert [each.kind for each in outcome.alerts] == [AlertKind.FIRE, AlertKind.CLEARED]
    (fire,) = outcome.fires
    said = fire.finding
    assert (said.node, said.measured, said.threshold, said.severity) == ("algo-2", 95.0, 80.0, Severity.LOW)
    assert said.reason == "cpu of algo-2 at 95."
    assert 180.0 < fire.at_s <= 240.0
    assert outcome.alerts[1].at_s - fire.at_s >= 120.0
    assert outcome.fired
    assert [row.node for row in outcome.rows] == [None, "algo-1", "algo-2"]
    assert outcome.row.times_fired == 1


def test_run_parameters_are_in_force_and_read_as_settings() -> None:
    assert run_rule(HotCpu(), HOT, {"threshold": 95}).row.parameters["threshold"] == 95.0
    run_rule(HotCpu(), HOT, {"threshold": "95"}).assert_not_fired()
    run_rule(HotCpu(), HOT, Limit(threshold=94.9)).assert_fired()
    with pytest.raises(RuleConfigError, match="HotCpu_threshold is '180', expected a number from 0 to 100"):
        run_rule(HotCpu(), HOT, {"threshold": 180})
    with pytest.raises(RuleConfigError, match="HotCpu_limit is '7', expected one of the parameters"):
        run_rule(HotCpu(), HOT, {"limit": 7})


@pytest.mark.parametrize(
    ("rule", "job", "threshold", "fires"),
    [
        (SlowSteps(), JOB.with_steps(lambda number: 9.0 if number == 40 else 1.0, node="algo-1"), 8.0, True),
        (SlowSteps(), JOB.with_steps(lambda number: 9.0 if number == 40 else 1.0, node="algo-1"), 9.0, False),
        (Loaders(), JOB.with_event("Loader", "a", 70.0, 1.0).with_event("Loader", "b", 80.0, 1.0), 1.0, True),
        (Loaders(), JOB.with_event("Loader", "a", 70.0, 1.0).with_event("Loader", "b", 80.0, 1.0), 2.0, False),
        (FewNodes(), JOB, 1.0, True),
        (FewNodes(), JOB, 2.0, False),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_rule_of_another_kind_sees_what_its_kind_sees(
    rule: AnyRule, job: SyntheticJob, threshold: float, fires: bool
) -> None:
    outcome = run_rule(rule, job, {"threshold": threshold})
    outcome.assert_fired() if fires else outcome.assert_not_fired()
    outcome.assert_status(Status.FIRED if fires else Status.OK)
    assert outcome.fired is fires


def test_ongoing_job_has_the_rows_of_a_running_job() -> None:
    assert run_rule(HotCpu(), HOT, ended=False).row.expires_at is None
    assert run_rule(HotCpu(), HOT).row.expires_at is not None
    silent = JOB.with_series("cpu", math.nan)
    waiting = run_rule(SlowSteps(), silent, ended=False)
    assert waiting.row.status in {Status.WAITING_FOR_DATA, Status.NOT_APPLICABLE}


def test_every_check_of_a_raising_rule_shows_its_traceback() -> None:
    outcome = run_rule(Raising(), HOT)
    (raised,) = outcome.raised
    assert isinstance(raised, LookupError)
    assert raised.__traceback__ is not None
    outcome.assert_error("no such core").assert_status(Status.ERROR, node="algo-2")
    for check in (
        outcome.assert_fired,
        outcome.assert_not_fired,
        lambda: outcome.fired,
        lambda: outcome.assert_status(Status.OK),
    ):
        with pytest.raises(AssertionError, match=r"Raising is in ERROR.*no such core") as caught:
            check()
        assert caught.value.__cause__ is raised
    with pytest.raises(AssertionError, match=r"not in ERROR for 'another'; its errors: .*no such core"):
        outcome.assert_error("another")


def test_expected_error_fails_on_a_good_rule_and_shows_its_words() -> None:
    with pytest.raises(AssertionError, match=r"not in ERROR for 'x'; it has no error. .* about the job: OK, .*at 35"):
        run_rule(HotCpu(), JOB).assert_error("x")


def test_failed_check_shows_the_text_of_each_row() -> None:
    outcome = run_rule(HotCpu(), HOT)
    with pytest.raises(
        AssertionError, match=r"HotCpu did not fire on algo-1\. .*About algo-1: OK, cpu of algo-1 at 35"
    ):
        outcome.assert_fired(node="algo-1")
    with pytest.raises(AssertionError, match="HotCpu fired 1 times, not 2"):
        outcome.assert_fired(times=2)
    with pytest.raises(AssertionError, match="HotCpu fired on algo-2"):
        outcome.assert_not_fired(node="algo-2")
    with pytest.raises(AssertionError, match="HotCpu is OK on algo-2, not FIRED"):
        outcome.assert_status(Status.FIRED, node="algo-2")
    with pytest.raises(AssertionError, match="no row of algo-7; it has rows of these nodes: algo-1, algo-2"):
        outcome.row_of("algo-7")


def test_state_kept_in_the_rule_itself_is_lost() -> None:
    run_rule(Forgetful(), JOB, {"threshold": 5}).assert_not_fired()


class Unhashable(HotCpu):
    name = "no name"


class NoState(HotCpu):
    name = "NoState"
    state_type: Any = dict


@pytest.mark.parametrize(("rule", "told"), [(Unhashable(), "name is 'no name'"), (NoState(), "state_type is")])
def test_rule_that_breaks_the_protocol_is_named_in_the_error(rule: AnyRule, told: str) -> None:
    with pytest.raises(RuleLoadError, match=told):
        run_rule(rule, JOB)


def test_rule_with_its_own_slots_or_fields_runs() -> None:
    class Slotted(HotCpu):
        __slots__ = ("factor",)

        def __init__(self) -> None:
            self.factor = msgspec.UNSET

    run_rule(Slotted(), HOT).assert_fired()


def test_engine_error_is_not_taken_for_a_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(BatchProcessor, "_process_node", fail)
    with pytest.raises(SyntheticRunError, match=r"while HotCpu ran: ZeroDivisionError in [\w/.]+:\d+: a defect"):
        run_rule(HotCpu(), JOB)
