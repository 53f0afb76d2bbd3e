"""The verdict on whole runs: nothing that is broken passes, and what makes runs unlike is a warning."""

import math
from collections.abc import Mapping
from xml.etree import ElementTree

import numpy as np
import pytest

from trainguard.gate.cause import ledger_cause
from trainguard.gate.document import GateVerdict
from trainguard.gate.judge import verdict_of
from trainguard.gate.noise import Answer
from trainguard.gate.outputs import junit, markdown
from trainguard.gate.runs import GateRun, Metric, Points
from trainguard.ledger.bucket import Bucket

NAMES = {
    Metric.STEP_TIME: "step_time_s", Metric.THROUGHPUT: "throughput", Metric.MEMORY: "memory", Metric.LOSS: "loss",
    Metric.GOODPUT: "goodput",
}  # fmt: skip


def run(
    number: int = 0,
    *,
    steps: int = 40,
    length: float = 1.0,
    failed: bool = False,
    about: Mapping[str, str] | None = None,
    **more: object,
) -> GateRun:
    """A run whose steps take ``length`` seconds but for its own noise; ``more`` are values by metric."""
    at = np.arange(steps)
    drawn = np.random.default_rng(number)
    times = length * (1.0 + 0.001 * drawn.standard_normal(steps)) * (1.0 + 0.001 * drawn.standard_normal())
    series = {Metric.STEP_TIME: {"step_time_s": Points(at, times)}} if steps else {}
    for name, values in more.items():
        metric = Metric(name)
        series[metric] = {NAMES[metric]: Points(at, np.broadcast_to(np.asarray(values, np.float64), at.shape).copy())}
    return GateRun(f"run-{number}", series, about=about or {}, failed=failed)


BASELINES = [run(number, loss=np.linspace(3.0, 1.0, 40), memory=10.0) for number in range(1, 5)]
FALLING = np.linspace(3.0, 1.0, 40)


def judge(candidate: GateRun, **options: object) -> GateVerdict:
    return verdict_of([candidate], BASELINES, **options)  # type: ignore[arg-type]


def broken(place: int) -> object:
    values = FALLING.copy()
    values[place] = math.nan
    return values


@pytest.mark.parametrize(
    ("candidate", "answer", "fault", "worse"),
    [
        (run(9, loss=FALLING, memory=10.0), Answer.PASSED, None, None),
        (run(9, length=1.03, loss=FALLING, memory=10.0), Answer.REGRESSION, None, Metric.STEP_TIME),
        (run(9, loss=FALLING * 1.3, memory=10.0), Answer.REGRESSION, None, Metric.LOSS),
        (run(9, loss=FALLING, memory=12.0), Answer.REGRESSION, None, Metric.MEMORY),
        (run(9, loss=broken(-1), memory=10.0), Answer.REGRESSION, "not_finite", None),
        (run(9, loss=broken(20), memory=10.0), Answer.REGRESSION, "not_finite", None),
        (run(9, loss=FALLING, memory=10.0, failed=True), Answer.REGRESSION, "failed", None),
        (run(9, steps=12, loss=FALLING[:12], memory=10.0), Answer.INCONCLUSIVE, "cut_short", None),
        (run(9, steps=28, loss=FALLING[:28], memory=10.0), Answer.INCONCLUSIVE, "cut_short", None),
        (
            run(9, steps=12, length=1.2, loss=FALLING[:12], memory=10.0),
            Answer.REGRESSION,
            "cut_short",
            Metric.STEP_TIME,
        ),
        (run(9, steps=0), Answer.INCONCLUSIVE, "cut_short", None),
        (run(9, loss=FALLING), Answer.INCONCLUSIVE, None, None),
    ],
)
def test_verdict_of_a_run(candidate: GateRun, answer: Answer, fault: str | None, worse: Metric | None) -> None:
    verdict = judge(candidate)
    assert verdict.verdict is answer
    assert [each.kind for each in verdict.faults] == ([fault] if fault else [])
    assert [each.metric for each in verdict.metrics if each.verdict is Answer.REGRESSION] == ([worse] if worse else [])
    assert verdict.runs_needed == (None if answer is Answer.INCONCLUSIVE else 0)


def stalled(every: int, factor: float) -> GateRun:
    """A run whose usual step is as long as ever, but each so many-th is not."""
    points = run(9).points(Metric.STEP_TIME, "step_time_s")
    longer = points.values * np.where(np.arange(len(points)) % every == every - 1, factor, 1.0)
    return GateRun("stalled", {Metric.STEP_TIME: {"step_time_s": Points(points.steps, longer)}})


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_run_that_stalls_at_few_steps_never_passes(count: int) -> None:
    verdict = verdict_of([stalled(5, 10.0)], [run(number) for number in range(1, 1 + count)])
    assert (verdict.verdict, verdict.metrics[0].why) == (Answer.INCONCLUSIVE, "stalls")
    assert verdict.metrics[0].mean_worse == pytest.approx(1.9, abs=0.3)
    also = [stalled(5, 10.0), stalled(5, 10.0)]
    assert verdict_of([stalled(5, 10.0)], also).verdict is Answer.PASSED


def test_a_longer_start_is_no_stall() -> None:
    points = run(9).points(Metric.STEP_TIME, "step_time_s")
    longer = points.values * np.where(np.arange(len(points)) < 8, 5.0, 1.0)
    candidate = GateRun("cold", {Metric.STEP_TIME: {"step_time_s": Points(points.steps, longer)}})
    assert verdict_of([candidate], [run(1), run(2)]).verdict is Answer.PASSED


@pytest.mark.parametrize("value", [0.0, math.nan, -1.0])
def test_a_run_that_stands_still_never_passes(value: float) -> None:
    points = run(9).points(Metric.STEP_TIME, "step_time_s")
    values = np.where(np.arange(len(points)) < 20, points.values, value)
    candidate = GateRun("still", {Metric.STEP_TIME: {"step_time_s": Points(points.steps, values)}})
    verdict = verdict_of([candidate], [run(1), run(2)])
    assert (verdict.verdict, [each.kind for each in verdict.faults]) == (Answer.INCONCLUSIVE, ["unusable"])
    assert verdict_of([run(9)], [candidate, run(2)]).verdict is Answer.PASSED


QUIET = [run(number) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("length", "baselines", "said"),
    [
        (1.0085, QUIET, "within the tolerance of 2 %"),
        (0.95, QUIET, "better than the baselines"),
        (1.03, QUIET, "more than the noise between runs explains"),
        (1.014, QUIET[:1], "(assumed, as one run a side shows none)"),
    ],
)
def test_sentences_say_what_the_facts_are(length: float, baselines: list[GateRun], said: str) -> None:
    verdict = verdict_of([run(9, length=length)], baselines)
    assert said in verdict.reason
    assert "no worse" not in verdict.reason
    assert f"{100.0 * (verdict.metrics[0].change or 0.0):+.2f} %" in verdict.reason


def test_a_loss_that_ends_undefined_is_said_so() -> None:
    baselines = [run(number, loss=broken(20)) for number in (1, 2)]
    (fault,) = verdict_of([run(9, loss=broken(-1))], baselines).faults
    assert (fault.kind, "no baseline" in fault.text) == ("not_finite", False)


def test_step_times_of_other_names_are_compared_in_seconds() -> None:
    points = run(9).points(Metric.STEP_TIME, "step_time_s")
    candidate = GateRun("other", {Metric.STEP_TIME: {"step_time_ms": points}})
    verdict = verdict_of([candidate], [run(1), run(2)])
    assert verdict.verdict is Answer.PASSED
    assert [each.kind for each in verdict.warnings] == ["about"]


def test_a_run_that_is_far_faster_has_a_warning() -> None:
    verdict = verdict_of([run(9, length=0.25)], [run(1), run(2)])
    assert (verdict.verdict, [each.kind for each in verdict.warnings]) == (Answer.PASSED, ["about"])


def test_runs_with_nothing_in_common_are_inconclusive() -> None:
    other = GateRun("other", {Metric.THROUGHPUT: {"throughput": Points(np.arange(40), np.ones(40))}})
    assert judge(other).verdict is Answer.INCONCLUSIVE
    assert verdict_of([other], [GateRun("none")]).verdict is Answer.INCONCLUSIVE


def test_an_inconclusive_answer_says_how_many_runs_decide() -> None:
    verdict = verdict_of([run(9, length=1.014)], [run(1)])
    assert verdict.verdict is Answer.INCONCLUSIVE
    assert verdict.runs_needed in range(1, 6)
    assert "would decide" in verdict.metrics[0].reason


def test_further_runs_of_the_candidate_make_it_surer() -> None:
    slower = [run(number, length=1.015) for number in range(9, 12)]
    assert verdict_of(slower, [run(1), run(2), run(3)]).verdict is Answer.REGRESSION


def test_broken_baselines_are_left_out() -> None:
    out = run(5, failed=True)
    verdict = verdict_of([run(9)], [out, run(1), run(2)])
    assert verdict.verdict is Answer.PASSED
    assert [each.kind for each in verdict.warnings] == ["broken_baseline"]
    assert verdict_of([run(9)], [out]).verdict is Answer.INCONCLUSIVE


def test_losses_are_compared_at_the_step_that_is_asked_for() -> None:
    worse_early = FALLING * np.where(np.arange(40) < 20, 1.5, 1.0)
    candidate = run(9, loss=worse_early, memory=10.0)
    assert judge(candidate).verdict is Answer.PASSED
    assert judge(candidate, loss_step=10).verdict is Answer.REGRESSION


def test_tolerances_and_metrics_are_those_that_are_asked_for() -> None:
    candidate = run(9, length=1.03, loss=FALLING, memory=10.2)
    assert judge(candidate, tolerances={Metric.STEP_TIME: 0.1}).verdict is Answer.PASSED
    assert judge(candidate, only=[Metric.LOSS]).verdict is Answer.PASSED
    assert judge(candidate, only=[Metric.MEMORY], tolerances={Metric.MEMORY: 0.02}).verdict is Answer.REGRESSION


def test_runs_of_another_machine_or_length_have_warnings() -> None:
    baselines = [run(number, about={"GPU": "H100", "batch": "256"}) for number in (1, 2)]
    candidate = run(9, steps=60, about={"GPU": "A100", "batch": "256"})
    warned = {each.kind: each.text for each in verdict_of([candidate], baselines).warnings}
    assert set(warned) == {"about", "length"}
    assert "A100" in warned["about"]
    every_second = Points(np.delete(np.arange(40), [7, 8, 9, 10]), np.ones(36))
    lacking = GateRun("lacking", {Metric.STEP_TIME: {"step_time_s": every_second}})
    assert "missing_steps" in {each.kind for each in verdict_of([lacking], baselines).warnings}


def test_a_node_that_is_slower_than_the_others_is_named() -> None:
    nodes = {f"node-{number}": Points(np.arange(40), np.full(40, 1.0 + 0.1 * (number == 3))) for number in range(4)}
    base = run(9)
    warnings = verdict_of([GateRun("c", base.series, nodes)], [run(1), run(2)]).warnings
    assert [each.text for each in warnings if each.kind == "slow_node" and "node-3" in each.text]


def test_the_cause_is_the_part_that_grew_most() -> None:
    healthy = {Bucket.COMPUTE: 900.0, Bucket.DATA: 50.0, Bucket.PEERS: 50.0}
    baselines = [GateRun("b", ledger=healthy, steps=100), GateRun("b", ledger=healthy, steps=100), GateRun("none")]
    slow = GateRun("c", ledger={**healthy, Bucket.DATA: 250.0, Bucket.COMPUTE: 950.0}, steps=100)
    cause = ledger_cause([slow], baselines)
    assert cause is not None
    assert cause.kind == "data"
    assert [cause.share, cause.before, cause.after] == pytest.approx([0.8, 0.5, 2.5])
    assert ledger_cause([GateRun("c", ledger=healthy, steps=100)], baselines) is None
    assert ledger_cause([GateRun("c")], baselines) is None


HOSTILE = "<script>|@all [x](y)\x1b[31m\n# `new`"


@pytest.mark.parametrize("candidate", [run(9), run(9, length=1.2), run(9, failed=True), run(9, steps=0)])
def test_outputs_hold_the_answer_and_no_markup_of_others(candidate: GateRun) -> None:
    named = GateRun(HOSTILE, candidate.series, failed=candidate.failed, notes=(HOSTILE,))
    verdict = verdict_of([named], [run(1), run(2)])
    report = ElementTree.fromstring(junit(verdict))  # noqa: S314 -- its own output
    failures, errors = (int(report.attrib[name]) for name in ("failures", "errors"))
    assert (failures > 0) == (verdict.verdict is Answer.REGRESSION)
    assert (failures + errors > 0) == (verdict.verdict is not Answer.PASSED)
    assert len(report.findall(".//testcase")) == int(report.attrib["tests"])
    written = markdown(verdict)
    assert str(verdict.verdict) in written.splitlines()[0]
    assert not [part for part in ("<script>", "@all", "[x]", "\x1b", "`new`") if part in written]
