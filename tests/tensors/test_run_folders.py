"""Which files of scalars are of one run: the layouts of trainers and loggers, by their folders."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.formats.tensors.scalars.run_folders import run_name, runs_of

E = "events.out.tfevents.1.h"
STATE = "trainer_state.json"


def runs(names: str, tags: Mapping[str, str] | None = None) -> dict[str, set[str]]:
    """Return what each run's files are called below it; ``tags`` are by folder."""
    found = runs_of(names.split(), lambda name: (tags or {}).get(name.rpartition("/")[0]))
    return {folder: set(files.values()) for folder, files in found.items()}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (f"a/{E} b/{E}", {"a": {E}, "b": {E}}),
        (f"a/{E} a/x/{E}", {"a": {E}, "a/x": {E}}),
        (f"a/train/{E} a/validation/{E} b/train/{E}", {"a": {f"train/{E}", f"validation/{E}"}, "b/train": {E}}),
        (f"{E} eval/{E}", {"": {E, f"eval/{E}"}}),
        (f"{E} test/{E}", {"": {E}, "test": {E}}),
        (f"train/{E} test/{E}", {"": {f"train/{E}", f"test/{E}"}}),
        (f"x_train/{E} x_val/{E} y_val/{E}", {"x": {f"train/{E}", f"val/{E}"}, "y_val": {E}}),
        (f"x/{E} x-eval/{E}", {"x": {E, f"eval/{E}"}}),
        ("train/results.csv train2/results.csv", {"train": {"results.csv"}, "train2": {"results.csv"}}),
        (f"l/version_0/{E} l/version_1/{E}", {"l/version_0": {E}, "l/version_1": {E}}),
        (
            f"out/checkpoint-5/{STATE} out/checkpoint-10/{STATE} out/runs/Dec01_host/{E}",
            {"out": {f"checkpoint-5/{STATE}", f"checkpoint-10/{STATE}", E}},
        ),
        (f"runs/Dec01_a/{E} runs/Dec02_a/{E}", {"runs/Dec01_a": {E}, "runs/Dec02_a": {E}}),
        (
            f"s/run-0/checkpoint-5/{STATE} s/run-1/checkpoint-5/{STATE}",
            {"s/run-0": {f"checkpoint-5/{STATE}"}, "s/run-1": {f"checkpoint-5/{STATE}"}},
        ),
        (f"e/tb/{E} e/logs/train_log.csv f/tb/{E}", {"e": {E, "train_log.csv"}, "f/tb": {E}}),
        (f"results/checkpoint-5/{STATE} logs/{E}", {"": {f"checkpoint-5/{STATE}", E}}),
        (f"new/{E} old/training.log", {"new": {E}, "old": {"training.log"}}),
        (f"tb/{E} logs/{E}", {"tb": {E}, "logs": {E}}),
        (f"catboost_info/learn/{E} catboost_info/test/{E}", {"catboost_info": {f"learn/{E}", f"test/{E}"}}),
    ],
)
def test_layout_of_a_trainer_has_its_runs(names: str, expected: Mapping[str, set[str]]) -> None:
    assert runs(names) == expected


@pytest.mark.parametrize(
    ("names", "tags", "expected"),
    [
        (f"r/{E} r/loss_a/{E} r/loss_b/{E}", {"r/loss_a": "loss", "r/loss_b": "loss"}, {"r"}),
        (f"r/{E} r/loss/a/{E} r/loss/b/{E}", {"r/loss/a": "loss", "r/loss/b": "loss"}, {"r"}),
        (f"r/{E} r/gan_d_real/{E}", {"r/gan_d_real": "gan/d"}, {"r"}),
        (f"r/loss_train/{E} r/loss_val/{E}", {"r/loss_train": "loss", "r/loss_val": "loss"}, {"r"}),
        (f"r/{E} r/1700000000.25/{E}", {}, {"r"}),
        (f"r/loss_a/{E} r/loss_b/{E}", {"r/loss_a": "loss", "r/loss_b": "loss"}, {"r/loss_a", "r/loss_b"}),
        (f"r/{E} r/lossy/{E}", {"r/lossy": "loss"}, {"r", "r/lossy"}),
        (f"r/{E} r/loss_a/{E}", {}, {"r", "r/loss_a"}),
    ],
)
def test_folders_of_one_writer_are_its_run(names: str, tags: Mapping[str, str], expected: set[str]) -> None:
    assert runs(names, tags).keys() == expected


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/a/run1", "run1"),
        ("/a/run1/train", "run1"),
        ("/a/job/checkpoints", "job"),
        ("/a/x/tb/val", "x"),
        ("/logs", "logs"),
    ],
)
def test_run_is_called_by_a_folder_that_names_it(folder: str, name: str) -> None:
    assert run_name(folder) == name


_PARTS = st.sampled_from(["train", "val", "test", "x_train", "x_eval", "runs", "checkpoint-1", "tb", "logs", "1" * 9])
_FILES = st.sampled_from([E, STATE, "metrics.csv"])
_NAMES = st.builds(lambda parts, file: "/".join([*parts, file]), st.lists(_PARTS, max_size=4), _FILES)


@given(st.sets(_NAMES, max_size=12), st.sampled_from([None, "x", "runs"]))
def test_every_file_is_of_one_run_under_its_own_name(names: set[str], tag: str | None) -> None:
    found = runs_of(names, lambda _: tag)
    assert sorted(file for files in found.values() for file in files) == sorted(names)
    assert all(len(set(files.values())) == len(files) for files in found.values())
