"""Event files of one folder that several processes wrote: one run, a run that was resumed, or two runs."""

import pytest

from tests.families.training.runs import network_of
from tests.families.training.test_scalars import close, events, item, put, seen
from tests.support.small_job import START
from trainguard.engine.streams.session import state_of
from trainguard.engine.training.scalar_files import ScalarState

FOLDER = "tensorboard-output/"
FIRST = dict.fromkeys(range(0, 60, 10), 1.0)
LATER_S = 1_000.0


def steps(first: int, last: int) -> dict[int, float]:
    return dict.fromkeys(range(first, last, 10), 2.0)


@pytest.mark.parametrize("names", [("1", "2"), ("2", "1")], ids=["in order of time", "against it"])
@pytest.mark.parametrize(
    ("second", "kept", "older"),
    [(steps(0, 40), 0, 1), (steps(10, 40), 0, 1), (steps(30, 80), 3, 1), (steps(60, 90), 6, 0), ({0: 2.0}, 6, 0)],
    ids=["from the start", "within an interval", "resumed", "goes on", "too little to tell"],
)
def test_later_file_begins_a_run_or_resumes_the_older(
    names: tuple[str, str], second: dict[int, float], kept: int, older: int
) -> None:
    network = network_of([])
    put(network, f"{FOLDER}a.tfevents.{names[0]}", events(dict(FIRST)), 10.0)
    put(network, f"{FOLDER}a.tfevents.{names[1]}", events(second, at=START + LATER_S), 2_000.0)
    close(network)
    judged = [(step, value) for step, _, value in seen(network)]
    assert judged[:kept] == list(FIRST.items())[:kept]
    assert [value for _, value in judged[kept:]] == ([] if second == {0: 2.0} else list(second.values()))
    assert item(network).counters.get("files_of_other_runs", 0) == older
    notes = state_of(item(network), ScalarState).notes
    assert [f"a.tfevents.{names[0]} is of an older run" in note for note in notes] == [True] * older


def test_files_written_at_the_same_time_are_one_run() -> None:
    network = network_of([])
    for rank in ("1", "2"):
        put(network, f"{FOLDER}a.tfevents.{rank}", events(dict(FIRST), at=START + float(rank)), 10.0)
    close(network)
    assert [step for step, _, _ in seen(network)] == list(FIRST)
    assert "files_of_other_runs" not in item(network).counters


def test_evaluation_of_a_finished_run_leaves_it_in_use() -> None:
    network = network_of([])
    put(network, f"{FOLDER}a.tfevents.1", events(dict(FIRST)), 10.0)
    put(network, f"{FOLDER}a.tfevents.2", events(steps(0, 60), "eval/loss", at=START + LATER_S), 2_000.0)
    close(network)
    assert [step for step, mode, _ in seen(network) if mode == "TRAIN"] == list(FIRST)
    assert "files_of_other_runs" not in item(network).counters


def test_new_run_leaves_out_both_folders_of_the_older() -> None:
    network = network_of([])
    for at, run in ((0.0, "1"), (LATER_S, "2")):
        for folder in ("train", "validation"):
            values = dict(FIRST) if run == "1" else steps(0, 40)
            put(network, f"{FOLDER}{folder}/a.tfevents.{run}", events(values, "epoch_loss", at=START + at), 10.0 + at)
    close(network)
    assert {value for _, _, value in seen(network)} == {2.0}
    assert item(network).counters["files_of_other_runs"] == 2
