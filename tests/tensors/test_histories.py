"""Histories of training as people leave them: encodings, numerals, what counts the steps, lines of JSON, logs."""

import math

import pytest

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.tensors.scalars.log_lines import is_training_log
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.taken_rows import TakenRows
from trainguard.formats.tensors.scalars.trainer_files import is_history, read_history

Rows = list[tuple[int, dict[str, float]]]


def rows_of(taken: TakenRows) -> Rows:
    return [(row.step, dict(row.values)) for row in taken.rows.between(0, len(taken.rows), 0.0)]


def rows(text: str | bytes, name: str = "history.csv") -> Rows:
    taken = read_history(name, text if isinstance(text, bytes) else text.encode())
    assert (taken.bad, taken.why) == (0, None)
    return rows_of(taken)


PLAIN = "epoch,loss,val_loss\n0,2.5,3.25\n1,0.5,1e-3\n2,nan,-0.125\n"
ROWS: Rows = [(0, {"loss": 2.5, "val_loss": 3.25}), (1, {"loss": 0.5, "val_loss": 1e-3})]


@pytest.mark.parametrize(
    "body",
    [
        PLAIN.encode("utf-8-sig"),
        PLAIN.encode("utf-16"),
        PLAIN.encode("utf-16-le"),
        PLAIN.encode("utf-16-be"),
        PLAIN.encode("utf-32"),
        PLAIN.replace("\n", "\r").encode(),
        PLAIN.replace("\n", "\r\n").encode("utf-16"),
        PLAIN.replace(",", ";").encode(),
        PLAIN.replace(",", "\t").encode(),
        PLAIN.replace(",", "  ").encode(),
        PLAIN.replace(",", ";").replace(".", ",").encode(),
        PLAIN.replace(",", "\t").replace(".", ",").encode("utf-16"),
        ("sep=;\r\n" + PLAIN.replace(",", ";")).encode(),
        ("\n\n# made by a person\n" + PLAIN).encode(),
        ("# " + PLAIN).encode(),
        PLAIN.replace("-0.125", '"-0,125"')
        .replace("2.5", '"2,5"')
        .replace("3.25", '"3,25"')
        .replace("0.5", '"0,5"')
        .encode(),
        PLAIN.replace("0.5", "'0.5'").replace("3.25", '"3.25"').encode(),
        PLAIN.replace("0.5", "\"tensor(0.5, device='cuda:0')\"").encode(),
        PLAIN.replace("nan", "-1.#IND").encode(),
        PLAIN.replace("1,0.5", "epoch,loss,val_loss\n1,0.5").encode(),
        PLAIN.replace("\n", ",\n").encode(),
        PLAIN.replace("\n0,", ",Qualität\n0,").replace("3.25", "3.25,ü").encode("cp1252"),
    ],
)
def test_same_history_is_read_however_it_is_written(body: bytes) -> None:
    found = rows(body)
    assert found[:2] == ROWS
    assert found[2][0] == 2
    assert math.isnan(found[2][1]["loss"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("step;loss\n1;1.234,5\n2;0,25\n", [1_234.5, 0.25]),
        ('step,loss\n1,"1,234.5"\n2,0.25\n', [1_234.5, 0.25]),
        ("step;loss\n1;1,234\n2;0,250\n3;0,1\n", [1.234, 0.25, 0.1]),
        ("step,loss\n1,92.5%\n2,1E+2\n", [92.5, 100.0]),
    ],
)
def test_numbers_mean_what_the_whole_table_shows(body: str, expected: list[float]) -> None:
    assert [values["loss"] for _, values in rows(body)] == expected


@pytest.mark.parametrize(
    ("header", "row", "step"),
    [
        ("rollout/return,total/steps,total/epochs", "1,{step},0", 7_000),
        ("reward,misc/total_timesteps,loss", "1,{step},2", 7_000),
        ("timesteps_total,training_iteration,loss", "{step},1,2", 7_000),
        ("training_iteration,loss", "{step},2", 3),
        ("episode,loss", "{step},2", 3),
        (",loss,val_loss", "{step},2,3", 3),
        ("Unnamed: 0,loss", "{step},2", 3),
        ("iter\tRMSE", "{step}\t2", 3),
    ],
)
def test_column_that_counts_is_found(header: str, row: str, step: int) -> None:
    assert [each for each, _ in rows(f"{header}\n{row.format(step=step)}\n{row.format(step=2 * step)}\n")] == [
        step,
        2 * step,
    ]


def test_row_is_a_step_where_no_column_counts_them() -> None:
    assert rows("loss,val_loss\n0.5,0.6\n0.4,0.5\n") == [
        (0, {"loss": 0.5, "val_loss": 0.6}),
        (1, {"loss": 0.4, "val_loss": 0.5}),
    ]
    assert [step for step, _ in rows("epoch,loss\n0.25,1\n0.5,2\n0.75,3\n")] == [0, 1, 2]
    assert [step for step, _ in rows('"loss" "acc"\n"1" 0.5 0.1\n"2" 0.4 0.2\n')] == [1, 2]


@pytest.mark.parametrize("first", [0, 1])
def test_epoch_and_batch_are_one_position(first: int) -> None:
    body = "".join(f"{epoch},{batch},{epoch + batch / 10}\n" for epoch in range(3) for batch in range(first, 4 + first))
    assert [step for step, _ in rows(f"epoch,batch,loss\n{body}")][:5] == [
        first,
        first + 1,
        first + 2,
        first + 3,
        4 + 2 * first,
    ]
    assert len({step for step, _ in rows(f"epoch,batch,loss\n{body}")}) == 12
    again = "".join(f"1,{batch},9\n" for batch in range(first, 2 + first))
    steps = [step for step, _ in rows(f"epoch,batch,loss\n{body}{again}")]
    assert steps[12:] == steps[4:6]
    whole = "".join(f"{step // 4},{step},1\n" for step in range(12))
    assert [step for step, _ in rows(f"epoch,step,loss\n{whole}")] == list(range(12))


def test_what_is_unreadable_is_counted_by_kind_and_named() -> None:
    body = b"step,loss,note\n1,0.5,a\n2,oops,b\n3,,c\nx,0.4,d\n5,0.3,e,7\n6,0.2,f\n"
    taken = read_history("history.csv", body)
    assert [step for step, _ in rows_of(taken)] == [1, 6]
    assert (taken.bad_lines, taken.bad_cells) == (2, 1)
    assert taken.why == "line 3: 'oops' in column 'loss' is no number"


def test_lines_of_json_are_read() -> None:
    body = (
        b'{"config": {"lr": 0.1}, "seed": 1}\n{"iteration": 19, "total_loss": "0.5", "val": {"acc": 0.25}}\n'
        b'{"iteration": 39, "total_loss": NaN}\n\n{"iteration": 59, "total_loss": 0.25\n[1]\n'
    )
    assert is_history(body, ScalarNames())
    taken = read_history("metrics.json", body)
    found = rows_of(taken)
    assert found[0] == (19, {"total_loss": 0.5, "val/acc": 0.25})
    assert math.isnan(found[1][1]["total_loss"])
    assert (len(found), taken.bad_lines) == (2, 2)
    assert taken.why is not None
    assert taken.why.startswith("line 5 is no object of JSON")
    assert rows('{"loss": 0.5}\n{"loss": 0.25}\n', "x.jsonl") == [(0, {"loss": 0.5}), (1, {"loss": 0.25})]


@pytest.mark.parametrize(
    "document",
    [
        '{"loss": [0.5, 0.25], "val_acc": [0.1, 0.2], "params": {"epochs": 2}}',
        '[{"epoch": 0, "loss": 0.5, "val_acc": 0.1}, {"epoch": 1, "loss": 0.25, "val_acc": 0.2}]',
        '{\n "history": [\n {"loss": 0.5, "val_acc": 0.1},\n {"loss": "0.25", "val_acc": 0.2}]}',
    ],
)
def test_one_document_of_json_is_read(document: str) -> None:
    assert is_history(document.encode(), ScalarNames())
    assert rows(document, "history.json") == [(0, {"loss": 0.5, "val_acc": 0.1}), (1, {"loss": 0.25, "val_acc": 0.2})]


LOG = """\
using world size: 8, seed 7
INFO starting, seed 7
 iteration       20/    1000 | consumed samples: 80 | lm loss: 7.5E+00 | loss scale: 1.0 | grad norm: 2.5 |
 validation loss at iteration 20 | lm loss value: 6.5E+00 | lm loss PPL: 6.6E+02 |
 iteration       40/    1000 | consumed samples: 160 | lm loss: 7.0E+00 | loss scale: 1.0 | grad norm: 2.0 |
"""


def test_log_of_a_trainer_is_read() -> None:
    assert is_training_log((LOG + LOG).encode())
    found = rows(LOG, "train.log")
    assert found[0] == (20, {"lm_loss": 7.5, "loss_scale": 1.0, "grad_norm": 2.5})
    assert found[1] == (20, {"validation_lm_loss": 6.5})
    assert found[-1] == (40, {"lm_loss": 7.0, "loss_scale": 1.0, "grad_norm": 2.0})


def test_tables_in_a_log_are_read() -> None:
    head = "epoch     train_loss  valid_loss  accuracy  time    \n"
    fastai = f"{head}0         0.5    0.4   0.75  00:12     \n1     0.25  0.3   0.8  00:11\n"
    assert rows(f"starting\n{fastai}", "x.log") == [
        (0, {"train_loss": 0.5, "valid_loss": 0.4, "accuracy": 0.75}),
        (1, {"train_loss": 0.25, "valid_loss": 0.3, "accuracy": 0.8}),
    ]
    head = "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n"
    yolo = "".join(
        f"{head}        {n}/3      8.87G      0.{n}      1.{n}       22        640: 100%|#| 4/4\n" for n in (1, 2, 3)
    )
    assert is_training_log(yolo.encode())
    assert rows(f"YOLO\n{yolo}", "x.log")[0] == (1, {"box_loss": 0.1, "cls_loss": 1.1})


def test_lines_of_a_log_without_steps_are_placed() -> None:
    hugging_face = (
        "{'loss': '0.9', 'epoch': '0.5'}\n{'loss': '0.8', 'epoch': '1.0'}\n{'eval_loss': 0.7, 'epoch': 1.0}\n"
    )
    assert rows(hugging_face, "x.log") == [(0, {"loss": 0.9}), (1, {"loss": 0.8}), (2, {"eval_loss": 0.7})]
    epochs = "Epoch 3: loss=0.5\nEpoch 3: val_loss=0.6\nEpoch 4: loss=0.4\n"
    assert rows(epochs, "x.log") == [(3, {"loss": 0.5}), (3, {"val_loss": 0.6}), (4, {"loss": 0.4})]
    mixed = "step 10 loss 0.5\nval_loss: 0.7\nstep 20 loss 0.4\n"
    assert rows(mixed, "x.log") == [(10, {"loss": 0.5}), (10, {"val_loss": 0.7}), (20, {"loss": 0.4})]


def test_values_below_a_heading_have_its_position() -> None:
    tutorial = "".join(
        f"Epoch {epoch}/2\n{'-' * 10}\ntrain Loss: 0.{epoch + 1} Acc: 0.5\nval Loss: 0.5 Acc: 0.75\n\n"
        for epoch in range(3)
    )
    assert rows(tutorial, "x.log")[2:4] == [
        (1, {"train_Loss": 0.2, "Acc": 0.5}),
        (1, {"val_Loss": 0.5, "val_Acc": 0.75}),
    ]
    blocks = "".join(
        f"2026-01-03 10:00:0{step}\tnode:0\ttrain:9\tINFO\t[step={10 * step}/90,epoch=0]\n"
        f"    optim/total_grad_norm=0.5\n    train/CrossEntropyLoss=2.{step}\n"
        for step in range(1, 4)
    )
    assert rows(blocks, "x.log")[:2] == [(10, {"optim/total_grad_norm": 0.5}), (10, {"train/CrossEntropyLoss": 2.1})]


def test_heading_above_a_repeated_scalar_places_nothing() -> None:
    batches = "".join(f"Epoch {epoch}\nloss: 0.{epoch}\nloss: 0.5\n" for epoch in (1, 2))
    assert [step for step, _ in rows(batches, "x.log")] == [0, 1, 2, 3]


def test_boxes_of_agents_are_read_at_their_steps() -> None:
    frame = "-" * 30
    boxes = "".join(
        f"{frame}\n| rollout/           |      |\n|    ep_rew_mean     | 2{turn}.5 |\n| time/              |      |\n"
        f"|    total_timesteps | {2048 * turn} |\n| train/             |      |\n|    loss            | 0.5  |\n"
        f"{frame}\n"
        for turn in (1, 2, 3)
    )
    assert is_training_log(boxes.encode())
    assert rows(boxes, "x.log")[:2] == [
        (2048, {"rollout/ep_rew_mean": 21.5, "train/loss": 0.5}),
        (4096, {"rollout/ep_rew_mean": 22.5, "train/loss": 0.5}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HTTP error 404\nretry 3\n" * 5,
        "the best loss: 0.5\nthe best loss: 0.4 with lr 3\n",
        "model,accuracy,loss\nresnet,0.7,1\nvit,0.8,1\n",
        "time,host\n1,a\n",
        '{"loss": 1, "name": "x"}',
        '[{"text": "a loss", "tokens": 7}]',
        '{"a": 1}\n{"a": 2}\n',
    ],
)
def test_text_that_is_no_history_is_passed_over(text: str) -> None:
    assert not is_history(text.encode(), ScalarNames())
    assert not is_training_log(text.encode())


def test_table_of_other_things_is_refused() -> None:
    with pytest.raises(TelemetryFormatError, match="column 'model' holds texts, expected a step or epoch"):
        read_history("log.csv", b"model,accuracy\nresnet,0.7\nvit,0.8\n")


def _ppo(updates: range, *, beside: str = "") -> str:
    return "".join(
        f"{update},{beside}{1 + update / 500},{-0.001 * (update % 7)},{0.2 / update},{11 - update / 50},"
        f"{0.008 + 0.001 * (update % 3)},{20 + update / 100},{11_800 + update % 5}\n"
        for update in updates
    )


_COLUMNS = "update,reward,pg_loss,v_loss,entropy,kl,ep_len,sps\n"


@pytest.mark.parametrize(
    "others",
    [
        pytest.param(_ppo(range(10, 200, 10), beside="0.3,"), id="one more column"),
        pytest.param("".join(f"{line.partition(',')[2]}\n" for line in _ppo(range(10, 200, 10)).split()), id="less"),
        pytest.param(
            "".join(
                f"{line.rpartition(',')[0].replace(',', ',0.05,', 1)}\n" for line in _ppo(range(10, 200, 10)).split()
            ),
            id="as many",
        ),
    ],
)
def test_rows_of_other_columns_are_counted_not_taken(others: str) -> None:
    taken = read_history("metrics.csv", (_COLUMNS + _ppo(range(10, 300, 10)) + others).encode())
    assert rows_of(taken) == rows(_COLUMNS + _ppo(range(10, 300, 10)))
    assert taken.bad_lines == 19
    assert "line 31" in str(taken.why)


@pytest.mark.parametrize("again", [range(150, 600, 10), range(10, 300, 10), range(300, 600, 10)])
def test_rows_of_a_restart_are_of_the_same_columns(again: range) -> None:
    found = rows(_COLUMNS + _ppo(range(10, 300, 10)) + _ppo(again))
    assert len(found) == 29 + len(again)


def test_loss_that_begins_anew_is_of_the_same_column() -> None:
    text = "step,loss,lr\n" + "".join(f"{step},{0.001 + step / 1e6},1e-5\n" for step in range(0, 50, 10))
    assert rows(text + "0,9.5,0.1\n10,9.1,0.1\n")[-2:] == [
        (0, {"loss": 9.5, "lr": 0.1}),
        (10, {"loss": 9.1, "lr": 0.1}),
    ]


def test_names_in_a_later_line_are_those_of_rows_below_it() -> None:
    text = "loss,acc\n2.5,0.1\n2.0,0.2\nacc,lr,loss\n0.3,0.01,1.5\n"
    with_steps = "step,loss,acc\n0,2.5,0.1\n1,2.0,0.2\nacc,lr,loss,step\n0.3,0.01,1.5,2\n"
    assert rows(text)[-1] == rows(with_steps)[-1] == (2, {"acc": 0.3, "lr": 0.01, "loss": 1.5})


def test_short_row_that_goes_on_is_taken() -> None:
    text = "step,loss,val_loss\n" + "".join(f"{step},{2 - step / 10}\n" for step in range(1, 5)) + "5,1.5,1.75\n6,1.4\n"
    assert rows(text)[-2:] == [(5, {"loss": 1.5, "val_loss": 1.75}), (6, {"loss": 1.4})]


MONITOR = (
    '#{"t_start": 1700000000.1, "env_id": "CartPole-v1"}\nr,l,t,is_success\n-21.5,20,0.5,False\n9.5,23,1.25,True\n'
)


def test_episodes_of_a_monitor_have_a_reward() -> None:
    assert is_history(MONITOR.encode(), ScalarNames())
    assert rows(MONITOR, "0.monitor.csv") == [
        (0, {"episode_reward": -21.5, "episode_length": 20.0, "time_elapsed": 0.5}),
        (1, {"episode_reward": 9.5, "episode_length": 23.0, "time_elapsed": 1.25}),
    ]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("run-baseline-tag-loss.csv", "loss"),
        ("run-.-tag-train_loss (1).csv", "train_loss"),
        ("run-fold_1_validation-tag-epoch_loss.csv", "validation/epoch_loss"),
        ("logs/run-Loss_val-tag-Loss.csv/metrics.csv", "val/Loss"),
        ("mean_reward.csv", "mean_reward"),
    ],
)
def test_download_of_tensorboard_has_its_tag_in_its_name(file: str, name: str) -> None:
    text = "Wall time,Step,Value\n1700000000.5,10,2.5\n1700000001.5,20,1.5\n"
    assert is_history(text.encode(), ScalarNames())
    assert rows(text, file) == [(10, {name: 2.5}), (20, {name: 1.5})]


def test_table_with_a_line_a_value_has_a_row_a_step() -> None:
    by_step = "run_id,key,value,step,timestamp\na,loss,2.5,0,17\na,acc,0.5,0,17\na,loss,1.5,1,18\na,acc,0.75,1,18\n"
    by_key = "step,tag,value\n0,loss,2.5\n1,loss,1.5\n0,acc,0.5\n1,acc,0.75\n"
    expected = [(0, {"loss": 2.5, "acc": 0.5}), (1, {"loss": 1.5, "acc": 0.75})]
    assert is_history(by_step.encode(), ScalarNames())
    assert is_history(by_key.encode(), ScalarNames())
    assert rows(by_step) == rows(by_key) == expected


def test_values_after_a_restart_stay_in_their_order() -> None:
    found = rows("key,value,step\nloss,2.5,0\nloss,1.5,1\nloss,9.5,0\nloss,8.5,1\n")
    assert found == [(0, {"loss": 2.5}), (1, {"loss": 1.5}), (0, {"loss": 9.5}), (1, {"loss": 8.5})]


def test_what_is_no_value_of_the_first_run_is_named() -> None:
    text = "run_uuid,key,value,step,is_nan\na,loss,2.5,0,0\na,loss,0.0,1,1\na,acc,good,1,0\nb,loss,7.5,2,0\n"
    taken = read_history("metrics.csv", text.encode())
    (first, second) = rows_of(taken)
    assert first == (0, {"loss": 2.5})
    assert math.isnan(second[1]["loss"])
    assert taken.bad_lines == 2
    assert taken.why == "line 4: 'acc' has 'good' at step '1', expected a name and two numbers"


def test_wide_table_with_a_column_value_stays_wide() -> None:
    assert rows("step,loss,value,name\n1,2.5,0.5,a\n2,1.5,0.25,b\n")[0] == (1, {"loss": 2.5, "value": 0.5})


TRANSLATED = """\
================ Training Loss (Sat Nov 28 12:00:00 2026) ================
(epoch: 1, iters: 100, time: 0.123, data: 0.002) G_GAN: 0.812 G_L1: 20.1 D_real: 0.501 D_fake: nan lr: 0.0002
[Rank 0] (epoch: 1, iters: 200, time: 0.1, data: 0.0) , G_GAN: 0.9, D_real: 5.1e-1
(epoch: 2, iters: 100, time: 0.1, data: 0.0) G_GAN: 0.7
"""


def test_losses_of_two_networks_are_read_from_a_log() -> None:
    found = rows(TRANSLATED, "loss_log.txt")
    assert [step for step, _ in found] == [100, 200, 301]
    assert found[0][1].keys() == {"loss_G_GAN", "loss_G_L1", "loss_D_real", "loss_D_fake", "lr"}
    assert found[1][1] == {"loss_G_GAN": 0.9, "loss_D_real": 0.51}
    assert is_training_log("\n".join(TRANSLATED.splitlines()[1:]).encode())
