"""Runs whose event files lie in folders of their own below one live job: never mixed, and those left are named."""

import pytest

from tests.families.training.runs import network_of
from tests.families.training.test_scalars import close, events, item, put
from tests.support.small_job import START
from trainguard.engine.streams.session import state_of
from trainguard.engine.training.scalar_files import ScalarState

FOLDER = "tensorboard-output/"
VALUES = dict.fromkeys(range(0, 60, 10), 1.0)


def judged(state: ScalarState) -> set[str]:
    return {name for row in state.history.rows for name in row.values}


def began(at: float) -> str:
    return f"events.out.tfevents.{int(START + at)}.h"


@pytest.mark.parametrize("writes_on", [False, True], ids=["one after another", "side by side"])
def test_newest_of_two_runs_alone_is_judged(writes_on: bool) -> None:
    network = network_of([])
    for folder in ("train", "validation"):
        put(network, f"{FOLDER}a/{folder}/{began(1.0)}", events(dict(VALUES), "epoch_loss"), 10.0)
    for folder in ("train", "validation"):
        put(network, f"{FOLDER}b/{folder}/{began(100.0)}", events(dict(VALUES), "epoch_loss", at=START + 100.0), 110.0)
    if writes_on:
        put(network, f"{FOLDER}a/train/{began(1.0)}", events({**VALUES, 60: 1.0, 70: 1.0}, "epoch_loss"), 120.0)
    close(network)
    state = state_of(item(network), ScalarState)
    assert judged(state) == {"b/train/epoch_loss", "b/validation/epoch_loss"}
    assert {row.mode.value for row in state.history.rows} == {"TRAIN", "EVAL"}
    assert [note for note in state.notes if note.startswith("a is of another run")]
    assert item(network).counters["files_of_other_runs"] == 2
    assert item(network).counters.get("runs_not_judged", 0) == writes_on


def test_runs_side_by_side_from_the_start_are_counted() -> None:
    network = network_of([])
    put(network, f"{FOLDER}a/{began(1.0)}", events(dict(VALUES), "loss"), 50.0)
    put(network, f"{FOLDER}b/{began(20.0)}", events(dict(VALUES), "loss"), 55.0)
    close(network)
    assert judged(state_of(item(network), ScalarState)) == {"b/loss"}
    assert item(network).counters["runs_not_judged"] == 1


def test_folder_of_other_scalars_belongs_to_the_run() -> None:
    network = network_of([])
    put(network, f"{FOLDER}{began(1.0)}", events(dict(VALUES), "loss"), 50.0)
    put(network, f"{FOLDER}speed/{began(20.0)}", events(dict(VALUES), "throughput"), 55.0)
    close(network)
    assert judged(state_of(item(network), ScalarState)) == {"loss", "speed/throughput"}
    assert "runs_not_judged" not in item(network).counters
