"""The names of trainers in the documentation: what each is taken for, and what the run minimises."""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.formats.tensors.scalars.names import ERRORS, LOSSES, METRICS, ScalarNames
from trainguard.formats.tensors.scalars.objective import Objective
from trainguard.formats.tensors.scalars.rows import ScalarRow
from trainguard.formats.tensors.scalars.step import ScalarStep
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.run_series import RunSeries, SeriesState, gather

PAGE = Path(__file__).with_name("names_of_trainers.md")
NAMES = ScalarNames()


def rows(section: str) -> Iterator[Sequence[str]]:
    part = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")][2:]
    return ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)


def named(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


def run_of(names: Sequence[str]) -> RunSeries:
    """Return what rules keep of a run that writes these names, each in its mode."""
    state = SeriesState()
    for place, mode in enumerate((Mode.TRAIN, Mode.EVAL, Mode.GLOBAL)):
        values = {name: 1.0 for name in names if NAMES.mode(name) is mode}
        if values:
            gather(state, ScalarStep(ScalarRow(place, mode, 1_000.0 + place, values), NAMES))
    return state.run


def taken_for(name: str) -> str:
    if NAMES.mode(name) is None:
        return "neither"
    if NAMES.means(ERRORS, name):
        return "errors"
    return "losses" if NAMES.means(LOSSES, name) else "scores" if NAMES.means(METRICS, name) else "neither"


SUPERVISED = list(rows("Supervised"))


@pytest.mark.parametrize("row", SUPERVISED, ids=[row[0].partition("]")[0].strip("[") for row in SUPERVISED])
def test_supervised_names_are_told_apart(row: Sequence[str]) -> None:
    expected = {
        name: role
        for role, cell in zip(("losses", "scores", "errors", "neither"), row[1:], strict=True)
        for name in named(cell)
    }
    assert {name: taken_for(name) for name in expected} == expected
    run = run_of(list(expected))
    assert run.objective is Objective.SUPERVISED
    judged = [name for mode in Mode for name, _ in run.loss(mode)]
    assert judged
    assert {expected[name] for name in judged} == {"losses" if named(row[1]) else "errors"}
    assert run.has_to_fall(*judged)


MOVING = [(row[0], row[1], row[2], False) for row in rows("Not judged by the level of a loss")]
IN_PART = [(row[0], row[1], row[2], True) for row in rows("Judged in part")]


@pytest.mark.parametrize(("trainer", "objective", "names", "judged"), MOVING + IN_PART)
def test_names_of_a_run_give_its_objective(trainer: str, objective: str, names: str, judged: bool) -> None:
    run = run_of(named(names))
    assert run.objective is Objective(objective), trainer
    assert run.has_to_fall(*(name for name, _ in run.loss(Mode.TRAIN))) is judged


def test_page_names_each_objective_that_is_not_supervised() -> None:
    assert {row[1] for row in (*MOVING, *IN_PART)} == set(Objective) - {Objective.SUPERVISED}


@given(st.text(max_size=700))
def test_any_text_is_one_of_loss_score_error_or_neither(name: str) -> None:
    is_error = NAMES.means(ERRORS, name)
    assert taken_for(name) in ("losses", "scores", "errors", "neither")
    assert NAMES.means(METRICS, name) or not is_error
    assert run_of([name]).objective in Objective


@pytest.mark.parametrize("name", ["a" * 100_000, "loss" * 20_000, "A1" * 50_000, "train-" * 20_000])
def test_long_name_takes_no_long_time(name: str) -> None:
    began = time.process_time()
    taken_for(name)
    assert time.process_time() - began < 1.0


def test_setting_says_which_way_a_metric_is_better() -> None:
    names = ScalarNames({"metrics": "uplift|drift", "errors": "drift"})
    assert [names.means(ERRORS, name) for name in ("uplift", "drift", "wer")] == [False, True, False]
    assert names.members(METRICS, ("uplift", "drift", "wer")) == {"uplift", "drift"}
    assert not ScalarNames({"losses": "rmse"}).means(ERRORS, "val_rmse")
