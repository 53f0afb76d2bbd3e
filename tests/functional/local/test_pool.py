"""Processes that parse ahead: order, bounds, and what happens when one fails, dies or is no longer needed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainguard.core.errors import WorkerDiedError
from trainguard.local.pool import AHEAD_A_WORKER, MAX_WORKERS, SMALLEST_JOB, WorkerPool, workers_for

LARGE = 3_000_000


def slow_first(item: int) -> int:
    """Take longer for some items, so that workers finish out of order."""
    time.sleep(0.03 if item % 4 == 0 else 0.0)
    return item * item


def echo(body: bytes) -> bytes:
    return body[::-1]


def negative(item: int) -> int:
    return -item


def refuse_three(item: int) -> int:
    if item == 3:
        raise ValueError(f"{item} is refused")
    return item


def die_at_three(item: int) -> int:
    if item == 3:
        os._exit(9)
    return item


def sleep_after_first(item: int) -> int:
    if item:
        time.sleep(60.0)
    return item


class NeedsTwoError(Exception):
    """An error that pickle cannot make again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def refuse_with_two(item: int) -> int:
    raise NeedsTwoError("one", str(item))


def where(folder: Path) -> int:
    """Return the process that works, once another works beside it, or after 60 s."""
    (folder / str(os.getpid())).touch()
    deadline = time.monotonic() + 60.0
    while len(list(folder.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return os.getpid()


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_results_of_uneven_tasks_are_in_order(workers: int) -> None:
    with WorkerPool(workers) as pool:
        assert list(pool.map(slow_first, range(20))) == [item * item for item in range(20)]


def test_interleaved_maps_get_their_own_results() -> None:
    with WorkerPool(2) as pool:
        squares, negatives = pool.map(slow_first, range(12)), pool.map(negative, range(12))
        pairs = [(next(squares), next(negatives)) for _ in range(12)]
    assert pairs == [(item * item, -item) for item in range(12)]


def test_only_a_bounded_number_of_items_is_taken_ahead() -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    with WorkerPool(2) as pool:
        results = pool.map(slow_first, items())
        next(results)
        assert len(taken) <= 2 * AHEAD_A_WORKER + 1
        assert sum(1 for _ in results) == 99


def test_items_larger_than_a_pipe_buffer_do_not_deadlock() -> None:
    body = bytes(range(256)) * (LARGE // 256)
    with WorkerPool(2) as pool:
        assert all(result == body[::-1] for result in pool.map(echo, [body] * 8))


def test_given_work_when_mapped_then_it_is_done_by_the_workers(tmp_path: Path) -> None:
    with WorkerPool(2) as pool:
        assert set(pool.map(where, [tmp_path] * 8)) == set(pool.processes)
        assert os.getpid() not in pool.processes


def test_raising_task_names_its_error_and_others_have_results() -> None:
    with WorkerPool(2) as pool:
        results = pool.map(refuse_three, range(6))
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(RuntimeError, match=r"ValueError in local/test_pool\.py:\d+: 3 is refused"):
            next(results)


@pytest.mark.timeout(20)
def test_dead_worker_is_an_error_and_no_hang() -> None:
    with WorkerPool(2) as pool:
        results = pool.map(die_at_three, range(6))
        with pytest.raises(WorkerDiedError, match="exit code 9"):
            list(results)


@pytest.mark.timeout(20)
def test_untaken_results_end_the_processes_of_the_pool() -> None:
    with WorkerPool(2) as pool:
        results = pool.map(echo, [bytes(LARGE)] * 8)
        next(results)
        processes = pool.processes
    assert [pid for pid in processes if os.path.exists(f"/proc/{pid}/stat")] == []  # noqa: PTH110 -- /proc


@pytest.mark.timeout(20)
def test_a_long_task_that_nobody_needs_is_ended() -> None:
    with WorkerPool(2) as pool:
        assert next(pool.map(sleep_after_first, range(8))) == 0
        processes = pool.processes
    assert [pid for pid in processes if os.path.exists(f"/proc/{pid}/stat")] == []  # noqa: PTH110 -- /proc


def test_an_error_that_cannot_be_pickled_breaks_no_pool() -> None:
    with WorkerPool(1) as pool:
        with pytest.raises(RuntimeError, match=r"NeedsTwoError in local/test_pool\.py:\d+: one and 0"):
            next(pool.map(refuse_with_two, range(2)))
        assert list(pool.map(negative, range(3))) == [0, -1, -2]


@pytest.mark.timeout(20)
def test_killed_main_process_ends_its_workers() -> None:
    code = (
        "import sys, time; from trainguard.local.pool import WorkerPool; pool = WorkerPool(3);"
        "print(*pool.processes, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    process.kill()
    assert process.stdout.read() == ""  # ends once the last worker has closed it
    process.wait()
    assert len(workers) == 3


@pytest.mark.parametrize(
    ("tasks", "cores", "threads", "workers"),
    [
        (SMALLEST_JOB, 1, 1, 0),
        (SMALLEST_JOB - 1, 8, 1, 0),
        (SMALLEST_JOB, 2, 1, 2),
        (1_000, 64, 1, MAX_WORKERS),
        (1_000, 64, 2, 0),
    ],
)
def test_worker_count_follows_tasks_cores_and_threads(tasks: int, cores: int, threads: int, workers: int) -> None:
    assert workers_for(tasks, cores, threads) == workers
