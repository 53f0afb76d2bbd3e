"""A node's framework stream: what it takes in, judges, stores and gives up."""

import pytest

from tests.support.framework_traces import SECOND, START_US, event, read, step
from tests.support.own_rules import OwnJoin, OwnParameters, OwnState, OwnSteps, deploy
from tests.unit.engine.test_partition_order import Bucket, announce, applied, name, order
from trainguard.engine.plan import RulePlan
from trainguard.errors import RuleFailedError
from trainguard.families.installed import FAMILIES
from trainguard.families.profiler.framework_stream import FrameworkState, FrameworkStream
from trainguard.records import JobRecord, Status
from trainguard.rules.framework_time import FrameworkTimeState
from trainguard.rules.loader_series import LoaderState
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.rule_result import RuleResult
from trainguard.state.codec import CODEC, decode_state, encode_state
from trainguard.telemetry.framework import FrameworkEvents

START = START_US / SECOND


def plan() -> RulePlan:
    return FAMILIES.plan(JobRecord("job", "arn", "b", ""))


def opened(state: FrameworkState | None = None) -> FrameworkStream:
    return FrameworkStream("algo-1", state or FrameworkState(), plan())


def steps(first: int, count: int) -> FrameworkEvents:
    """Return steps of a tenth of a second, one each second, from a second on."""
    events = [step(first + number, first + number, 0.1) for number in range(count)]
    return read([*events, event("DataLoaderIter", "DataLoaderIter::GetNext", first, 0.1, pid=5_000)])


def test_given_objects_in_any_order_when_applied_then_the_furthest_watermark_and_the_first_step_are_known() -> None:
    stream = opened()
    assert stream.view(closed=False) == FrameworkView("algo-1", None, closed=False)
    seen = []
    for first, until in ((100, 160), (10, 70), (400, 460)):
        stream.apply(steps(first, 2), START_US + until * SECOND)
        seen.append((stream.state.watermark_s, stream.view(closed=True).first_step_at, len(stream.state.step_runs_us)))
    assert seen == [(START + 160, START + 100, 1), (START + 160, START + 10, 1), (START + 460, START + 10, 2)]
    assert stream.state.step_runs_us[1] == (START_US + 400 * SECOND, START_US + 401 * SECOND + SECOND // 10)
    assert stream.view(closed=True) == FrameworkView("algo-1", START + 460, closed=True, first_step_at=START + 10)


def test_given_the_first_instant_of_all_when_an_object_ends_then_that_is_the_watermark() -> None:
    stream = opened()
    stream.apply(read([]), SECOND // 2)
    assert stream.state.watermark_s == 0.5


def test_given_a_stream_without_objects_when_finished_then_nothing_is_judged() -> None:
    stream = opened()
    assert stream.finish() == []
    assert (stream.due, stream.raised, stream.degrade()) == (set(), [], None)


class Telling(OwnSteps):
    """A rule that says how many steps it was shown, and whether its stream has ended; it fires from 300 steps on."""

    def observe(self, state: OwnState, events: FrameworkEvents, parameters: OwnParameters) -> None:
        state.minutes += sum(len(batch.numbers) for batch in events.steps)

    def judge(self, state: OwnState, view: FrameworkView, parameters: OwnParameters) -> RuleResult:
        status = Status.FIRED if state.minutes > 300 else Status.OK
        return RuleResult(status, f"{state.minutes} steps, {'ended' if view.closed else 'open'}")


def said(stream: FrameworkStream, *, closed: bool) -> str:
    (verdict,) = stream.verdicts(closed=closed, of={"OwnSteps"})
    return verdict.result.reason


def test_given_a_stream_when_judged_as_it_is_and_as_ended_then_rules_know(monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(monkeypatch, Telling())
    stream = opened()
    stream.apply(steps(0, 150), START_US + 160 * SECOND)
    assert (said(stream, closed=False), said(stream, closed=True)) == ("150 steps, open", "150 steps, ended")
    copy = stream.finished()
    assert copy.finish() == []
    assert said(copy, closed=True) == "150 steps, ended"
    assert [verdict.rule for verdict in stream.verdicts(closed=False)] == ["OverallFrameworkMetrics", "OwnSteps"]


def test_given_a_copy_to_finish_when_more_comes_then_the_stream_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(monkeypatch, Telling())
    stream = opened()
    stream.apply(steps(0, 150), START_US + 160 * SECOND)
    copy = stream.finished()
    stream.apply(steps(200, 150), START_US + 360 * SECOND)
    assert (said(copy, closed=False), said(stream, closed=False)) == ("150 steps, open", "300 steps, open")
    assert (copy.state.watermark_s, stream.state.watermark_s) == (START + 160, START + 360)


def test_given_a_rule_that_fires_when_applied_then_it_is_returned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(monkeypatch, Telling())
    stream = opened()
    quiet = stream.apply(steps(0, 300), START_US + 310 * SECOND)
    fires = stream.apply(steps(310, 40), START_US + 360 * SECOND)
    again = stream.apply(steps(360, 40), START_US + 410 * SECOND)
    begun = [(fire.verdict.rule, fire.verdict.result.status) for fire in fires]
    assert (quiet, begun, again) == (
        [],
        [("OwnSteps", Status.FIRED)],
        [],
    )
    assert stream.due == {"OwnSteps", "OverallFrameworkMetrics"}


def test_given_a_stream_when_stored_and_opened_then_all_rules_go_on_where_they_were() -> None:
    stream = opened()
    stream.apply(steps(0, 150), START_US + 160 * SECOND)
    data = encode_state(stream.store())
    again = opened(decode_state("job/algo-1", CODEC, data, FrameworkState))
    for rule, kind in (("OverallFrameworkMetrics", FrameworkTimeState), ("StepOutlier", object)):
        assert again.state_of(rule) == stream.state_of(rule)
        assert isinstance(again.state_of(rule), kind)
    loaders = again.state_of("Dataloader")
    assert isinstance(loaders, LoaderState)
    assert loaders == stream.state_of("Dataloader")
    assert len(loaders.processes) == 1
    assert encode_state(again.store()) == data
    assert opened().due == set()


def test_given_states_that_were_released_when_asked_then_only_what_joined_rules_collected_is_there() -> None:
    stream = opened()
    stream.apply(steps(0, 150), START_US + 160 * SECOND)
    stream.release()
    assert isinstance(stream.state_of("Dataloader"), LoaderState)
    with pytest.raises(RuntimeError, match="OverallFrameworkMetrics"):
        stream.verdicts(closed=False)


class Failing(OwnSteps):
    """A rule over steps that fails."""

    def observe(self, state: OwnState, events: FrameworkEvents, parameters: object) -> None:
        raise LookupError(f"{state.minutes} {len(events.steps)} {parameters}")


class FailingJoin(OwnJoin):
    """A rule over the job that fails when it collects."""

    def observe(self, state: OwnState, events: FrameworkEvents, parameters: object) -> None:
        raise LookupError(f"{state.minutes} {len(events.steps)} {parameters}")


def test_given_rules_that_fail_when_applied_then_both_are_named_and_neither_has_a_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deploy(monkeypatch, Failing(), FailingJoin())
    stream = opened()
    stream.apply(steps(0, 2), START_US + 160 * SECOND)
    assert [each.partition(": ")[0] for each in stream.raised] == ["OwnSteps", "OwnJoin"]
    for asked, rule in ((stream.state_of, "OwnSteps"), (stream.state_of, "OwnJoin")):
        with pytest.raises(RuleFailedError):
            asked(rule)
    assert {each.rule: each.result.status for each in stream.verdicts(closed=False)}["OwnSteps"] is Status.ERROR


@pytest.mark.parametrize(
    ("newest_s", "listed_s", "is_applied"),
    [(220.0, 0.0, True), (219.999999, 0.0, False), (220.0, 50.0, True), (220.0, 50.000001, False)],
)
def test_given_an_object_when_its_node_is_two_minutes_ahead_and_was_not_listed_for_50_s_then_it_is_applied(
    newest_s: float, listed_s: float, is_applied: bool
) -> None:
    keys = [name(1, 100.0), name(2, newest_s)]
    engine = order((1, 60.0), (2, 60.0), listed_s=listed_s)
    announce(engine, *keys)
    assert applied(engine, Bucket(keys)) == keys[:is_applied]


@pytest.mark.parametrize(("heard_s", "listed_from"), [(0.000001, 0.000001), (0.0, 600.0)])
def test_given_a_process_that_was_silent_for_ten_minutes_when_the_job_ends_then_s3_is_not_listed_from_it_on(
    heard_s: float, listed_from: float
) -> None:
    engine, bucket = order((1, heard_s), (2, 600.0), listed_s=600.0), Bucket([])
    engine.max_seen = START_US + 600 * SECOND
    assert applied(engine, bucket, drain=True) == []
    assert bucket.listed_from == [listed_from]


@pytest.mark.parametrize(("newest_s", "known"), [(3_600.0, 2), (3_600.000001, 1)])
def test_given_a_process_that_wrote_nothing_for_an_hour_when_the_item_is_saved_then_it_is_forgotten(
    newest_s: float, known: int
) -> None:
    engine = order((1, 0.0), (2, newest_s), listed_s=newest_s)
    engine.forget_partitions()
    assert len(engine.cursors) == known
    assert engine.floor == (-1 if known == 2 else START_US)
