"""Processes that parse ahead: order, bounds, and what happens when one fails, dies or is no longer needed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from trainguard.errors import WorkerDiedError
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


def where(item: int) -> int:
    del item
    return os.getpid()


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_given_uneven_tasks_when_mapped_then_results_come_in_order(workers: int) -> None:
    with WorkerPool(workers) as pool:
        assert list(pool.map(slow_first, range(20))) == [item * item for item in range(20)]


def test_given_two_maps_when_taken_in_turn_then_each_gets_its_own_results() -> None:
    with WorkerPool(2) as pool:
        squares, negatives = pool.map(slow_first, range(12)), pool.map(negative, range(12))
        pairs = [(next(squares), next(negatives)) for _ in range(12)]
    assert pairs == [(item * item, -item) for item in range(12)]


def test_given_more_items_than_may_be_ahead_when_mapped_then_only_so_many_are_taken() -> None:
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


def test_given_items_and_results_beyond_a_pipes_buffer_when_mapped_then_nobody_waits_for_ever() -> None:
    body = bytes(range(256)) * (LARGE // 256)
    with WorkerPool(2) as pool:
        assert all(result == body[::-1] for result in pool.map(echo, [body] * 8))


def test_given_work_when_mapped_then_it_is_done_by_the_workers() -> None:
    with WorkerPool(2) as pool:
        assert set(pool.map(where, range(8))) == set(pool.processes)
        assert os.getpid() not in pool.processes


def test_given_a_task_that_raises_when_its_result_is_taken_then_the_others_are_there_and_it_says_what() -> None:
    with WorkerPool(2) as pool:
        results = pool.map(refuse_three, range(6))
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(RuntimeError, match="ValueError: 3 is refused"):
            next(results)


@pytest.mark.timeout(20)
def test_given_a_worker_that_dies_when_its_result_is_taken_then_it_is_an_error_and_no_hang() -> None:
    with WorkerPool(2) as pool:
        results = pool.map(die_at_three, range(6))
        with pytest.raises(WorkerDiedError, match="exit code 9"):
            list(results)


@pytest.mark.timeout(20)
def test_given_results_that_nobody_takes_when_the_pool_is_left_then_its_processes_have_ended() -> None:
    with WorkerPool(2) as pool:
        results = pool.map(echo, [bytes(LARGE)] * 8)
        next(results)
        processes = pool.processes
    assert [pid for pid in processes if os.path.exists(f"/proc/{pid}/stat")] == []  # noqa: PTH110 -- /proc


@pytest.mark.timeout(20)
def test_given_a_main_process_that_is_killed_when_workers_notice_then_they_end_too() -> None:
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
    ("tasks", "cores", "workers"),
    [(SMALLEST_JOB, 1, 0), (SMALLEST_JOB - 1, 8, 0), (SMALLEST_JOB, 2, 2), (1_000, 64, MAX_WORKERS)],
)
def test_given_tasks_and_cores_when_asked_then_there_are_as_many_workers_as_pay(
    tasks: int, cores: int, workers: int
) -> None:
    assert workers_for(tasks, cores) == workers
