"""Files of scalars that grow: rows become steps in order, held back until every source has come as far."""

import json
from fnmatch import fnmatchcase

import pytest

from tests.families.training.runs import FAMILIES, SCALAR, fires_of, network_of, rows_of
from tests.families.training.step_rules import HIGH_LOSS
from tests.support.delivery import Network
from tests.support.small_job import JOB, START, Upload, describe
from tests.support.tensor_files import event, frame, simple_scalar
from trainguard.core.records import JobStatus, Status, StreamRecord
from trainguard.engine.streams.session import state_of
from trainguard.engine.training.family import TRAINING_HEALTH
from trainguard.engine.training.scalar_files import ScalarState

TB = f"{JOB}/tensorboard-output/"


def events(steps: dict[int, float], tag: str = "train/loss", *, at: float = START) -> bytes:
    """Return an event file with a scalar at each step."""
    head = frame(event(b"", step=0, at=at))
    return head + b"".join(
        frame(event(simple_scalar(tag, value), step=step, at=at + step)) for step, value in steps.items()
    )


def put(network: Network, name: str, body: bytes, at: float) -> None:
    upload = Upload(START + at, f"{JOB}/{name}", body)
    network.put(upload)
    network.announce(upload, upload.at + 1.0)
    network.run_until(upload.at + 2.0, batch_s=0.0)


def item(network: Network) -> StreamRecord:
    return network.node(SCALAR)


def seen(network: Network) -> list[tuple[int, str, float]]:
    """Return step, mode and value of each row that rules have seen."""
    return [
        (row.step, row.mode.value, next(iter(row.values.values())))
        for row in state_of(item(network), ScalarState).history.rows
    ]


def close(network: Network) -> None:
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    for _ in range(30):
        network.now += 60.0
        network.run_scheduler()
        network.run_until(network.now + 30.0, batch_s=0.0)


def test_grown_file_is_read_from_its_new_bytes_and_fires() -> None:
    network = network_of([])
    name = "tensorboard-output/events.out.tfevents.1.host"
    put(network, name, events({1: 1.0, 2: 2.0}), 10.0)
    assert seen(network) == [(1, "TRAIN", 1.0)]
    reads = len(network.world.faults.calls)
    put(network, name, events({1: 1.0, 2: 2.0, 3: 200.0, 4: 1.0}), 20.0)
    assert seen(network) == [(1, "TRAIN", 1.0), (2, "TRAIN", 2.0), (3, "TRAIN", 200.0)]
    assert fires_of(network) == [(HIGH_LOSS, "scalar-files", 200.0)]
    assert len(network.world.faults.calls) > reads
    state = item(network).state
    put(network, name, events({1: 1.0, 2: 2.0, 3: 200.0, 4: 1.0}), 20.0)
    assert item(network).state == state


def test_steps_wait_for_a_lagging_second_folder() -> None:
    network = network_of([])
    put(network, "tensorboard-output/val/events.out.tfevents.1.h", events({0: 5.0}, "loss"), 5.0)
    put(
        network,
        "tensorboard-output/train/events.out.tfevents.1.h",
        events(dict.fromkeys(range(6), 1.0), "loss"),
        10.0,
    )
    assert seen(network) == []
    put(network, "tensorboard-output/val/events.out.tfevents.1.h", events({0: 5.0, 3: 4.0}, "loss"), 20.0)
    assert seen(network) == [(0, "TRAIN", 1.0), (0, "EVAL", 5.0), (1, "TRAIN", 1.0), (2, "TRAIN", 1.0)]
    close(network)
    assert [(step, mode) for step, mode, _ in seen(network)] == [
        (0, "TRAIN"), (0, "EVAL"), (1, "TRAIN"), (2, "TRAIN"), (3, "TRAIN"), (3, "EVAL"), (4, "TRAIN"), (5, "TRAIN"),
    ]  # fmt: skip
    assert item(network).counters == {}


def test_silent_source_holds_up_nothing() -> None:
    network = network_of([])
    put(network, "tensorboard-output/val/events.out.tfevents.1.h", events({0: 5.0}, "loss"), 5.0)
    put(network, "tensorboard-output/train/events.out.tfevents.1.h", events({0: 1.0, 1: 1.0, 2: 1.0}, "loss"), 400.0)
    assert [(step, mode) for step, mode, _ in seen(network)] == [(0, "TRAIN"), (0, "EVAL"), (1, "TRAIN")]


def test_row_of_a_passed_step_is_counted_as_late() -> None:
    network = network_of([])
    put(network, "tensorboard-output/train/events.out.tfevents.1.h", events({0: 1.0, 5: 1.0, 6: 1.0}, "loss"), 5.0)
    put(network, "tensorboard-output/val/events.out.tfevents.1.h", events({1: 5.0, 9: 5.0}, "loss"), 10.0)
    close(network)
    assert item(network).counters == {"late": 1}
    assert [(step, mode) for step, mode, _ in seen(network)] == [(0, "TRAIN"), (5, "TRAIN"), (6, "TRAIN"), (9, "EVAL")]


def test_shortened_file_is_restarted_and_counted() -> None:
    network = network_of([])
    name = "tensorboard-output/events.out.tfevents.1.host"
    put(network, name, events(dict.fromkeys(range(20), 1.0)), 10.0)
    put(network, name, events({18: 1.0, 19: 7.0, 20: 8.0}), 20.0)
    close(network)
    assert item(network).counters["rewritten_files"] == 1
    assert seen(network)[-1] == (20, "TRAIN", 8.0)
    assert [step for step, _, _ in seen(network)] == list(range(21))


def test_cumulative_checkpoint_logs_give_each_row_once() -> None:
    network = network_of([])
    log = [{"step": step, "loss": 1.0} for step in range(1, 5)] + [{"step": 4, "eval_loss": 3.0}]
    for number in (2, 4, 6):
        rows = [
            entry for entry in [*log, {"step": 5, "loss": 200.0}, {"step": 6, "loss": 1.0}] if entry["step"] <= number
        ]
        body = json.dumps({"log_history": rows}).encode()
        put(network, f"checkpoints/checkpoint-{number}/trainer_state.json", body, 10.0 * number)
    close(network)
    assert [(step, mode) for step, mode, _ in seen(network)] == [
        (1, "TRAIN"), (2, "TRAIN"), (3, "TRAIN"), (4, "TRAIN"), (4, "EVAL"), (5, "TRAIN"), (6, "TRAIN"),
    ]  # fmt: skip
    assert fires_of(network) == [(HIGH_LOSS, "scalar-files", 200.0)]
    assert item(network).counters == {}


def test_broken_metric_line_is_counted_once() -> None:
    network = network_of([])
    table = b"step,train_loss\n1,1.0\nx,2.0\n3,200.0\n"
    put(network, "trainer-output/metrics.csv", table, 10.0)
    put(network, "trainer-output/metrics.csv", table + b"4,1.0\n", 20.0)
    close(network)
    assert item(network).counters == {"bad_rows": 1}
    assert [step for step, _, _ in seen(network)] == [1, 3, 4]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("trainer-output/metrics.csv", b"\xff\xfe\x00"),
        ("checkpoints/trainer_state.json", b"{"),
        ("tensorboard-output/events.out.tfevents.1.h", b"no event file at all, not in any way"),
    ],
)
def test_hostile_file_is_counted_and_named(name: str, body: bytes) -> None:
    network = network_of([])
    put(network, name, body, 10.0)
    put(network, "tensorboard-output/good/events.out.tfevents.1.h", events({1: 1.0, 2: 200.0, 3: 1.0}), 20.0)
    close(network)
    assert item(network).counters["bad_objects"] == 1
    assert name in str(state_of(item(network), ScalarState).last_fault)
    assert fires_of(network) == [(HIGH_LOSS, "scalar-files", 200.0)]


def test_rows_before_broken_frames_of_a_growing_file_are_used() -> None:
    network = network_of([])
    body = events({1: 1.0, 2: 200.0, 3: 1.0})
    put(network, "tensorboard-output/events.out.tfevents.1.h", body + b"\x07" * 64, 10.0)
    close(network)
    assert item(network).counters == {"bad_objects": 1}
    assert fires_of(network) == [(HIGH_LOSS, "scalar-files", 200.0)]


def test_many_rows_read_in_pieces_keep_the_item_small() -> None:
    network = network_of([])
    steps = 2_500
    put(network, "tensorboard-output/events.out.tfevents.1.h", events(dict.fromkeys(range(steps), 1.0)), 10.0)
    close(network)
    assert state_of(item(network), ScalarState).steps == steps
    assert len(item(network).state) < 16 * 1024


def test_waiting_rows_of_a_leading_file_are_bounded() -> None:
    network = network_of([])
    put(network, "tensorboard-output/val/events.out.tfevents.1.h", events({0: 5.0}, "loss"), 5.0)
    body = events({step: float(step) / 1e6 for step in range(2_500)}, "loss")
    put(network, "tensorboard-output/train/events.out.tfevents.1.h", body, 10.0)
    assert seen(network) == []
    assert len(item(network).state) < 16 * 1024
    close(network)
    assert state_of(item(network), ScalarState).steps == 2_501


def test_evaluator_crash_at_any_call_gives_the_same_state() -> None:
    def play(doomed: list[int]) -> Network:
        network = network_of([])
        put(network, "tensorboard-output/train/events.out.tfevents.1.h", events({}, "loss"), 1.0)
        put(network, "tensorboard-output/val/events.out.tfevents.1.h", events({}, "loss"), 2.0)
        network.doomed = doomed
        rows: dict[int, float] = {}
        for piece in range(6):
            rows |= {step: 200.0 if step == 17 else 1.0 for step in range(piece * 5, piece * 5 + 5)}
            put(network, "tensorboard-output/train/events.out.tfevents.1.h", events(rows, "loss"), 5.0 + 20.0 * piece)
            put(network, "tensorboard-output/val/events.out.tfevents.1.h", events(rows, "loss"), 20.0 * piece + 10.0)
        network.run_until(START + 3_000.0, batch_s=0.0)
        close(network)
        return network

    plain = play([])
    expected = (seen(plain), fires_of(plain), state_of(item(plain), ScalarState).steps)
    died = 0
    for calls in range(1, 15):
        network = play([calls, (calls * 7) % 9 + 1, 15 - calls])
        died += network.crashes
        assert (seen(network), fires_of(network), state_of(item(network), ScalarState).steps) == expected
    assert died > 20


def test_row_of_a_job_with_scalars_names_the_files() -> None:
    network = network_of([], FAMILIES)
    put(network, "tensorboard-output/events.out.tfevents.1.h", events({1: 200.0, 2: 200.0}), 10.0)
    network.run_scheduler()
    row = rows_of(network)[HIGH_LOSS]
    assert (row.status, row.worst) == (Status.FIRED, "scalar-files/train/loss")


@pytest.mark.parametrize("name", ["training.log", "training.csv", "progress.csv", "results.csv", "run_1_training.csv"])
@pytest.mark.parametrize("folder", ["trainer-output", "checkpoints"])
def test_keras_logger_table_alone_is_judged(name: str, folder: str) -> None:
    key = f"{folder}/{name}"
    assert any(f"{JOB}/{key}".endswith(end) for end in TRAINING_HEALTH.events.ends)
    assert any(fnmatchcase(f"{JOB}/{key}", pattern) for pattern in TRAINING_HEALTH.reads)
    network = network_of([])
    put(network, key, b"epoch,loss\n0,1.0\n1,200.0\n2,1.0\n", 10.0)
    assert fires_of(network) == [(HIGH_LOSS, "scalar-files", 200.0)]


def table(losses: dict[int, float]) -> bytes:
    return b"step,train_loss\n" + b"".join(b"%d,%r\n" % (step, value) for step, value in losses.items())


FIRST_RUN = dict.fromkeys(range(0, 60, 10), 1.0) | {30: 200.0}


@pytest.mark.parametrize(
    ("second", "kept", "alerts"),
    [
        (dict.fromkeys(range(0, 40, 10), 2.0) | {20: 300.0}, 0, [200.0, 300.0]),
        (dict.fromkeys(range(40, 80, 10), 2.0), 4, [200.0]),
        (dict.fromkeys(range(40, 80, 10), 2.0) | {60: 300.0}, 4, [200.0, 300.0]),
    ],
    ids=["a run of its own", "resumed", "resumed and high"],
)
def test_second_run_of_a_job_is_judged_and_the_first_is_named(
    second: dict[int, float], kept: int, alerts: list[float]
) -> None:
    network = network_of([])
    put(network, "trainer-output/version_0/metrics.csv", table(FIRST_RUN), 10.0)
    assert fires_of(network) == [(HIGH_LOSS, "scalar-files", 200.0)]
    network.now += 60.0
    network.run_scheduler()
    for rows in range(1, len(second) + 1):
        body = table(dict(list(second.items())[:rows]))
        put(network, "trainer-output/version_1/metrics.csv", body, 1_000.0 + rows)
    close(network)
    assert [(step, value) for step, _, value in seen(network)] == [*list(FIRST_RUN.items())[:kept], *second.items()]
    state = state_of(item(network), ScalarState)
    assert (state.steps, item(network).counters["files_of_other_runs"]) == (kept + len(second), 1)
    assert "version_0/metrics.csv is of an older run" in state.notes[0]
    row = rows_of(network)[HIGH_LOSS]
    assert "The rule started again with the newest run in" in row.finding.reason
    assert [value for _, _, value in fires_of(network)] == alerts


@pytest.mark.parametrize("first", [0, 70], ids=["from the start", "resumed"])
def test_one_of_two_growing_rank_logs_is_judged_throughout(first: int) -> None:
    network = network_of([])
    for rows in range(2, 6):
        for rank in (0, 1):
            body = table({first + step: float(rank) for step in range(rows)})
            put(network, f"trainer-output/rank_{rank}/metrics.csv", body, 100.0 * rows + rank)
    close(network)
    assert seen(network) == [(first + step, "TRAIN", 1.0) for step in range(5)]
    assert item(network).counters["files_of_other_runs"] == 1


def test_event_values_without_steps_are_numbered_over_pieces() -> None:
    network = network_of([])
    name = "tensorboard-output/events.out.tfevents.1.h"
    head = frame(event(b"", step=0, at=START))
    body = [frame(event(simple_scalar("train/loss", float(number)), step=0, at=START + number)) for number in range(6)]
    put(network, name, head + b"".join(body[:2]), 10.0)
    put(network, name, head + b"".join(body), 20.0)
    close(network)
    assert seen(network) == [(number, "TRAIN", float(number)) for number in range(6)]
    assert item(network).counters == {}


def test_table_that_was_written_again_is_read_from_its_start() -> None:
    network = network_of([])
    first = "".join(f"{step},1.0\n" for step in range(10))
    again = "".join(f"{step},7.0\n" for step in range(4))
    for number, rows in enumerate((first, again)):
        put(network, "trainer-output/metrics.csv", f"step,train_loss\n{rows}".encode(), 10.0 * (number + 1))
    close(network)
    assert seen(network) == [(step, "TRAIN", 7.0) for step in range(4)]
    assert item(network).counters == {"rewritten_files": 1}
