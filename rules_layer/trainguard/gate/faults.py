"""What shows without any comparison of levels that a run may not pass."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from trainguard.gate.document import FaultKind, GateFault
from trainguard.gate.metrics import SPEEDS, Metric
from trainguard.gate.noise import Answer
from trainguard.gate.runs import GateRun, Points
from trainguard.gate.text import fault_text

# With less than this part of the records and of the last step of the shortest baseline, a run was cut short.
_FEWEST_PART = 0.5

# Baselines of so many records that differ by no more than this part have one length.
_FEWEST_ALIKE, _ALIKE, _PART_OF_ALIKE = 20, 0.02, 0.8

# By this part the candidate has more speeds that are no number above 0 than any baseline: it may have stood still.
_UNUSABLE = 0.05


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
