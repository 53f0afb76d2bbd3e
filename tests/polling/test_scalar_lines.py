"""Scalars in lines of logs, as common trainers print them."""

import math
import re
import threading
import time

import pytest

from trainguard.aws.live_sources import GuardedSearch
from trainguard.formats.runs.scalar_lines import (
    MOST_NAMES,
    NO_NUMBER,
    TOO_MANY_NAMES,
    ScalarLines,
    SlowSearchError,
    definitions_of,
)
from trainguard.formats.tensors.scalars.rows import Recording

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
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.310609", (60_640, {"Loss": 2.310609})),
        (
            (
                " iteration      100/    1000 | consumed samples:   800 | elapsed time per iteration (ms): 430.0 | "
                "learning rate: 1.342E-04 | global batch size:     4 | lm loss: 7.399415E+00 | loss scale: 16384.0 | "
                "grad norm: 2.918 | number of skipped iterations:   1 | number of nan iterations:   2 |"
            ),
            (
                100,
                {
                    "learning_rate": 1.342e-04,
                    "lm_loss": 7.399415,
                    "loss_scale": 16384.0,
                    "grad_norm": 2.918,
                    "number_of_skipped_iterations": 1.0,
                    "number_of_nan_iterations": 2.0,
                },
            ),
        ),
        (
            (
                "[2024-08-15 21:12:21,408] [INFO] [logging.py:96:log_dist] [Rank 0] step=600, skipped=0, "
                "lr=[9.26e-05, 1e-4], mom=[(0.9, 0.999)]"
            ),
            (600, {"lr": 9.26e-05}),
        ),
        (
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4096, reducing to 2048",
            (0, {"loss_scale": 4096.0}),
        ),
        ("steps: 40 loss: 1.2001 iter time (s): 0.250 samples/sec: 64.0", (40, {"loss": 1.2001})),
        (
            (
                "[titan] 2026-01-16 02:43:35,918 - root - INFO - \x1b[31mstep: 100  \x1b[32mloss:  2.3367  "
                "\x1b[38;2;180;60;0mgrad_norm:  0.4648  \x1b[36mmemory: 69.83GiB(88.19%)  \x1b[34mtps: 42,332\x1b[39m"
            ),
            (100, {"loss": 2.3367, "grad_norm": 0.4648}),
        ),
        (
            (
                "Epoch 0:   5%|▌         | 3/62 [02:59<58:44,  0.02it/s, v_num=8-06, reduced_train_loss=6.930, "
                "lr=2.73e-5, global_step=2e+3, consumed_samples=32.00]"
            ),
            (2_000, {"reduced_train_loss": 6.93, "lr": 2.73e-05}),
        ),
        (
            "Epoch 2:  50%|█████     | 20/40 [00:31<00:00,  1.27it/s, loss=10.9, v_num=, train_loss_step=10.90]",
            (100, {"loss": 10.9, "train_loss_step": 10.9}),
        ),
        ("[10]\ttraining's l2: 0.48\tvalid_1's l2: 0.49", (10, {"train-l2": 0.48, "validation-l2": 0.49})),
        ("[10]\tvalid_0's auc: 0.7\tvalid_1's auc: 0.6", (10, {"valid_0-auc": 0.7, "valid_1-auc": 0.6})),
        ("[3]\ttrain-merror:0.3\teval-merror:0.4", (3, {"train-merror": 0.3, "eval-merror": 0.4})),
        (
            "6000:\tlearn: 0.1477715\ttest: 0.2766938\tbest: 0.2766897 (5997)\ttotal: 37m 5s\tremaining: 24m",
            (6_000, {"learn": 0.1477715, "test": 0.2766938}),
        ),
        (
            (
                '2021-03-08 12:31:36 | INFO | train_inner | {"epoch": 1, "update": 0.0, "loss": "16.475", '
                '"num_updates": "17", "lr": "2e-05", "gnorm": "20.751", "loss_scale": "4"}'
            ),
            (17, {"loss": 16.475, "lr": 2e-05, "gnorm": 20.751, "loss_scale": 4.0}),
        ),
        (
            "Epoch 3: train loss 0.5, val loss: 0.6, val acc: 0.7",
            (0, {"train_loss": 0.5, "val_loss": 0.6, "val_acc": 0.7}),
        ),
        (
            (
                "\x1b[1m32/32\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m1s\x1b[0m "
                "3ms/step - accuracy: 0.88 - loss: 0.3"
            ),
            (0, {"accuracy": 0.88, "loss": 0.3}),
        ),
        ("    train/CrossEntropyLoss=2.998", (0, {"train/CrossEntropyLoss": 2.998})),
        ("Epoch 3, trainloss 0.5, testacc 0.8", (0, {"trainloss": 0.5, "testacc": 0.8})),
        ("val Loss: 0.25 Acc: 0.75", (0, {"val_Loss": 0.25, "val_Acc": 0.75})),
        (
            "Test: [ 0/79]\tTime  4.2 (4.2)\tLoss 4.5e-01 (4.5e-01)\tAcc@1  90.5",
            (0, {"test_Loss": 0.45, "test_Acc@1": 90.5}),
        ),
        (
            "Test set: Average loss: 0.05, Accuracy: 9842/10000 (98%)",
            (0, {"test_Average_loss": 0.05, "test_Accuracy": 0.9842}),
        ),
        (
            "Epoch 1/20, Loss: 0.5, Val Loss: 0.25, Accuracy: 0.75",
            (0, {"Loss": 0.5, "Val_Loss": 0.25, "Accuracy": 0.75}),
        ),
        ("[Epoch 3/200] [Batch 45/938] [D loss: 0.5] [G loss: 1.5]", (45, {"D_loss": 0.5, "G_loss": 1.5})),
        (
            "| epoch   1 |   200/ 2928 batches | lr 5.00 | ms/batch 30.8 | loss  8.05 | ppl  3123.5",
            (3128, {"lr": 5.0, "loss": 8.05, "ppl": 3123.5}),
        ),
        (
            "Train - Loss: 0.5, Acc: 0.75 | Val - Loss: 0.25, Acc: 0.5",
            (0, {"Loss": 0.5, "Acc": 0.75, "val_Loss": 0.25, "val_Acc": 0.5}),
        ),
        ("Epoch(train)  [1][  50/1000]  lr: 1.0e-03  time: 0.5  loss: 0.75", (1050, {"lr": 0.001, "loss": 0.75})),
        ("Basic. Step: 2000. Mean Reward: 0.5. Std of Reward: 0.25.", (2000, {"Mean_Reward": 0.5})),
        ("12/32 [====>.....] - ETA: 1s - loss: 0.9", (0, {})),
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
    assert isinstance(found[0], Recording)


@pytest.mark.parametrize("expression", [r"((?:x+)+)y", r"(x*x*x*x*x*x*x*x*)y", r"(?:(x|xx)*)y"])
def test_endless_definition_is_left_out_and_others_are_read(
    expression: str,
) -> None:
    definitions, faults = definitions_of([("slow", expression), ("fine", r"fine=(\d+)")])
    reader = ScalarLines(definitions, search=GuardedSearch(longest_s=0.05))
    begun = time.process_time()
    found = rows("x" * 900 + " fine=1", "x" * 900 + " fine=2", reader=reader)
    assert time.process_time() - begun < 2.0
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
