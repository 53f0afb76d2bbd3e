"""A broken training has the same verdict, whatever file its losses were written into."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.families.training.test_scalars import events
from tests.functional.local.test_scalar_files import place
from tests.support.small_job import START
from trainguard.core.finding import Severity
from trainguard.core.timestamps import iso_time
from trainguard.local.api import analyze

NAN = math.nan
RUNS = {
    "exploded": ([2.5, 2.4, 900.0, 4e4, 2e5, 800.0, *[3e4, 2e4] * 10], "training/TrainingDiverged", "exploded"),
    "lost": ([2.0 * 0.8**step for step in range(14)] + [1.9, 2.0] * 6, "training/TrainingDiverged", "lost"),
    "not finite": ([2.0 * 0.9**step for step in range(10)] + [NAN] * 16, "training/TrainingDiverged", "not finite"),
    "stands": ([2.3, 2.301, 2.299] * 9, "training/NotLearning", "stands"),
}


def table(losses: Sequence[float]) -> tuple[str, str | bytes]:
    return "metrics.csv", "step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in enumerate(losses))


def log(losses: Sequence[float]) -> tuple[str, str | bytes]:
    return "training.log", "step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in enumerate(losses))


def trainer_state(losses: Sequence[float]) -> tuple[str, str | bytes]:
    rows = [{"step": step, "loss": loss} for step, loss in enumerate(losses)]
    return "trainer_state.json", json.dumps({"log_history": rows})


def event_file(losses: Sequence[float]) -> tuple[str, str | bytes]:
    return "events.out.tfevents.1.host.1.0", events(dict(enumerate(losses)), "loss")


@pytest.mark.parametrize("written", [table, log, trainer_state, event_file])
@pytest.mark.parametrize("run", RUNS)
def test_broken_run_is_found_in_any_format(
    tmp_path: Path, run: str, written: Callable[[Sequence[float]], tuple[str, str | bytes]]
) -> None:
    losses, rule, kind = RUNS[run]
    report = analyze(place(tmp_path, dict([written(losses)])), time_lines=False)
    first = report.document.findings[0]
    assert (first.rule, first.finding_kind, first.severity) == (rule, kind, Severity.CRITICAL)


@pytest.mark.parametrize(("written", "known"), [(table, False), (trainer_state, False), (event_file, True)])
def test_broken_run_without_times_shows_no_time(
    tmp_path: Path, written: Callable[[Sequence[float]], tuple[str, str | bytes]], known: bool
) -> None:
    report = analyze(place(tmp_path, dict([written(RUNS["not finite"][0])])), time_lines=False)
    assert ("UTC" in report.verdict.health) is known
    if known:
        assert report.document.findings[0].episodes[0].start == iso_time(START + 10.0)
