"""A few processes that parse ahead: results in order, a bounded number of them at a time.

::

    main                                  worker
    ----                                  ------
    task ------------ pipe -------------> parses
    next task once this is read <-------- result
    folds results in order

A worker has one task at a time and more only in the main process's queue, so neither side ever waits to write to the
other while that one waits to write too. A worker that dies closes its pipe, which is an error where its result is asked
for; a main process that dies closes them all, and the workers end.
"""

import gc
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from trainguard.errors import WorkerDiedError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

MAX_WORKERS = 4
"""Parsing an object takes less than twice the time of folding it in, so that more would only wait."""

SMALLEST_JOB = 16
"""Fewer tasks are done before a process has started."""

AHEAD_A_WORKER = 2
_GOODBYE_S = 2.0

T = TypeVar("T")
R = TypeVar("R")
Task = tuple[Callable[[Any], Any], Any]


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def workers_for(tasks: int, cores: int | None = None) -> int:
    """Return how many processes help with so many tasks: none on one core, or where it would not pay."""
    if multiprocessing.current_process().daemon:
        return 0  # A process of a pool can have none of its own.
    cores = usable_cores() if cores is None else cores
    return 0 if cores < 2 or tasks < SMALLEST_JOB else min(cores, MAX_WORKERS)


class _Ticket:
    """A task's place in its worker's queue, and later its outcome."""

    __slots__ = ("done", "fault", "task", "value", "worker")

    def __init__(self, worker: "_Worker", task: Task) -> None:
        self.worker = worker
        self.task = task
        self.done = False
        self.value: Any = None
        self.fault: BaseException | None = None

    def result(self) -> Any:
        while not self.done:
            self.worker.receive()
        if self.fault is not None:
            raise self.fault
        return self.value


class _Worker:
    def __init__(self, context: BaseContext, inherited: Sequence[Connection]) -> None:
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every concrete context has it
            target=_work, args=(theirs, [*inherited, self.connection] if _forks(context) else []), daemon=True
        )
        self.process.start()
        theirs.close()
        self.queue: deque[_Ticket] = deque()

    def submit(self, task: Task) -> _Ticket:
        ticket = _Ticket(self, task)
        self.queue.append(ticket)
        if len(self.queue) == 1:
            self._send()
        return ticket

    def receive(self) -> None:
        """Take the result of the task in hand, and give the worker the next one."""
        try:
            fine, value = self.connection.recv()
        except (EOFError, OSError) as fault:
            self.process.join(_GOODBYE_S)
            raise WorkerDiedError(self.process.exitcode) from fault
        ticket = self.queue.popleft()
        ticket.done = True
        if fine:
            ticket.value = value
        else:
            ticket.fault = RuntimeError(value)
        if self.queue:
            self._send()

    def _send(self) -> None:
        # A worker that is dead is noticed where its result is asked for.
        with suppress(BrokenPipeError):
            self.connection.send(self.queue[0].task)


class WorkerPool:
    """Processes that run functions; none of them, and everything runs in this process.

    Start it before any thread: on Linux workers are forks of this process, which costs them neither imports nor memory.

    Parameters
    ----------
    workers : int
        How many processes; 0 for none.
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("fork" if _can_fork() else "spawn")
        if workers and _forks(context):
            gc.freeze()  # a collection would touch, and so copy, every page that a fork shares
        self._workers: list[_Worker] = []
        for _ in range(workers):
            self._workers.append(_Worker(context, [each.connection for each in self._workers]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.join(_GOODBYE_S)
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join()

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid or 0 for worker in self._workers]

    def map(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
        """Return an iterator over ``function(item)``, in order; some items are taken ahead of their use.

        Function, items and results are pickled. Several maps may be under way at once.

        Raises
        ------
        WorkerDiedError
            When a process ended without an answer.
        RuntimeError
            With the text of whatever else ``function`` raised in a worker.
        """
        if not self._workers:
            return map(function, items)
        return self._ahead(function, iter(items))

    def _ahead(self, function: Callable[[T], R], items: Iterator[T]) -> Iterator[R]:
        tickets: deque[_Ticket] = deque()
        limit = AHEAD_A_WORKER * len(self._workers)
        for item in items:
            worker = min(self._workers, key=lambda each: len(each.queue))
            tickets.append(worker.submit((function, item)))
            if len(tickets) >= limit:
                yield tickets.popleft().result()
        while tickets:
            yield tickets.popleft().result()


def _can_fork() -> bool:
    return os.name == "posix" and os.uname().sysname == "Linux"


def _forks(context: BaseContext) -> bool:
    return context.get_start_method() == "fork"


def _work(tasks: Connection, inherited: Sequence[Connection]) -> None:
    """Answer tasks until the pipe is closed; an interrupt is for the main process, which then closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for connection in inherited:
        connection.close()
    with suppress(EOFError, OSError):
        while True:
            function, item = tasks.recv()
            try:
                answer = (True, function(item))
            except Exception as fault:
                answer = (False, f"{type(fault).__name__}: {fault}")
            tasks.send(answer)
