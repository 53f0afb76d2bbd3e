"""A node's framework stream: what it takes in, judges, stores and gives up."""

import pytest

from tests.support.framework_traces import SECOND, START_US, event, read, step
from tests.support.own_rules import OwnJoin, OwnParameters, OwnState, OwnSteps, deploy
from tests.unit.engine.test_partition_order import Bucket, announce, applied, name, order
from trainguard.core.errors import RuleFailedError
from trainguard.core.records import JobRecord, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.framework_session import FrameworkState, FrameworkStream
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.rules.dataloader.series import LoaderState
from trainguard.rules.overall_framework_metrics.rule import FrameworkTimeState
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.rule_result import RuleResult
from trainguard.state.codec import CODEC, decode_state, encode_state

START = START_US / SECOND


def plan() -> RulePlan:
    return FAMILIES.plan(JobRecord("job", "arn", "b", ""))


def opened(state: FrameworkState | None = None) -> FrameworkStream:
    return FrameworkStream("algo-1", state or FrameworkState(), plan())


def steps(first: int, count: int) -> FrameworkEvents:
    """Return steps of a tenth of a second, one each second, from a second on."""
    events = [step(first + number, first + number, 0.1) for number in range(count)]
    return read([*events, event("DataLoaderIter", "DataLoaderIter::GetNext", first, 0.1, pid=5_000)])


def test_watermark_and_first_step_ignore_the_object_order() -> None:
    stream = opened()
    assert stream.view(closed=False) == FrameworkView("algo-1", None, closed=False)
    seen = []
    for first, until in ((100, 160), (10, 70), (400, 460)):
        stream.apply(steps(first, 2), START_US + until * SECOND)
        seen.append((stream.state.watermark_s, stream.view(closed=True).first_step_at, len(stream.state.step_runs_us)))
    assert seen == [(START + 160, START + 100, 1), (START + 160, START + 10, 1), (START + 460, START + 10, 2)]
    assert stream.state.step_runs_us[1] == (START_US + 400 * SECOND, START_US + 401 * SECOND + SECOND // 10)
    assert stream.view(closed=True) == FrameworkView("algo-1", START + 460, closed=True, first_step_at=START + 10)


def test_object_ending_at_the_first_instant_sets_the_watermark() -> None:
    stream = opened()
    stream.apply(read([]), SECOND // 2)
    assert stream.state.watermark_s == 0.5


def test_finished_stream_without_objects_judges_nothing() -> None:
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


def test_rules_know_whether_the_stream_is_judged_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(monkeypatch, Telling())
    stream = opened()
    stream.apply(steps(0, 150), START_US + 160 * SECOND)
    assert (said(stream, closed=False), said(stream, closed=True)) == ("150 steps, open", "150 steps, ended")
    copy = stream.finished()
    assert copy.finish() == []
    assert said(copy, closed=True) == "150 steps, ended"
    assert [verdict.rule for verdict in stream.verdicts(closed=False)] == ["OverallFrameworkMetrics", "OwnSteps"]


def test_stream_goes_on_after_a_copy_of_it_was_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(monkeypatch, Telling())
    stream = opened()
    stream.apply(steps(0, 150), START_US + 160 * SECOND)
    copy = stream.finished()
    stream.apply(steps(200, 150), START_US + 360 * SECOND)
    assert (said(copy, closed=False), said(stream, closed=False)) == ("150 steps, open", "300 steps, open")
    assert (copy.state.watermark_s, stream.state.watermark_s) == (START + 160, START + 360)


def test_fire_of_an_applied_object_is_returned_once(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_reopened_stream_continues_all_rules() -> None:
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


def test_released_states_keep_only_data_of_joined_rules() -> None:
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


def test_failed_rules_are_all_named_and_stateless(
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
def test_object_two_minutes_behind_is_applied_after_50_s(newest_s: float, listed_s: float, is_applied: bool) -> None:
    keys = [name(1, 100.0), name(2, newest_s)]
    engine = order((1, 60.0), (2, 60.0), listed_s=listed_s)
    announce(engine, *keys)
    assert applied(engine, Bucket(keys)) == keys[:is_applied]


@pytest.mark.parametrize(("heard_s", "listed_from"), [(0.000001, 0.000001), (0.0, 600.0)])
def test_s3_is_not_listed_from_a_process_silent_for_ten_minutes(heard_s: float, listed_from: float) -> None:
    engine, bucket = order((1, heard_s), (2, 600.0), listed_s=600.0), Bucket([])
    engine.max_seen = START_US + 600 * SECOND
    assert applied(engine, bucket, drain=True) == []
    assert bucket.listed_from == [listed_from]


@pytest.mark.parametrize(("newest_s", "known"), [(3_600.0, 2), (3_600.000001, 1)])
def test_process_silent_for_an_hour_is_forgotten_on_save(newest_s: float, known: int) -> None:
    engine = order((1, 0.0), (2, newest_s), listed_s=newest_s)
    engine.forget_partitions()
    assert len(engine.cursors) == known
    assert engine.floor == (-1 if known == 2 else START_US)
