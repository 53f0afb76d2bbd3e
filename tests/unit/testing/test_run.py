"""Running a rule over a synthetic job: rows and alerts of each kind of rule, and of rules that are wrong."""

import math
from typing import Any

import msgspec
import pytest

from tests.unit.testing.rules import FewNodes, Forgetful, HotCpu, Limit, Loaders, Raising, SlowSteps
from trainguard.engine.messages.batch import BatchProcessor
from trainguard.errors import RuleConfigError, RuleLoadError, SyntheticRunError
from trainguard.finding import Severity
from trainguard.records import AlertKind, Status
from trainguard.rules.extension import AnyRule
from trainguard.testing import SyntheticJob, run_rule

JOB = SyntheticJob(nodes=2, minutes=10)
HOT = JOB.with_series("cpu", 95.0, node="algo-2", start_s=180.0, end_s=240.0)


def test_given_a_condition_on_one_node_when_run_then_that_node_fires_and_the_alerts_say_when_it_began_and_ended() -> (
    None
):
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


def test_given_parameters_when_run_then_they_are_in_force_and_read_as_settings_are() -> None:
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
def test_given_a_rule_of_another_kind_when_run_then_it_sees_what_its_kind_sees(
    rule: AnyRule, job: SyntheticJob, threshold: float, fires: bool
) -> None:
    outcome = run_rule(rule, job, {"threshold": threshold})
    outcome.assert_fired() if fires else outcome.assert_not_fired()
    outcome.assert_status(Status.FIRED if fires else Status.OK)
    assert outcome.fired is fires


def test_given_a_job_that_goes_on_when_run_then_its_rows_are_those_of_a_running_job() -> None:
    assert run_rule(HotCpu(), HOT, ended=False).row.expires_at is None
    assert run_rule(HotCpu(), HOT).row.expires_at is not None
    silent = JOB.with_series("cpu", math.nan)
    waiting = run_rule(SlowSteps(), silent, ended=False)
    assert waiting.row.status in {Status.WAITING_FOR_DATA, Status.NOT_APPLICABLE}


def test_given_a_rule_that_raises_when_run_then_every_check_says_so_and_shows_its_traceback() -> None:
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


def test_given_a_rule_that_is_fine_when_an_error_is_expected_then_the_check_fails_and_says_what_it_said() -> None:
    with pytest.raises(AssertionError, match=r"not in ERROR for 'x'; it has no error. It says of the job: OK, .*at 35"):
        run_rule(HotCpu(), JOB).assert_error("x")


def test_given_a_check_that_fails_when_read_then_it_says_what_each_row_says() -> None:
    outcome = run_rule(HotCpu(), HOT)
    with pytest.raises(AssertionError, match=r"HotCpu did not fire on algo-1\. .* Of algo-1: OK, cpu of algo-1 at 35"):
        outcome.assert_fired(node="algo-1")
    with pytest.raises(AssertionError, match="HotCpu fired 1 times, not 2"):
        outcome.assert_fired(times=2)
    with pytest.raises(AssertionError, match="HotCpu fired on algo-2"):
        outcome.assert_not_fired(node="algo-2")
    with pytest.raises(AssertionError, match="HotCpu is OK on algo-2, not FIRED"):
        outcome.assert_status(Status.FIRED, node="algo-2")
    with pytest.raises(AssertionError, match="no row of algo-7; it has rows of these nodes: algo-1, algo-2"):
        outcome.row_of("algo-7")


def test_given_a_rule_that_keeps_what_it_saw_in_itself_when_run_then_it_is_lost_as_in_another_function() -> None:
    run_rule(Forgetful(), JOB, {"threshold": 5}).assert_not_fired()


class Unhashable(HotCpu):
    name = "no name"


class NoState(HotCpu):
    name = "NoState"
    state_type: Any = dict


@pytest.mark.parametrize(("rule", "told"), [(Unhashable(), "name is 'no name'"), (NoState(), "state_type is")])
def test_given_a_rule_that_breaks_the_protocol_when_run_then_the_error_names_what_is_wrong(
    rule: AnyRule, told: str
) -> None:
    with pytest.raises(RuleLoadError, match=told):
        run_rule(rule, JOB)


def test_given_a_rule_with_slots_or_fields_of_its_own_when_run_then_it_runs() -> None:
    class Slotted(HotCpu):
        __slots__ = ("factor",)

        def __init__(self) -> None:
            self.factor = msgspec.UNSET

    run_rule(Slotted(), HOT).assert_fired()


def test_given_a_defect_of_the_engine_when_run_then_it_is_not_taken_for_a_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(BatchProcessor, "_process_node", fail)
    with pytest.raises(SyntheticRunError, match="the engine failed while HotCpu ran: ZeroDivisionError: a defect"):
        run_rule(HotCpu(), JOB)
