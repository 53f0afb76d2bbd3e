"""What counts as named, as false and as overstated."""

import pytest

from tests.verdicts.real_runs.labels import labels
from tests.verdicts.real_runs.page import BEGIN, END, PAGE, with_table
from tests.verdicts.real_runs.product import Finding, Said
from tests.verdicts.real_runs.scoring import Score, is_to_be_named, score, totals

TOO_LITTLE = "No verdict: GPUMemoryIncrease and BatchSize had too little data for a verdict."


def said(*findings: Finding, level: str = "unhealthy", verdict: str = TOO_LITTLE) -> Said:
    """Return what a product says that has made these findings."""
    return Said(findings, level, (verdict,), (), {})


def low_gpus(text: str = "gpu2 is idle.", wasted_percent: float | None = 80.0) -> Finding:
    """Return a finding of a run's GPUs."""
    return Finding("LowGPUUtilization", text, wasted_percent)


def judged(run: str, what: Said) -> Score:
    """Hold what was said against the run's label."""
    return score(labels()[run], what)


def test_wasted_run_with_a_permitted_first_rule_is_named() -> None:
    found = judged("r34", said(low_gpus(), Finding("LoadBalancing", "gpu2 does less.", 50.0)))
    assert found.named
    assert found.false == ()


def test_wasted_run_with_another_first_rule_is_not_named() -> None:
    assert not judged("r34", said(Finding("StepOutlier", "steps", None), low_gpus())).named
    assert not judged("r34", said(level="unknown")).named


@pytest.mark.parametrize(
    ("run", "what", "begins"),
    [
        ("r34", said(Finding("IOBottleneck", "x", None)), "Cores wait for storage"),
        ("r18", said(Finding("BatchSize", "x", None)), "The batch is too small: cores"),
        ("r12", said(low_gpus("Raise the batch size.")), "The batch is too small, or"),
        ("r18", said(low_gpus("never used: no GPU of algo-1 was used in 25 min.")), "No GPU of the node"),
        ("r02", said(low_gpus(wasted_percent=1.0)), "The GPUs are under-used"),
        ("r10", said(level="healthy"), "The job is healthy"),
        ("r34", said(low_gpus(wasted_percent=95.0)), "LowGPUUtilization says that 95 % are wasted; at most 89 % are."),
    ],
)
def test_given_what_a_label_forbids_when_said_then_it_is_false(run: str, what: Said, begins: str) -> None:
    (sentence,) = judged(run, what).false
    assert sentence.startswith(begins)


def test_job_is_named_if_each_of_its_runs_is() -> None:
    silent = said(level="unknown")
    runs = dict.fromkeys(labels(), silent) | {run: said(low_gpus()) for run in ("r02", "r10", "r11", "r18", "r34")}
    sums = totals([judged(run, what) for run, what in runs.items()])
    assert (sums.wasted_named, sums.jobs_named, sums.healthy_fired, sums.unwanted) == (4, 2, 1, 1)
    assert sums.wasted == sum(is_to_be_named(label) for label in labels().values())


def test_page_has_all_runs_once_and_keeps_the_rest() -> None:
    page = PAGE.read_text("utf-8")
    scores = [judged(run, said(low_gpus("a | b"))) for run in labels()]
    once = with_table(page, scores)
    assert with_table(once, scores) == once
    assert (once.partition(BEGIN)[0], once.partition(END)[2]) == (page.partition(BEGIN)[0], page.partition(END)[2])
    written = once.partition(BEGIN)[2].partition(END)[0]
    assert [line[2:5] for line in written.splitlines() if line.startswith("| r")][1:] == list(labels())
    with pytest.raises(ValueError, match="has no line"):
        with_table(page.replace(END, ""), scores)
