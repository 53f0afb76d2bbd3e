"""Makes words of a gate's facts."""

from collections.abc import Mapping, Sequence

from trainguard.core.units import counted, listed
from trainguard.gate.document import Cause, FaultKind, GateFault, MetricVerdict
from trainguard.gate.metrics import KINDS, Metric
from trainguard.gate.noise import MOST_FURTHER, Answer

NAMES: Mapping[Metric, str] = {
    Metric.STEP_TIME: "step time",
    Metric.THROUGHPUT: "throughput",
    Metric.MEMORY: "memory",
    Metric.LOSS: "loss",
    Metric.GOODPUT: "goodput",
}
_CAUSES = {
    "data": "waits for batches",
    "host": "GPUs that wait for the host",
    "communication": "communication and waits for other ranks",
    "compute": "computation",
    "checkpoint": "saving checkpoints",
    "evaluation": "evaluation",
    "restart": "restarts and gaps",
    "start_up": "start-up and the end",
}


def percent(part: float) -> str:
    return f"{100.0 * part:+.2f} %"


def change_of(metric: MetricVerdict, part: float) -> str:
    """Return a change as people read it: of a share in points."""
    return f"{100.0 * part:+.2f} points" if KINDS[metric.metric].is_share else percent(part)


def reason_of(metric: MetricVerdict) -> str:
    """Say in a sentence why a metric has its verdict."""
    name = NAMES[metric.metric]
    if metric.change is None or metric.interval is None:
        return f"{name}: no step is in the candidate and in the baselines with a value."
    low, high = (change_of(metric, each) for each in metric.interval)
    said = f"{name}: {change_of(metric, metric.change)} ({low} to {high})"
    if metric.verdict is Answer.REGRESSION:
        return f"{said}, more than the noise between runs explains."
    if metric.verdict is Answer.PASSED:
        return f"{said}; a change for the worse by {_plain(metric)} is excluded."
    spread = f"the noise between runs is {100.0 * (metric.noise_between or 0.0):.2f} %"
    return f"{said}: {spread}, too much to tell. {further(metric.runs_needed, metric.candidate_runs_needed)}"


def further(runs: int | None, candidates: int | None) -> str:
    if runs is None:
        return f"Even {MOST_FURTHER} further runs would not decide it."
    if not candidates:
        return f"{counted(runs, 'further run')} of the baseline would decide it, if like these."
    of_candidate = "all" if candidates == runs else f"{candidates:,}"
    return f"{counted(runs, 'further run')} would decide it, if like these, {of_candidate} of the candidate."


def _plain(metric: MetricVerdict) -> str:
    return change_of(metric, metric.tolerance).lstrip("+")


FAULTS: Mapping[FaultKind, str] = {
    "failed": "{place} failed, by what recorded it",
    "not_finite": "{place} has a loss that is no number, and no baseline has",
    "cut_short": "{place} has far fewer steps than the baselines: it crashed, or still runs",
}


_WORDS = {Answer.PASSED: "Pass", Answer.REGRESSION: "Regression", Answer.INCONCLUSIVE: "Inconclusive"}


def summary(verdict: Answer, faults: Sequence[GateFault], metrics: Sequence[MetricVerdict], candidate: str) -> str:
    """Say the answer in a sentence, by what decides it first."""
    if broken := [each.text for each in faults if each.verdict is verdict]:
        return f"{_WORDS[verdict]}: {broken[0]}."
    deciding = [each for each in metrics if each.verdict is verdict]
    if verdict is Answer.PASSED:
        return f"Pass: {listed([NAMES[each.metric] for each in deciding])} of {candidate} no worse than the baselines."
    if not deciding:
        return f"Inconclusive: {candidate} and the baselines have nothing in common that can be compared."
    return f"{_WORDS[verdict]}: {deciding[0].reason}"


def cause_text(cause: Cause) -> str:
    where = "By kernel traces" if cause.source == "kernels" else "By the ledger"
    per = "a step" if cause.per_step else "in all"
    unit = "s" if cause.source == "kernels" else "GPU-seconds"
    took = f"{cause.before:.4g} to {cause.after:.4g} {unit} {per}"
    return f"{where}, {_CAUSES[cause.kind]} grew most: {took}, {100.0 * cause.share:.0f} % of what grew."


def warning_about(what: str, candidate: str, baseline: str) -> str:
    return f"The candidate has {what} {candidate}, the baselines {baseline}: the runs may not do the same work."


def warning_length(candidate: int, low: int, high: int) -> str:
    usual = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"The candidate has {counted(candidate, 'record')}, the baselines {usual}; steps of both are compared."


def warning_missing(missing: int, of: int) -> str:
    return f"The candidate lacks {missing:,} of the {of:,} steps that the baselines have up to its end."


def warning_order(metric: Metric) -> str:
    return f"{NAMES[metric]}: the runs share few steps, so their records are compared in their order."


def warning_broken(place: str) -> str:
    return f"{place} failed or has a loss that is no number: it is no baseline, and is left out."


def warning_assumed(metrics: Sequence[Metric]) -> str:
    names = listed([NAMES[each] for each in metrics])
    return f"Where few runs show it, the noise of {names} between repeats is assumed, not measured."


def warning_node(node: str, part: float) -> str:
    return f"{node} of the candidate takes {percent(part)} of the time of its other nodes a step."


def warning_unsure(metric: MetricVerdict) -> str:
    return f"Not decided, and no reason to hold the candidate back: {metric.reason}"
