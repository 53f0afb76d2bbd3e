"""Curves of several writers, and steps that count epochs, batches of an epoch, or both: on this machine."""

import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.families.training.test_scalars import events
from tests.functional.local.test_scalar_files import place, table
from tests.support.small_job import START
from tests.support.tensor_files import event, frame, simple_scalar
from trainguard.local.api import JobReport, analyze
from trainguard.report.training.digest import ScalarSeries

CALM = {step: 2.0 * math.exp(-step / 60) + 0.3 for step in range(300)}
OTHER = {step: value + 0.2 for step, value in CALM.items()}


def written(recorded: Iterable[tuple[str, int, float]]) -> bytes:
    """Return an event file with scalars in the order in which they were recorded."""
    return frame(event(b"", step=0, at=START)) + b"".join(
        frame(event(simple_scalar(tag, value), step=step, at=START + place))
        for place, (tag, step, value) in enumerate(recorded)
    )


def series_of(report: JobReport, name: str) -> ScalarSeries:
    assert report.document.training is not None
    return next(each for each in report.document.training.series if each.name == name)


def twice(share: int, apart: float) -> str:
    """Return a table in which each ``share``-th step has a second row."""
    head, *rows = table(CALM).splitlines()
    again = [f"\n{step},{CALM[step] + apart}" if step % share == 0 else "" for step in CALM]
    return "\n".join([head, *(row + more for row, more in zip(rows, again, strict=True))]) + "\n"


@pytest.mark.parametrize(
    ("body", "is_uncertain"),
    [(twice(1, 0.2), True), (twice(10, 0.2), True), (twice(1, 0.0), False), (twice(150, 0.2), False)],
    ids=["each step", "a tenth", "the same values", "two steps"],
)
def test_second_values_of_many_steps_give_no_all_clear(tmp_path: Path, body: str, is_uncertain: bool) -> None:
    report = analyze(place(tmp_path, {"metrics.csv": body}))
    assert report.document.healthy is not is_uncertain
    assert report.document.coverage[0].counters.get("uncertain_series", 0) == is_uncertain
    assert any("may mix several writers" in note for note in report.notes) is is_uncertain


@pytest.mark.parametrize(("values", "is_uncertain"), [(OTHER, True), (CALM, False)], ids=["other values", "the same"])
def test_two_writers_at_once_give_no_all_clear(tmp_path: Path, values: dict[int, float], is_uncertain: bool) -> None:
    files: dict[str, str | bytes] = {
        "events.out.tfevents.1.h": events(dict(CALM), "loss"),
        "events.out.tfevents.2.h": events(dict(values), "loss", at=START + 0.5),
    }
    report = analyze(place(tmp_path, files))
    assert report.document.healthy is not is_uncertain
    said = [note for note in report.notes if note.startswith("loss: at 300 of 300 steps events.out.tfevents.")]
    assert len(said) == is_uncertain


EPOCH = 100


def test_epochs_beside_batches_are_where_they_were_recorded(tmp_path: Path) -> None:
    def recorded() -> Iterable[tuple[str, int, float]]:
        for step in range(10 * EPOCH):
            yield "train/loss", step, 2.0 * math.exp(-step / 200) + 0.3
            if step % EPOCH == EPOCH - 1:
                yield "train/epoch_accuracy", step // EPOCH, 0.5 + step / (30 * EPOCH)
                yield "val/loss", step // EPOCH, 2.0 * math.exp(-step / 200) + 0.4

    report = analyze(place(tmp_path, {"events.out.tfevents.1.h": written(recorded())}))
    assert {"late", "scalars_out_of_order", "uncertain_series"}.isdisjoint(report.document.coverage[0].counters)
    assert series_of(report, "train/loss").seen == 10 * EPOCH
    for name in ("train/epoch_accuracy", "val/loss"):
        assert (series_of(report, name).seen, series_of(report, name).steps[-1]) == (10, 10 * EPOCH - 1)


@pytest.mark.parametrize("begin", [0, 1])
def test_batches_that_begin_again_each_epoch_follow(tmp_path: Path, begin: int) -> None:
    def recorded() -> Iterable[tuple[str, int, float]]:
        for step in range(8 * EPOCH):
            yield "loss", begin + step % EPOCH, 2.0 * math.exp(-step / 150) + 0.3
            yield "lr", begin + step % EPOCH, 0.1

    report = analyze(place(tmp_path, {"events.out.tfevents.1.h": written(recorded())}))
    assert report.document.coverage[0].counters == {}
    series = series_of(report, "loss")
    assert series.seen == 8 * EPOCH
    assert series.steps[-1] + series.counts[-1] == begin + 8 * EPOCH


def test_folds_that_begin_again_are_segments(tmp_path: Path) -> None:
    recorded = [("loss", step, 2.0 * math.exp(-step / 30) + 0.3) for _ in range(5) for step in range(EPOCH)]
    report = analyze(place(tmp_path, {"events.out.tfevents.1.h": written(recorded)}))
    assert series_of(report, "loss").seen == EPOCH
    assert report.document.coverage[0].counters == {"overwritten_scalars": 4 * EPOCH}
