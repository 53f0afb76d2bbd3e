"""A few processes that parse ahead."""

import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Self, TypeVar

from trainguard.core.errors import WorkerDiedError

MAX_WORKERS = 4
"""Parsing an object takes less than twice the time of folding it in, so that more would only wait."""

SMALLEST_JOB = 16
"""Fewer tasks are done before a process has started."""

AHEAD_A_WORKER = 2
_GOODBYE_S = 2.0

T = TypeVar("T")
R = TypeVar("R")


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def workers_for(tasks: int, cores: int | None = None) -> int:
    """Return how many processes help with so many tasks: none on one core, or where it would not pay."""
    if multiprocessing.parent_process() is not None:
        return 0  # The processes of a pool are as many as help.
    cores = usable_cores() if cores is None else cores
    return 0 if cores < 2 or tasks < SMALLEST_JOB else min(cores, MAX_WORKERS)


class WorkerPool:
    """Processes that run functions; with 0 workers everything runs in this process.

    Start it before any thread: on Linux workers are forks of this process, which costs them neither imports nor memory.
    """

    def __init__(self, workers: int) -> None:
        self._ahead_of_use = AHEAD_A_WORKER * workers
        self._executor: ProcessPoolExecutor | None = None
        self._workers: list[multiprocessing.process.BaseProcess] = []
        if workers:
            others = multiprocessing.active_children()
            self._executor = _started(workers)
            self._workers = [each for each in multiprocessing.active_children() if each not in others]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            # A task that nobody needs any more may take minutes: its process is given a moment to end.
            late = threading.Timer(_GOODBYE_S, self._terminate)
            late.start()
            self._executor.shutdown(cancel_futures=True)
            late.cancel()

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid or 0 for worker in self._workers]

    def map(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
        """Return an iterator over ``function(item)``, in order; some items are taken ahead of their use.

        All is pickled; several maps may be under way. Raises WorkerDiedError when a process ended without an answer;
        RuntimeError with the text of whatever else ``function`` raised in a worker.
        """
        if self._executor is None:
            return map(function, items)
        return self._ahead(self._executor, function, items)

    def _ahead(self, executor: ProcessPoolExecutor, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        under_way: deque[Future[tuple[bool, Any]]] = deque()
        for item in items:
            under_way.append(self._submitted(executor, function, item))
            if len(under_way) >= self._ahead_of_use:
                yield self._result(executor, under_way.popleft())
        while under_way:
            yield self._result(executor, under_way.popleft())

    def _submitted(
        self, executor: ProcessPoolExecutor, function: Callable[[T], R], item: T
    ) -> "Future[tuple[bool, Any]]":
        try:
            return executor.submit(_answer, function, item)
        except BrokenProcessPool as fault:
            raise self._death(executor) from fault

    def _result(self, executor: ProcessPoolExecutor, future: "Future[tuple[bool, Any]]") -> Any:
        try:
            fine, value = future.result()
        except BrokenProcessPool as fault:
            raise self._death(executor) from fault
        if not fine:
            raise RuntimeError(value)
        return value

    def _death(self, executor: ProcessPoolExecutor) -> WorkerDiedError:
        """Return the error of the worker that died: the executor has terminated the others."""
        executor.shutdown(cancel_futures=True)
        codes = [worker.exitcode for worker in self._workers]
        return WorkerDiedError(next((code for code in codes if code not in (0, -signal.SIGTERM)), codes[0]))

    def _terminate(self) -> None:
        for worker in self._workers:
            worker.terminate()


def _started(workers: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("fork" if _can_fork() else "spawn")
    if context.get_start_method() == "fork":
        gc.freeze()  # a collection would touch, and so copy, every page that a fork shares
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    list(executor.map(abs, range(workers)))  # starts all of them, before there is a thread of this process
    return executor


def _can_fork() -> bool:
    return os.name == "posix" and os.uname().sysname == "Linux"


def _begin() -> None:
    """Leave an interrupt to the main process, and end with it: the executor's queues stay open without it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answer(function: Callable[[T], R], item: T) -> tuple[bool, Any]:
    """Return a result, or a fault's text: an exception that cannot be pickled back would break the pool."""
    try:
        return True, function(item)
    except Exception as fault:
        return False, f"{type(fault).__name__}: {fault}"
