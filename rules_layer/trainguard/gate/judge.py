"""The verdict on a candidate: each metric that its runs and the baselines share, and what makes it uncertain."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from trainguard.gate import text
from trainguard.gate.document import FaultKind, GateFault, GateVerdict, GateWarning, MetricVerdict, Why
from trainguard.gate.levels import RunLevels, levels_of
from trainguard.gate.noise import MATERIAL, Answer, further_runs, judged
from trainguard.gate.runs import KINDS, SPEEDS, GateRun, Metric, Points
from trainguard.gate.text import fault_text

# With less than this part of the records and of the last step of the shortest baseline, a run was cut short.
_FEWEST_PART = 0.5

# Baselines of so many records that differ by no more than this part have one length.
_FEWEST_ALIKE, _ALIKE, _PART_OF_ALIKE = 20, 0.02, 0.8

# By this part the candidate has more speeds that are no number above 0 than any baseline: it may have stood still.
_UNUSABLE = 0.05

# Losses are compared at the end of what both have: this part of the steps, or so many of them.
_END_PART, _END_STEPS = 0.1, 5
_OTHER_LENGTH, _MISSING = 0.1, 0.05
_FEWEST_OF_NODE = 3

# The mean of all compared steps is longer than a usual step explains: by the tolerance, and by so many times what
# means of baselines are apart; of one baseline by so many tolerances.
_APART, _OF_ONE = 3.0, 2.0

# A speed that is better by more is hardly that of the same work.
_IMPLAUSIBLE = 0.25

_WHY: Mapping[Answer, Why] = {
    Answer.REGRESSION: "change",
    Answer.PASSED: "no_change",
    Answer.INCONCLUSIVE: "noise",
}


def faults_of(candidates: Sequence[GateRun], baselines: Sequence[GateRun]) -> Iterator[GateFault]:
    usual = any(_has_undefined(each) for each in baselines)
    for run in candidates:
        if run.failed:
            yield _fault("failed", run)
        if is_broken(run) or (_has_undefined(run) and not usual):
            yield _fault("not_finite", run)
        if _is_cut(run, baselines):
            own = 0 if run.longest is None else len(run.longest)
            yield _fault("cut_short", run, own, min(map(len, _longest(baselines))))
        for name, unusable, records in _unusable(run, baselines):
            yield _fault("unusable", run, unusable, records, name)


def _fault(kind: FaultKind, run: GateRun, own: int = 0, of: int = 0, name: str = "") -> GateFault:
    answer = Answer.INCONCLUSIVE if kind in ("cut_short", "unusable") else Answer.REGRESSION
    return GateFault(kind=kind, verdict=answer, text=fault_text(kind, run.place, own, of, name))


def is_broken(run: GateRun) -> bool:
    """Whether a loss that was a number, or never was, ends as none."""
    losses = run.series.get(Metric.LOSS, {}).values()
    return any(len(each) > 0 and not math.isfinite(each.values[-1]) for each in losses)


def _has_undefined(run: GateRun) -> bool:
    return any(not np.isfinite(each.values).all() for each in run.series.get(Metric.LOSS, {}).values())


def _longest(runs: Sequence[GateRun]) -> list[Points]:
    return [each for each in (run.longest for run in runs) if each is not None and len(each)]


def _is_cut(run: GateRun, baselines: Sequence[GateRun]) -> bool:
    """Whether a run ends long before the baselines do; those of one length leave less room."""
    own, others = run.longest, _longest(baselines)
    if not others:
        return False
    if own is None or not len(own):
        return True
    lengths = [len(each) for each in others]
    alike = len(lengths) > 1 and min(lengths) >= max(_FEWEST_ALIKE, (1.0 - _ALIKE) * max(lengths))
    part = _PART_OF_ALIKE if alike else _FEWEST_PART
    return len(own) < part * min(lengths) and int(own.steps[-1]) < part * min(int(each.steps[-1]) for each in others)


def _unusable(run: GateRun, baselines: Sequence[GateRun]) -> Iterator[tuple[str, int, int]]:
    """Yield speeds with more values that are no number above 0 than in the baselines: how many, of how many."""
    for metric in SPEEDS:
        for name, points in run.series.get(metric, {}).items():
            usual = [_part(each.points(metric, name)) for each in baselines if name in each.names(metric)]
            if usual and len(points) and _part(points) > max(usual) + _UNUSABLE:
                yield name, round(_part(points) * len(points)), len(points)


def _part(points: Points) -> float:
    """Return the part of values that are no number above 0; none of no values."""
    usable = np.isfinite(points.values) & (points.values > 0.0)
    return 1.0 - float(usable.mean()) if len(points) else 0.0


def verdict_of(
    candidates: Sequence[GateRun],
    baselines: Sequence[GateRun],
    *,
    tolerances: Mapping[Metric, float] | None = None,
    only: Sequence[Metric] = (),
    loss_step: int | None = None,
) -> GateVerdict:
    """Judge one candidate by its runs, at least one, beside those of a baseline.

    ``tolerances`` replace those of `KINDS`; ``only`` these metrics are compared; losses at ``loss_step``, else at the
    end.
    """
    warnings: list[GateWarning] = []
    whole = [each for each in baselines if not (each.failed or is_broken(each))]
    out = [each for each in baselines if each.failed or is_broken(each)]
    warnings += [GateWarning("broken_baseline", text.warning_broken(each.place)) for each in out]
    sides = _Sides(candidates, whole, dict(tolerances or {}), loss_step)
    faults = list(faults_of(candidates, whole))
    found = sides.compared(only or tuple(Metric)) if whole else ()
    metrics = [replace(each, reason=text.reason_of(each)) for each in found]
    verdict = _overall(faults, metrics, needs_speed=not only)
    warnings += [*sides.warnings, *_about(candidates, whole), *_lengths(candidates, whole), *_nodes(candidates)]
    warnings += [
        GateWarning("about", text.warning_faster(each))
        for each in metrics
        if each.metric in SPEEDS and each.worse is not None and each.worse < -_IMPLAUSIBLE
    ]
    assumed = [each.metric for each in metrics if each.change is not None and not KINDS[each.metric].measured]
    if assumed and verdict is not Answer.PASSED:
        warnings.append(GateWarning("assumed_noise", text.warning_assumed(assumed)))
    if verdict is Answer.PASSED:
        open_ones = [each for each in metrics if each.verdict is Answer.INCONCLUSIVE]
        warnings += [GateWarning("unsure", text.warning_unsure(each)) for each in open_ones]
    warnings += [GateWarning("unread", note) for run in (*candidates, *baselines) for note in run.notes]
    return GateVerdict(
        verdict=verdict,
        reason=text.summary(verdict, faults, metrics, candidates[0].place),
        candidates=[each.place for each in candidates],
        baselines=[each.place for each in baselines],
        faults=faults,
        metrics=metrics,
        runs_needed=_needed(verdict, faults, metrics),
        warnings=warnings,
    )


def _needed(verdict: Answer, faults: Sequence[GateFault], metrics: Sequence[MetricVerdict]) -> int | None:
    if verdict is not Answer.INCONCLUSIVE:
        return 0
    if faults:
        return None
    needed = [each.runs_needed for each in metrics if _holds_back(each)]
    return None if not needed or None in needed else max(each for each in needed if each is not None)


def _holds_back(metric: MetricVerdict) -> bool:
    """Whether an undecided metric keeps a candidate from passing: a speed does, others where they look worse."""
    if metric.verdict is not Answer.INCONCLUSIVE:
        return False
    if metric.metric in SPEEDS or metric.worse is None:
        return True
    return metric.worse >= MATERIAL * metric.tolerance


def _overall(faults: Sequence[GateFault], metrics: Sequence[MetricVerdict], *, needs_speed: bool) -> Answer:
    if Answer.REGRESSION in {*(each.verdict for each in faults), *(each.verdict for each in metrics)}:
        return Answer.REGRESSION
    decided = [each for each in metrics if each.verdict is Answer.PASSED]
    has_speed = any(each.metric in SPEEDS for each in decided)
    if faults or any(map(_holds_back, metrics)) or not decided or (needs_speed and not has_speed):
        return Answer.INCONCLUSIVE
    return Answer.PASSED


class _Sides:
    """The candidate's runs and the baselines; ``warnings`` grow as metrics are compared."""

    def __init__(
        self,
        candidates: Sequence[GateRun],
        baselines: Sequence[GateRun],
        tolerances: Mapping[Metric, float],
        loss_step: int | None,
    ) -> None:
        self.runs = (*candidates, *baselines)
        self.warnings: list[GateWarning] = []
        self._candidates, self._baselines = candidates, baselines
        self._tolerances, self._loss_step = tolerances, loss_step

    def compared(self, wanted: Sequence[Metric]) -> Iterator[MetricVerdict]:
        for metric in wanted:
            some = [each for each in self.runs if each.names(metric)]
            if not some:
                continue
            of_baselines = any(each.names(metric) for each in self._baselines)
            if (verdict := self._compared(metric)) is not None:
                yield verdict
            elif of_baselines or metric in SPEEDS:
                # Nobody asks for what the baselines do not have; what they have alone is gone.
                yield self._without(metric)
        if not any(each.names(metric) for each in self.runs for metric in SPEEDS) and set(SPEEDS) & set(wanted):
            yield self._without(Metric.STEP_TIME)

    def _without(self, metric: Metric) -> MetricVerdict:
        return MetricVerdict(
            metric=metric,
            name="",
            verdict=Answer.INCONCLUSIVE,
            why="missing",
            tolerance=self._tolerance(metric),
            runs_needed=None,
            candidate_runs_needed=None,
        )

    def _tolerance(self, metric: Metric) -> float:
        return self._tolerances.get(metric, KINDS[metric].tolerance)

    def _compared(self, metric: Metric) -> MetricVerdict | None:
        """Compare the scalar of a metric of which all runs have most; None where none has values at common steps."""
        for name, whole in self._in_common(metric):
            points = _at_one_step(whole, self._loss_step) if metric is Metric.LOSS else whole
            if not all(map(len, points)):
                continue
            kind = KINDS[metric]
            found = levels_of(points, len(self._candidates), logarithmic=not kind.is_share, sign=kind.sign)
            if found is not None:
                if found.in_order:
                    self.warnings.append(GateWarning("order", text.warning_order(metric)))
                return self._judged(metric, name, points, found)
        return None

    def _in_common(self, metric: Metric) -> Iterator[tuple[str, list[Points]]]:
        """Yield scalars that all runs have, those with most values first; step times are seconds by any name."""
        names = frozenset.intersection(*(each.names(metric) for each in self.runs))
        for name in sorted(names, key=lambda name: (-min(len(each.points(metric, name)) for each in self.runs), name)):
            yield name, [each.points(metric, name) for each in self.runs]
        own = [sorted(each.names(metric)) for each in self.runs]
        if metric is Metric.STEP_TIME and not names and all(len(each) == 1 for each in own):
            self.warnings.append(GateWarning("about", text.warning_names([each[0] for each in own])))
            yield own[0][0], [each.points(metric, only) for each, (only,) in zip(self.runs, own, strict=True)]

    def _judged(self, metric: Metric, name: str, points: Sequence[Points], found: RunLevels) -> MetricVerdict:
        kind, tolerance = KINDS[metric], self._tolerance(metric)
        sign = kind.sign
        limit = tolerance if kind.is_share else math.log1p(tolerance)
        result = judged(found, kind.prior, limit, sign=sign)
        decided = result.answer is not Answer.INCONCLUSIVE
        more = (0, 0) if decided else further_runs(found, kind.prior, limit, sign=sign)
        answer, why = result.answer, _WHY[result.answer]
        mean = None
        if metric in SPEEDS and found.means is not None:
            own, others = found.means[: found.candidates], found.means[found.candidates :]
            usual = float(np.median(others))
            longer = float(own.mean()) - usual
            mean = math.expm1(longer)
            apart = float(np.abs(others - usual).max())
            if answer is Answer.PASSED and longer > max(limit if len(others) > 1 else _OF_ONE * limit, _APART * apart):
                answer, why, more = Answer.INCONCLUSIVE, "stalls", None
        values = [float(np.median(each.values[np.isfinite(each.values)])) for each in points]
        split = len(self._candidates)
        ends = sorted(_shown(sign * each, is_share=kind.is_share) for each in (result.low, result.high))
        return MetricVerdict(
            metric=metric,
            name=name,
            verdict=answer,
            why=why,
            unit=kind.unit,
            baseline=float(np.median(values[split:])),
            candidate=float(np.median(values[:split])),
            change=_shown(sign * result.change, is_share=kind.is_share),
            interval=(ends[0], ends[1]),
            worse=result.change if kind.is_share else math.expm1(result.change),
            mean_worse=mean,
            tolerance=tolerance,
            noise_between=result.between,
            noise_seen=result.seen,
            noise_within=result.within,
            runs_needed=None if more is None else sum(more),
            candidate_runs_needed=None if more is None else more[0],
            steps=found.columns,
            warm_up_steps=found.cut,
            windows=found.windows,
        )


def _shown(change: float, *, is_share: bool) -> float:
    return change if is_share else math.expm1(change)


def _at_one_step(points: Sequence[Points], step: int | None) -> list[Points]:
    """Return losses around a step: up to it, or up to the last step that all runs have."""
    lengths = [each for each in points if len(each)]
    if len(lengths) < len(points):
        return list(points)
    last = min(int(each.steps[-1]) for each in points) if step is None else step
    first = max(int(each.steps[0]) for each in points)
    begin = last - _END_PART * max(last - first, 0)
    cut = []
    for each in points:
        before = int(np.searchsorted(each.steps, last, side="right"))
        start = min(int(np.searchsorted(each.steps, begin)), max(before - _END_STEPS, 0))
        cut.append(Points(each.steps[start:before], each.values[start:before]))
    return cut


def _about(candidates: Sequence[GateRun], baselines: Sequence[GateRun]) -> Iterator[GateWarning]:
    for what in dict.fromkeys(name for run in (*candidates, *baselines) for name in run.about):
        own, others = (
            sorted({run.about[what] for run in side if what in run.about}) for side in (candidates, baselines)
        )
        if own and others and own != others:
            yield GateWarning("about", text.warning_about(what, ", ".join(own), ", ".join(others)))


def _lengths(candidates: Sequence[GateRun], baselines: Sequence[GateRun]) -> Iterator[GateWarning]:
    lengths = [len(each) for each in (run.longest for run in baselines) if each is not None]
    for own in (run.longest for run in candidates):
        if not lengths or own is None:
            continue
        low, high = min(lengths), max(lengths)
        if not low * (1.0 - _OTHER_LENGTH) <= len(own) <= high * (1.0 + _OTHER_LENGTH):
            yield GateWarning("length", text.warning_length(len(own), low, high))
        usual = _usual_steps(baselines, int(own.steps[-1])) if len(own) else own.steps
        missing = len(np.setdiff1d(usual, own.steps))
        # Fewer say that the runs count otherwise, which is another warning.
        if _MISSING * len(usual) < missing < len(usual) / 2:
            yield GateWarning("missing_steps", text.warning_missing(missing, len(usual)))


def _usual_steps(baselines: Sequence[GateRun], last: int) -> NDArray[np.int64]:
    """Return the steps up to ``last`` that all baselines have."""
    found = [each.steps for each in (run.longest for run in baselines) if each is not None]
    common = reduce(np.intersect1d, found)
    return common[common <= last]


def _nodes(candidates: Sequence[GateRun]) -> Iterator[GateWarning]:
    """Yield nodes of the candidate that are slower than its others by more than the tolerance of step times."""
    for run in candidates:
        levels = {name: float(np.median(each.values)) for name, each in run.nodes.items() if len(each)}
        if len(levels) < _FEWEST_OF_NODE:
            continue
        middle = float(np.median(list(levels.values())))
        for name, level in sorted(levels.items(), key=lambda each: -each[1])[:1]:
            if middle > 0.0 and level > middle * (1.0 + KINDS[Metric.STEP_TIME].tolerance):
                yield GateWarning("slow_node", text.warning_node(name, level / middle - 1.0))
