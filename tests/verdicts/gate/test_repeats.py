"""The gate on 90 groups of published repeats: seldom a false alarm, and a slowdown is found where noise allows it."""

import pytest

from tests.verdicts.gate.trial import ALLOWS, answers, priors_without, spreads, trials
from trainguard.gate.noise import Answer
from trainguard.gate.runs import Metric

# A quiet system, one step a run, an evaluation between any two windows; and the noisiest of ten runs.
FEW = ("Dell/2xXE9712x4GB200/bert", "QCT/D74H-7U/rgat", "Oracle/2xBM.GPU.GB200.4/llama2_70b_lora")
NOISY = "Supermicro/SYS-821GE-TNHR/llama2_70b_lora"


def share(metric: Metric, baselines: int, slower: float, answer: Answer, *only: str) -> float:
    counted = answers(metric, list(trials(metric, baselines, slower=(slower,), only=only)))[slower]
    return counted[answer] / counted.total()


@pytest.mark.parametrize("group", FEW)
def test_repeats_pass_and_slower_ones_do_not(group: str) -> None:
    assert share(Metric.THROUGHPUT, 5, 0.0, Answer.REGRESSION, group) == 0.0
    assert share(Metric.THROUGHPUT, 5, 0.0, Answer.PASSED, group) >= 0.9
    assert share(Metric.THROUGHPUT, 5, 0.03, Answer.REGRESSION, group) == 1.0


def test_noise_that_hides_a_slowdown_is_inconclusive() -> None:
    assert share(Metric.THROUGHPUT, 5, 0.02, Answer.INCONCLUSIVE, NOISY) >= 0.6
    assert share(Metric.THROUGHPUT, 5, 0.0, Answer.REGRESSION, NOISY) == 0.0


@pytest.mark.verdicts
@pytest.mark.parametrize("without", [None, 0, -1], ids=["all", "submitter", "training"])
def test_goals_on_all_groups(without: int | None) -> None:
    metric = Metric.THROUGHPUT
    known = spreads(metric)
    found = list(trials(metric, 5, slower=(0.0, 0.02, 0.03)))
    priors = None if without is None else priors_without(metric, found, without)
    counted = answers(metric, found, priors)
    # A prior that other groups chose is a little less safe: 4 or 5 of 710 trials.
    alarms = 0.005 if without is None else 0.0075
    assert counted[0.0][Answer.REGRESSION] <= alarms * counted[0.0].total()
    assert counted[0.0][Answer.PASSED] >= 0.9 * counted[0.0].total()
    assert counted[0.02][Answer.REGRESSION] >= 0.88 * counted[0.02].total()
    assert counted[0.02][Answer.PASSED] <= 0.015 * counted[0.02].total()
    quiet = answers(metric, [each for each in found if known[each.group][0] <= ALLOWS], priors)
    assert quiet[0.02][Answer.REGRESSION] >= 0.9 * quiet[0.02].total()
    assert quiet[0.03][Answer.REGRESSION] >= 0.98 * quiet[0.03].total()
    assert counted[0.03][Answer.PASSED] == 0


@pytest.mark.verdicts
@pytest.mark.parametrize("baselines", [1, 2, 3])
def test_few_baselines_raise_few_false_alarms(baselines: int) -> None:
    counted = answers(Metric.THROUGHPUT, list(trials(Metric.THROUGHPUT, baselines, slower=(0.0, 0.05))))
    assert counted[0.0][Answer.REGRESSION] <= 0.012 * counted[0.0].total()
    assert counted[0.05][Answer.REGRESSION] >= 0.95 * counted[0.05].total()
