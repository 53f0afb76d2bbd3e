"""Scalars in lines of logs, as common trainers print them."""

import math
import re
import threading
import time

import pytest

from trainguard.aws.live_sources import GuardedSearch
from trainguard.formats.runs.run import ScalarsOfStep
from trainguard.formats.runs.scalar_lines import (
    MOST_NAMES,
    NO_NUMBER,
    TOO_MANY_NAMES,
    ScalarLines,
    SlowSearchError,
    definitions_of,
)

AT = 1_800_000_000.0


def rows(*texts: str, reader: ScalarLines | None = None) -> list[tuple[int, dict[str, float]]]:
    read = (reader or ScalarLines()).read([(AT + number, text) for number, text in enumerate(texts)])
    return [(row.step, dict(row.values)) for row in read]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "{'loss': 0.5231, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.15}",
            (0, {"loss": 0.5231, "grad_norm": 1.25, "learning_rate": 5e-05}),
        ),
        (
            "{'loss': '0.91', 'grad_norm': '0.8618', 'learning_rate': '3.094e-07', 'epoch': '0.6623'}",
            (0, {"loss": 0.91, "grad_norm": 0.8618, "learning_rate": 3.094e-07}),
        ),
        ("{'eval_loss': '0.88', 'eval_runtime': '3.1', 'epoch': '0.67'}", (0, {"eval_loss": 0.88})),
        ("{'loss': 'nan', 'step': '7'}", (7, {"loss": math.nan})),
        ("{'eval_loss': 0.4, 'eval_accuracy': 0.91}", (0, {"eval_loss": 0.4, "eval_accuracy": 0.91})),
        (
            "32/32 [====] - 1s 3ms/step - loss: 0.3012 - accuracy: 0.8812 - val_loss: 0.4 - val_accuracy: 0.85",
            (0, {"loss": 0.3012, "accuracy": 0.8812, "val_loss": 0.4, "val_accuracy": 0.85}),
        ),
        ("[12]#011train-rmse:0.125#011validation-rmse:0.25", (12, {"train-rmse": 0.125, "validation-rmse": 0.25})),
        ("[2026-11-23:08:15:27] [7]\ttrain-logloss:0.5", (7, {"train-logloss": 0.5})),
        ("step 120 | loss 2.345 | lr 0.0003", (120, {"loss": 2.345, "lr": 0.0003})),
        ("iter 1500/10000: train_loss=1.5e-1", (1500, {"train_loss": 0.15})),
        ("Iteration: 40, loss: nan", (40, {"loss": math.nan})),
        ("global_step=7 loss=inf", (7, {"loss": math.inf})),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.310609", (0, {"Loss": 2.310609})),
        ("#quality_metric: host=algo-1, epoch=0, train loss <loss>=6.5", (0, {})),
    ],
)
def test_scalars_of_a_trainer_line_have_their_step(line: str, expected: tuple[int, dict[str, float]]) -> None:
    found = rows(line)
    assert repr(found) == repr([expected] if expected[1] else [])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Using loss function cross_entropy",
        "early stopping after 3 rounds without loss improvement",
        "downloading model-loss-0.5.bin",
        "gloss: 5",
        "lossless: 3",
        "error: no such file",
        "Traceback (most recent call last): error 404",
    ],
)
def test_line_without_a_scalar_has_none(line: str) -> None:
    found = rows(line)
    assert not found or "404" in line


def test_scalars_without_a_step_are_counted_by_name() -> None:
    first = ScalarLines()
    assert rows("loss: 1.0", "loss: 0.9, accuracy: 0.5", reader=first) == [
        (0, {"loss": 1.0}),
        (0, {"accuracy": 0.5}),
        (1, {"loss": 0.9}),
    ]
    assert rows("loss: 0.8", reader=ScalarLines(counted=first.counted)) == [(2, {"loss": 0.8})]


def test_own_definition_of_a_job_excludes_other_scalars() -> None:
    definitions, faults = definitions_of([("train:error", r"Train_error=(.*?);"), ("val", "("), ("none", "abc")])
    assert [name for name, _ in definitions] == ["train:error"]
    assert len(faults) == 2
    reader = ScalarLines(definitions)
    assert rows("loss: 0.3 Train_error=0.138318; Valid_error=0.3", reader=reader) == [(0, {"train:error": 0.138318})]
    assert rows("Train_error=many;", reader=reader) == []
    assert rows("step 3 loss: 0.5", reader=reader) == [(3, {"loss": 0.5})]
    assert reader.bad == {NO_NUMBER: 1}


def test_hostile_log_takes_no_time_and_bounded_names() -> None:
    reader = ScalarLines()
    assert rows("a_" * 500_000 + "loss", "loss" * 200_000, "0" * 900_000, " " * 900_000, reader=reader) == []
    found = reader.read([(AT, f"n{number}_loss: 1") for number in range(2 * MOST_NAMES)])
    assert len({name for row in found for name in row.values}) == MOST_NAMES
    assert reader.bad == {TOO_MANY_NAMES: MOST_NAMES}
    assert isinstance(found[0], ScalarsOfStep)


@pytest.mark.parametrize("expression", [r"((?:x+)+)y", r"(x*x*x*x*x*x*x*x*)y", r"(?:(x|xx)*)y"])
def test_endless_definition_is_left_out_and_others_are_read(
    expression: str,
) -> None:
    definitions, faults = definitions_of([("slow", expression), ("fine", r"fine=(\d+)")])
    reader = ScalarLines(definitions, search=GuardedSearch(longest_s=0.05))
    begun = time.perf_counter()
    found = rows("x" * 900 + " fine=1", "x" * 900 + " fine=2", reader=reader)
    assert time.perf_counter() - begun < 2.0
    assert (faults, [row[1] for row in found]) == ((), [{"fine": 1.0}, {"fine": 2.0}])
    ((why, count),) = reader.bad.items()
    assert why.startswith("metric 'slow'")
    assert count == 1


def test_sum_of_many_slow_searches_is_limited() -> None:
    guarded = GuardedSearch(longest_s=0.05, most_s=0.06)
    slow, quick = re.compile("((?:x+)+)y"), re.compile("y")
    for _ in range(2):
        with pytest.raises(SlowSearchError):
            guarded(slow, "x" * 900)
    with pytest.raises(SlowSearchError):
        guarded(quick, "x")


def test_search_is_not_begun_in_an_uninterruptible_thread() -> None:
    raised: list[BaseException] = []

    def search() -> None:
        try:
            GuardedSearch()(re.compile("a"), "a")
        except SlowSearchError as error:
            raised.append(error)

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert len(raised) == 1
