"""Files that trainers leave, what the names in them mean, and the steps that come of them."""

import json
import math
from contextlib import suppress

import msgspec
import pytest
from hypothesis import strategies as st

from tests.support.fuzzing import damaged, search, short_and_long
from tests.support.run_folder import MemoryFiles
from tests.support.scalar_reading import ScalarReading, read_sources, scalar_steps
from tests.support.tensor_files import NOW, event, frame, simple_scalar
from trainguard.core.errors import RunMissingError, TelemetryFormatError, TensorMissingError
from trainguard.formats.tensors.name_patterns import NamePatternError
from trainguard.formats.tensors.scalars.names import ScalarNames, match_scalar_file
from trainguard.formats.tensors.scalars.rows import (
    MOST_PAST_ROWS,
    MOST_SCALARS,
    MOST_SOURCES,
    Recording,
    ScalarHistory,
    ScalarRow,
    ScalarRows,
    in_order,
)
from trainguard.formats.tensors.scalars.step import ScalarStep
from trainguard.formats.tensors.scalars.trainer_files import MAX_FILE_BYTES, read_history, read_trainer_state
from trainguard.formats.tensors.step_view import Mode

STATE = json.dumps(
    {
        "global_step": 20,
        "log_history": [
            {"epoch": 0.5, "grad_norm": 1.25, "learning_rate": 5e-05, "loss": 2.5, "step": 10},
            {"epoch": 0.5, "eval_accuracy": 0.5, "eval_loss": 2.25, "eval_runtime": 3.1, "step": 10},
            {"epoch": 1.0, "grad_norm": math.nan, "learning_rate": 0.0, "loss": math.nan, "step": 20},
            {"epoch": 1.0, "step": 20, "total_flos": 1e15, "train_loss": 2.0, "train_runtime": 60.0},
        ],
    }
).encode()
LIGHTNING = (
    b"epoch,lr-Adam,step,train_loss,val_acc,val_loss\n"
    b"0,0.001,9,,,\n0,,9,0.5,,\n0,,9,,0.75,0.625\n1,,19,0.25,,\n1,,19,,0.875,nan\n"
)
KERAS = b"epoch;accuracy;loss;val_accuracy;val_loss\n0;0.5;1.5;0.25;1.75\n1;0.75;1.25;NA;[1.0, 2.0]\n2;0.7"

Steps = list[tuple[int, Mode, dict[str, float]]]


def read(names: ScalarNames | None = None, **content: bytes) -> tuple[Steps, ScalarReading]:
    """Read files that are called by their names with ``/`` and ``.`` as ``__`` and ``_dot_``."""
    by_name = {name.replace("__", "/").replace("_dot_", "."): body for name, body in content.items()}
    found = [(file, NOW) for name in sorted(by_name) if (file := match_scalar_file(name)) is not None]
    reading = read_sources(MemoryFiles(by_name), found, names or ScalarNames())
    return [(row.step, row.mode, row.values) for row in reading.rows], reading


def test_hugging_face() -> None:
    steps, reading = read(checkpoint_20__trainer_state_dot_json=STATE)
    assert reading.bad == {}
    assert [(step, mode) for step, mode, _ in steps] == [(10, Mode.TRAIN), (10, Mode.EVAL), (20, Mode.TRAIN)]
    assert steps[0][2] == {"grad_norm": 1.25, "learning_rate": 5e-05, "loss": 2.5}
    assert steps[1][2] == {"eval_accuracy": 0.5, "eval_loss": 2.25}
    assert math.isnan(steps[2][2]["loss"])
    assert steps[2][2].keys() == {"grad_norm", "learning_rate", "loss"}


def test_lightning() -> None:
    steps, reading = read(lightning_logs__version_0__metrics_dot_csv=LIGHTNING)
    assert reading.bad == {}
    assert steps[:3] == [
        (9, Mode.TRAIN, {"lr-Adam": 0.001, "train_loss": 0.5}),
        (9, Mode.EVAL, {"val_acc": 0.75, "val_loss": 0.625}),
        (19, Mode.TRAIN, {"train_loss": 0.25}),
    ]
    assert math.isnan(steps[3][2]["val_loss"])


def test_keras() -> None:
    steps, reading = read(training_dot_csv=KERAS)
    assert reading.bad == {"training.csv": (1, "line 3: '[1.0, 2.0]' in column 'val_loss' is no number")}
    assert steps == [
        (0, Mode.TRAIN, {"accuracy": 0.5, "loss": 1.5}),
        (0, Mode.EVAL, {"val_accuracy": 0.25, "val_loss": 1.75}),
        (1, Mode.TRAIN, {"accuracy": 0.75, "loss": 1.25}),
    ]


def test_folders_of_events_give_the_modes() -> None:
    def events(*values: float) -> bytes:
        return b"".join(
            frame(event(simple_scalar("epoch_loss", value), step=step, at=NOW + step))
            for step, value in enumerate(values)
        )

    steps, _ = read(train__events_tfevents=events(2.0, 1.0), validation__events_tfevents=events(3.0, 2.5))
    assert steps == [
        (0, Mode.TRAIN, {"epoch_loss": 2.0}),
        (0, Mode.EVAL, {"epoch_loss": 3.0}),
        (1, Mode.TRAIN, {"epoch_loss": 1.0}),
        (1, Mode.EVAL, {"epoch_loss": 2.5}),
    ]
    steps, _ = read(runs__a__events_tfevents=events(2.0), runs__b__events_tfevents=events(3.0))
    assert steps == [(0, Mode.TRAIN, {"runs/a/epoch_loss": 2.0, "runs/b/epoch_loss": 3.0})]


def test_names_of_xgboost_have_no_mode() -> None:
    body = b"step,train-rmse,validation-rmse,validation-auc\n0,1.5,2.5,0.5\n"
    steps, _ = read(metrics_dot_csv=body)
    assert steps == [(0, Mode.GLOBAL, {"train-rmse": 1.5, "validation-rmse": 2.5, "validation-auc": 0.5})]
    step = ScalarStep(ScalarRow(0, Mode.GLOBAL, NOW, steps[0][2]), ScalarNames())
    assert step.members("losses") == {"train-rmse", "validation-rmse"}
    assert step.members("metrics") == {"train-rmse", "validation-rmse", "validation-auc"}


MEANINGS = {
    "losses": ["loss", "train_loss", "Loss/train", "val_loss", "epoch_loss", "loss_ce", "cross_entropy", "train/nll"],
    "metrics": ["accuracy", "val_acc", "train/top_f1", "eval_rouge1", "epoch_categorical_accuracy", "val/mAP", "ppl"],
    "learning_rate": ["lr", "learning_rate", "lr-AdamW/pg1", "train/learning_rate", "epoch_lr"],
    "gradient_norm": ["grad_norm", "train/grad_norm", "grad_2.0_norm_total", "gradient_norm", "Gradients/norm"],
}
NONE = ["loss_scale", "loss_scaler", "epoch_time", "color", "accelerator", "weight_norm", "steps", "value"]


def test_what_names_mean() -> None:
    names = ScalarNames()
    everything = [name for group in MEANINGS.values() for name in group] + NONE
    for meaning, group in MEANINGS.items():
        assert names.members(meaning, everything) == set(group)
    evaluation = [name for name in everything if names.mode(name) is Mode.EVAL]
    assert evaluation == ["val_loss", "val_acc", "eval_rouge1", "val/mAP"]
    assert names.mode("value_loss") is Mode.TRAIN
    ignored = ["epoch", "batch_loss", "evaluation_loss_vs_iterations", "eval_runtime", "train/train_loss", "total_flos"]
    assert [names.mode(name) for name in ignored] == [None] * len(ignored)


def test_a_setting_replaces_a_meaning() -> None:
    names = ScalarNames({"losses": "^cost$", "evaluation": "^held_out"})
    assert names.members("losses", ["cost", "loss"]) == {"cost"}
    assert names.mode("held_out_cost") is Mode.EVAL
    assert names.mode("val_loss") is Mode.TRAIN
    with pytest.raises(NamePatternError, match="'lost' is no meaning of a name, expected one of losses"):
        ScalarNames({"lost": "x"})
    with pytest.raises(NamePatternError, match=r"losses is '\('"):
        ScalarNames({"losses": "("})


def test_files_of_scalars_by_their_names() -> None:
    kinds = {
        "a/events.out.tfevents.1763300000.host.1.v2": "events",
        "checkpoint-500/trainer_state.json": "trainer_state",
        "metrics.csv": "csv",
        "out/training_log.csv": "csv",
        "training.log": "csv",
        "yolo/results.csv": "csv",
        "PROGRESS.csv": "csv",
        "run_01.scalars.csv": "csv",
        "container.log": None,
        "test_results.csv": None,
        "data.csv": None,
        "debug-output/events/000000000000/000000000000_worker_0.tfevents": None,
    }
    for name, kind in kinds.items():
        file = match_scalar_file(name)
        assert (file.kind if file is not None else None) == kind


class TestSteps:
    def rows(self, count: int) -> list[ScalarStep]:
        reading = ScalarReading(
            [ScalarRow(step, Mode(m), NOW, {"x": step}) for step in range(count) for m in ("TRAIN", "EVAL")]
        )
        return list(scalar_steps(reading, ScalarNames()))

    def test_a_scalar_is_a_tensor_of_one_entry(self) -> None:
        step = self.rows(2)[2]
        assert (step.step, step.mode_step, step.mode, step.at, step.names) == (1, 1, Mode.TRAIN, NOW, ["x"])
        assert step.value("x").tolist() == [1.0]
        assert [block.tolist() for block in step.blocks("x")] == [[1.0]]
        assert (step.shape("x"), step.shape("y"), step.has_value("y")) == ((1,), None, False)
        with pytest.raises(TensorMissingError):
            step.value("y")
        with pytest.raises(RunMissingError):
            step.other_run("b")

    def test_earlier_steps_are_of_the_same_mode(self) -> None:
        steps = self.rows(100)
        assert [each.step for each in steps[-1].earlier("x", 3)] == [98, 97, 96]
        assert {each.mode for each in steps[-1].earlier("x", 3)} == {Mode.EVAL}
        assert len(steps[-1].earlier("x", 1_000)) == MOST_PAST_ROWS - 1

    def test_a_scalar_that_is_recorded_rarely_is_found_again(self) -> None:
        rows = [
            ScalarRow(step, Mode.TRAIN, NOW, {"loss": 1.0} | ({} if step % 100 else {"acc": 0.5}))
            for step in range(301)
        ]
        last = list(scalar_steps(ScalarReading(rows), ScalarNames()))[-1]
        assert [each.step for each in last.earlier("acc", 3)] == [200, 100, 0]

    def test_a_history_is_stored(self) -> None:
        history = ScalarHistory()
        for step in range(10):
            history.add(ScalarRow(step, Mode.TRAIN, NOW, {f"s{number}": 1.0 for number in range(1_000)}))
        history = msgspec.json.decode(msgspec.json.encode(history), type=ScalarHistory)
        assert [row.step for row in history.rows] == [6, 7, 8, 9]


class TestRows:
    def test_a_step_is_complete_when_a_later_one_comes(self) -> None:
        rows, names = ScalarRows(), ScalarNames()
        assert rows.add("a", Recording(1, NOW, {"loss": 1.0}), names) == []
        rows = msgspec.json.decode(msgspec.json.encode(rows), type=ScalarRows)
        assert rows.add("a", Recording(1, NOW + 1, {"lr": 0.5, "val_loss": 2.0}), names) == []
        complete = rows.add("a", Recording(2, NOW, {"loss": 1.0}), names)
        assert complete == [
            ScalarRow(1, Mode.TRAIN, NOW, {"loss": 1.0, "lr": 0.5}),
            ScalarRow(1, Mode.EVAL, NOW + 1, {"val_loss": 2.0}),
        ]
        assert rows.finish() == [ScalarRow(2, Mode.TRAIN, NOW, {"loss": 1.0})]
        assert rows.finish() == []

    def taken(
        self, *recorded: tuple[int, float] | tuple[int, float, str]
    ) -> tuple[list[tuple[int, float]], ScalarRows]:
        """Return steps and values in their order, read again where a segment begins."""
        rows, names, complete, place = ScalarRows(), ScalarNames(), list[ScalarRow](), 0
        while place < len(recorded):
            step, value, *name = recorded[place]
            recording = Recording(step, NOW, {(name or ["loss"])[0]: value}, place=place)
            complete += rows.add("a", recording, names, file="f")
            place += 1
            if rows.begun is not None:
                rows, complete, place = rows.again(), [], 0
        return [(row.step, next(iter(row.values.values()))) for row in in_order([*complete, *rows.finish()])], rows

    def test_newest_value_of_a_step_wins_after_a_restart(self) -> None:
        found, rows = self.taken((1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (2, 12.0), (3, 13.0))
        assert found == [(1, 1.0), (2, 12.0), (3, 13.0)]
        assert (rows.overwritten, rows.disordered) == (3, 0)

    def test_restart_from_the_first_step_leaves_the_newest_run(self) -> None:
        again = [(step, 10.0 * run) for run in range(4) for step in range(50)]
        found, rows = self.taken(*again)
        assert found == [(step, 30.0) for step in range(50)]
        assert rows.overwritten == 150
        assert len(rows.segments["f"].cuts) == 1

    def test_single_value_that_goes_back_is_out_of_order(self) -> None:
        found, rows = self.taken((5, 1.0), (6, 2.0), (3, 9.0), (7, 3.0), (4, 9.0), (8, 4.0))
        assert found == [(5, 1.0), (6, 2.0), (7, 3.0), (8, 4.0)]
        assert (rows.overwritten, rows.disordered) == (0, 2)

    def test_value_of_the_open_step_is_replaced(self) -> None:
        found, rows = self.taken((5, 1.0), (6, 2.0), (6, 3.0))
        assert (found, rows.overwritten) == ([(5, 1.0), (6, 3.0)], 1)

    def test_scalar_that_counts_other_steps_survives_a_restart(self) -> None:
        recorded = [(step, 1.0, "loss") for step in range(100)] + [(1, 7.0, "lr"), (2, 7.0, "lr"), (3, 7.0, "lr")]
        found, _ = self.taken(*recorded, (2, 8.0, "lr"), (3, 8.0, "lr"), *[(step, 1.0) for step in range(100, 120)])
        assert [step for step, value in found if value == 1.0] == list(range(120))

    def test_restart_up_to_the_newest_step_begins_a_segment(self) -> None:
        found, rows = self.taken((1, 1.0), (2, 2.0), (3, 3.0), (2, 12.0), (3, 13.0))
        assert found == [(1, 1.0), (2, 12.0), (3, 13.0)]
        assert (rows.overwritten, rows.disordered) == (2, 0)

    @pytest.mark.parametrize("step", [0, 1])
    def test_values_of_one_step_are_numbered(self, step: int) -> None:
        found, rows = self.taken(*[(step, float(value)) for value in range(30)])
        assert found == [(step + number, float(number)) for number in range(30)]
        assert (rows.overwritten, rows.disordered) == (0, 0)

    @short_and_long
    def test_any_order_of_steps_leaves_each_step_once(self, examples: int) -> None:
        def check(steps: list[int]) -> None:
            found, rows = self.taken(*[(step, float(place)) for place, step in enumerate(steps)])
            assert [step for step, _ in found] == sorted({step for step, _ in found})
            assert len(found) + rows.overwritten + rows.disordered >= len(steps)
            assert not steps or found

        search(check, examples, steps=st.lists(st.integers(0, 6), max_size=20))

    def test_what_is_kept_is_bounded(self) -> None:
        rows, names = ScalarRows(), ScalarNames()
        rows.add("a", Recording(1, NOW, {f"s{number}": 1.0 for number in range(MOST_SCALARS + 7)}), names)
        assert rows.refused == 7
        for number in range(MOST_SOURCES + 3):
            rows.add(f"source{number}", Recording(1, NOW, {"loss": 1.0}), names)
        assert len(rows.newest) == MOST_SOURCES
        assert rows.refused == 7 + 4


class TestDamage:
    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (b"{", "expected the JSON of trainer_state.json"),
            (b"[" * 100_000, "expected the JSON of trainer_state.json"),
            (b"[]", "no log_history"),
            (b'{"log_history": {}}', "no log_history"),
            (b"\xff\xfe", "expected the JSON of trainer_state.json"),
            (b" " * (MAX_FILE_BYTES + 1), "larger than"),
        ],
    )
    def test_a_file_that_is_no_trainer_state(self, body: bytes, reason: str) -> None:
        with pytest.raises(TelemetryFormatError, match=reason):
            read_trainer_state("trainer_state.json", body)

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (b"a,b\nx,y\n", "expected a table with a line a step"),
            (b"model,accuracy\nresnet,0.7\nvit,0.8\n", "column 'model' holds texts, expected a step or epoch"),
            (b"", "expected a table with a line a step"),
            (b"\xff\x01\n", "expected text in UTF-8"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "run `git lfs pull`"),
            (b'step,loss\n1,"' + b"x" * 200_000 + b'"\n', "expected a table of numbers"),
        ],
    )
    def test_a_file_that_is_no_table_of_metrics(self, body: bytes, reason: str) -> None:
        with pytest.raises(TelemetryFormatError, match=reason):
            read_history("metrics.csv", body)

    @pytest.mark.parametrize(
        ("header", "step"),
        [("Epoch,Loss", 7), (" iteration , loss", 7), ("epoch,loss,Global_Step", 9), ("_step,loss", 7)],
    )
    def test_steps_are_counted_by_the_column_that_says_most(self, header: str, step: int) -> None:
        row = ",".join(["7", "0.5", "9"][: header.count(",") + 1])
        table = read_history("progress.csv", f"{header}\n{row}\n".encode())
        assert [(row.step, list(row.values.values())) for row in table.rows.between(0, 99, NOW)] == [(step, [0.5])]

    def test_a_log_of_another_kind_holds_nothing(self) -> None:
        assert len(read_history("train.log", b"2026-01-01 INFO started, epoch 1\nno numbers\n").rows) == 0
        assert read_history("train.log", b"epoch,loss\n0,3\n").rows.between(0, 1, NOW)[0].values == {"loss": 3.0}

    def test_entries_without_a_step_are_counted(self) -> None:
        entries = [{"loss": 1.0}, 5, {"step": True, "loss": 1}, {"step": -1, "loss": 1}, {"step": 3, "loss": 10**400}]
        state = read_trainer_state("trainer_state.json", json.dumps({"log_history": entries}).encode())
        assert state.bad == 4
        assert [(row.step, row.values) for row in state.rows.between(0, 99, NOW)] == [(3, {"loss": math.inf})]
        table = read_history("metrics.csv", b"step,loss\n1,2\n,3\nx,4\n-1,5\nnan,6\n")
        assert table.bad == 4
        assert [row.step for row in table.rows.between(0, 99, NOW)] == [1]

    @short_and_long
    def test_any_damage_gives_one_error(self, examples: int) -> None:
        def check(state: bytes, table: bytes) -> None:
            with suppress(TelemetryFormatError):
                read_trainer_state("trainer_state.json", state)
            with suppress(TelemetryFormatError):
                read_history("metrics.csv", table)

        search(
            check,
            examples,
            state=st.one_of(damaged(STATE), st.binary()),
            table=st.one_of(damaged(LIGHTNING), st.binary()),
        )
