"""Repeats of one training as candidate and baselines, as they are and slowed, and how often the gate is right."""

import json
import lzma
import math
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from trainguard.gate.levels import RunLevels, levels_of
from trainguard.gate.noise import Answer, judged
from trainguard.gate.runs import KINDS, Metric, Points, Prior

DATA = Path(__file__).parents[2] / "data" / "mlperf" / "training_v5.0.json.xz"
SLOWER = (0.0, 0.01, 0.02, 0.03, 0.05)
BASELINES = (5, 3, 2, 1)

# With 5 baselines levels have to differ by 3.8 standard deviations: of more noise 3 % is not found.
ALLOWS = 0.008

Groups = Mapping[str, Sequence[Mapping[str, Sequence[float]]]]


@dataclass(frozen=True)
class Trial:
    """A run of a group beside others of it, ``slower`` by a part: their levels."""

    group: str
    slower: float
    levels: RunLevels


@cache
def groups() -> Groups:
    found: Groups = json.loads(lzma.decompress(DATA.read_bytes()))
    return found


def trials(
    metric: Metric, baselines: int, *, slower: Sequence[float] = SLOWER, only: Sequence[str] = (), draws: int = 1
) -> Iterator[Trial]:
    """Yield each run of a group beside some others, drawn by chance; groups with fewer runs have no trial."""
    drawn = random.Random(baselines)
    for group, runs in groups().items():
        values = [run[metric] for run in runs if run.get(metric)]
        if (only and group not in only) or len(values) <= baselines:
            continue
        for place, own in enumerate(values):
            others = [each for number, each in enumerate(values) if number != place]
            for _ in range(draws):
                beside = [_points(each) for each in drawn.sample(others, baselines)]
                for part in slower:
                    factor = 1.0 + part if metric is Metric.STEP_TIME else 1.0 / (1.0 + part)
                    levels = levels_of([_points(own, factor), *beside], 1)
                    assert levels is not None
                    yield Trial(group, part, levels)


def _points(values: Sequence[float], factor: float = 1.0) -> Points:
    return Points(np.arange(len(values)), np.array(values, np.float64) * factor)


def answers(
    metric: Metric, found: Sequence[Trial], priors: Mapping[str, Prior] | None = None
) -> dict[float, Counter[Answer]]:
    """Count answers by how much slower the candidate is; ``priors`` by group replace that of the product."""
    kind = KINDS[metric]
    counted: dict[float, Counter[Answer]] = defaultdict(Counter)
    for trial in found:
        prior = kind.prior if priors is None else priors[trial.group]
        sign = -1.0 if kind.more_is_better else 1.0
        counted[trial.slower][judged(trial.levels, prior, math.log1p(kind.tolerance), sign=sign).answer] += 1
    return counted


@cache
def spreads(metric: Metric) -> Mapping[str, tuple[float, int]]:
    """Return the standard deviation of the levels of all runs by group, and its degrees of freedom."""
    found = {}
    for group, runs in groups().items():
        values = [_points(run[metric]) for run in runs if run.get(metric)]
        if len(values) > 1 and (levels := levels_of(values, 1)) is not None:
            found[group] = (float(np.std(levels.levels, ddof=1)), len(values) - 1)
    return found


# Priors that are tried: those of more weight, or a larger spread, find less.
_TRIED = [Prior(spread, weight) for weight in (2.0, 3.0, 4.0) for spread in (0.0015, 0.002, 0.0025, 0.003)]
_FALSE = 0.005


# Of a group and how much slower the candidate is: how often it is called a regression, of how many trials.
Counts = dict[tuple[str, float], tuple[int, int]]


def counts_by_prior(metric: Metric, found: Sequence[Trial]) -> dict[Prior, Counts]:
    """Count regressions by prior that is tried, each group apart."""
    by_group: dict[str, list[Trial]] = defaultdict(list)
    for each in found:
        by_group[each.group].append(each)
    counted: dict[Prior, Counts] = {}
    for prior in _TRIED:
        counted[prior] = {}
        for group, own in by_group.items():
            for slower, given in answers(metric, own, {group: prior}).items():
                counted[prior][group, slower] = (given[Answer.REGRESSION], given.total())
    return counted


def chosen(counted: Mapping[Prior, Counts], groups: Collection[str]) -> Prior:
    """Return the prior that finds most slowdowns of 2 % of those with few false alarms, on some groups' trials."""
    scores = []
    for prior, counts in counted.items():
        false, right = (
            sum(counts[group, slower][0] for group in groups) / sum(counts[group, slower][1] for group in groups)
            for slower in (0.0, 0.02)
        )
        scores.append((false <= _FALSE, right if false <= _FALSE else -false, prior))
    return max(scores, key=lambda each: each[:2])[2]


def priors_without(metric: Metric, found: Sequence[Trial], part: int) -> dict[str, Prior]:
    """Return for each group the prior that is chosen on those of another ``part``: 0 the submitter, -1 the training."""
    counted = counts_by_prior(metric, found)
    kinds = {each.group: each.group.split("/")[part] for each in found}
    by_kind = {
        kind: chosen(counted, [group for group in kinds if kinds[group] != kind]) for kind in sorted({*kinds.values()})
    }
    return {group: by_kind[kind] for group, kind in kinds.items()}
