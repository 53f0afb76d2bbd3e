"""Makes words of a gate's facts."""

from collections.abc import Mapping, Sequence

from trainguard.core.text import one_line
from trainguard.core.units import counted, listed
from trainguard.gate.document import Cause, FaultKind, GateFault, GateVerdict, MetricVerdict
from trainguard.gate.noise import MOST_FURTHER, Answer
from trainguard.gate.runs import KINDS, Metric

NAMES: Mapping[Metric, str] = {each: each.replace("_", " ") for each in Metric}
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

_FAULTS: Mapping[FaultKind, str] = {
    "failed": "{place} failed, by what recorded it",
    "not_finite": "{place} has a loss that is no number",
    "cut_short": "{place} ends after {own}, the baselines after {of:,} or more: it may have crashed, or still run",
    "unusable": "{place} has no number above 0 in {many:,} of {of:,} values of {name}: it may have stood still",
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
        return f"{name}: the runs have no values under one name that can be compared."
    low, high = (change_of(metric, each) for each in metric.interval)
    said = f"{name} {change_of(metric, metric.change)} ({low} to {high})"
    if metric.verdict is Answer.REGRESSION:
        return f"{said}, more than the noise between runs explains."
    if metric.verdict is Answer.PASSED:
        is_better = metric.interval[0] > 0.0 if KINDS[metric.metric].more_is_better else metric.interval[1] < 0.0
        return f"{said}, {'better than the baselines' if is_better else f'within the tolerance of {_plain(metric)}'}."
    if metric.why == "stalls":
        longer = _part(metric.mean_worse)
        return f"{said} by the usual step, but the mean step takes {longer} longer: some take longer than in baselines."
    assumed = "" if metric.noise_seen is not None else " (assumed, as one run a side shows none)"
    noise = f"noise of {_part(metric.noise_between)} between runs{assumed} and {_part(metric.noise_within)} within them"
    more = further(metric.runs_needed, metric.candidate_runs_needed)
    return f"{said}: {noise} leaves open whether it is within the tolerance of {_plain(metric)}. {more}"


def _part(part: float | None) -> str:
    return f"{100.0 * (part or 0.0):.2f} %"


def further(runs: int | None, candidates: int | None) -> str:
    if runs is None:
        return f"Even {MOST_FURTHER} further runs would not decide it."
    if not candidates:
        return f"{counted(runs, 'further run')} of the baseline would decide it, if like these."
    of_candidate = "all" if candidates == runs else f"{candidates:,}"
    return f"{counted(runs, 'further run')} would decide it, if like these, {of_candidate} of the candidate."


def _plain(metric: MetricVerdict) -> str:
    return f"{100.0 * metric.tolerance:.3g} {'points' if KINDS[metric.metric].is_share else '%'}"


def fault_text(kind: FaultKind, place: str, own: int, of: int, name: str) -> str:
    return _FAULTS[kind].format(place=place, own=counted(own, "record"), many=own, of=of, name=one_line(name, 80))


def summary(verdict: Answer, faults: Sequence[GateFault], metrics: Sequence[MetricVerdict], candidate: str) -> str:
    """Say the answer in a sentence, by what decides it first."""
    if broken := [each.text for each in faults if each.verdict is verdict]:
        return f"{verdict.capitalize()}: {broken[0]}."
    deciding = [each for each in metrics if each.verdict is verdict]
    if verdict is Answer.PASSED:
        return f"Pass: {' '.join(each.reason for each in deciding)}"
    if not deciding:
        return f"Inconclusive: {candidate} and the baselines have nothing in common that can be compared."
    return f"{verdict.capitalize()}: {deciding[0].reason}"


def other_faults(verdict: GateVerdict) -> list[GateFault]:
    said = next((each for each in verdict.faults if each.verdict is verdict.verdict), None)
    return [each for each in verdict.faults if each is not said]


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
    return f"The candidate has {counted(candidate, 'record')}, the baselines {usual}; only what both have is compared."


def warning_faster(metric: MetricVerdict) -> str:
    change = change_of(metric, metric.change or 0.0)
    return f"{NAMES[metric.metric]} {change} is far better than in the baselines: the runs may not do the same work."


def warning_names(names: Sequence[str]) -> str:
    different = listed([one_line(each, 80) for each in dict.fromkeys(names)])
    return f"The runs call the step time {different}: they are compared in seconds."


def warning_missing(missing: int, of: int) -> str:
    return f"The candidate lacks {missing:,} of the {of:,} steps that the baselines have up to its end."


def warning_order(metric: Metric) -> str:
    return f"{NAMES[metric]}: the runs share few steps, so their records are compared in their order."


def warning_both(place: str) -> str:
    return f"{place} is a candidate: it is no baseline, and is left out."


def warning_broken(place: str) -> str:
    return f"{place} failed or has a loss that is no number: it is no baseline, and is left out."


def warning_assumed(metrics: Sequence[Metric]) -> str:
    names = listed([NAMES[each] for each in metrics])
    return f"Where few runs show it, the noise of {names} between repeats is assumed, not measured."


def warning_node(node: str, part: float) -> str:
    return f"A step takes {_part(part)} longer on {node} than on the median node of the candidate."


def warning_unsure(metric: MetricVerdict) -> str:
    return f"Not decided, and no reason to hold the candidate back: {metric.reason}"
