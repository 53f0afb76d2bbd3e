"""Work ahead of its use: a few processes that parse, and threads that read the objects of a bucket."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from trainguard.core.errors import ObjectMissingError, WorkerDiedError, error_text
from trainguard.engine.streams.session import Unreadable, readable
from trainguard.formats.profile.keys import SystemKey
from trainguard.formats.profile.system import MAX_OBJECT_BYTES, Samples, read_system_object
from trainguard.local.profile import Profile
from trainguard.local.sources import FolderFiles, ProfileSource, read_opened

# Parsing an object takes less than twice the time of folding it in, so that more would only wait.
MAX_WORKERS = 4

# Fewer tasks are done before a process has started.
SMALLEST_JOB = 16

# Fewer bytes of system objects are parsed before a process has started.
SMALLEST_BYTES = 16_000_000

AHEAD_A_WORKER = 2
_GOODBYE_S = 2.0

T = TypeVar("T")
R = TypeVar("R")


def workers_for(tasks: int, cores: int | None = None, threads: int | None = None) -> int:
    """Return how many processes help with so many tasks: none on one core, or where it would not pay."""
    if multiprocessing.parent_process() is not None:
        return 0  # The processes of a pool are as many as help.
    if (threading.active_count() if threads is None else threads) > 1:
        return 0  # A fork beside other threads may never get a lock that one of them holds.
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
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
        return [worker.pid or 0 for worker in self._workers]

    def map(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
        """Return an iterator over ``function(item)``, in order; some items are taken ahead of their use.

        All is pickled; several maps may be under way. Raises WorkerDiedError when a process ended without an answer;
        RuntimeError with the text of whatever else ``function`` raised in a worker.
        """
        if self._executor is None:
            return map(function, items)
        return _ahead(partial(self._submitted, self._executor, function), items, self._ahead_of_use)

    def _submitted(self, executor: ProcessPoolExecutor, function: Callable[[T], R], item: T) -> Callable[[], R]:
        try:
            future = executor.submit(_answer, function, item)
        except BrokenProcessPool as fault:
            raise self._death(executor) from fault

        def result() -> R:
            try:
                fine, value = future.result()
            except BrokenProcessPool as fault:
                raise self._death(executor) from fault
            if not fine:
                raise RuntimeError(value)
            return cast("R", value)

        return result

    def _death(self, executor: ProcessPoolExecutor) -> WorkerDiedError:
        """Return the error of the worker that died: the executor has terminated the others."""
        executor.shutdown(cancel_futures=True)
        codes = [worker.exitcode for worker in self._workers]
        return WorkerDiedError(next((code for code in codes if code not in (0, -signal.SIGTERM)), codes[0]))

    def _terminate(self) -> None:
        for worker in self._workers:
            worker.terminate()


def _started(workers: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    if context.get_start_method() == "fork":
        gc.freeze()  # a collection would touch, and so copy, every page that a fork shares
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    list(executor.map(abs, range(workers)))  # starts all of them, before there is a thread of this process
    return executor


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
        return False, error_text(fault)


# At 3 MB a node-minute, 48 MB.
FETCHES = 16


# A system object to parse: its key, what the key says, and its file where that can be opened, else its bytes.
SystemTask = tuple[str, SystemKey, Path | bytes | Unreadable]


def read_samples(task: SystemTask) -> Samples | Unreadable:
    """Parse one object; whatever is wrong with it is the result."""
    key, parsed, body = task
    return body if isinstance(body, Unreadable) else readable(key, partial(_parsed, key, parsed, body))


def _parsed(key: str, parsed: SystemKey, body: Path | bytes) -> Samples:
    if isinstance(body, Path):
        with body.open("rb") as opened:
            body = read_opened(opened, MAX_OBJECT_BYTES)
    return read_system_object(key, body, node=parsed.node, minute=parsed.minute)


class SamplesAhead:
    """The samples of a profile's system objects, in the order in which they will be asked for."""

    def __init__(self, profile: Profile, order: Sequence[tuple[str, SystemKey]], pool: WorkerPool) -> None:
        bodies = _bodies(profile, [key for key, _ in order])
        tasks = ((key, parsed, body) for (key, parsed), body in zip(order, bodies, strict=True))
        self._results = pool.map(read_samples, tasks)
        self._keys = iter([key for key, _ in order])

    def take(self, key: str) -> Samples | Unreadable:
        """Return the next object's samples; it must be ``key``."""
        expected = next(self._keys)
        if key != expected:
            raise RuntimeError(f"object {key} was asked for, expected {expected}: the order is not the schedule's")
        return next(self._results)


class BodiesAhead:
    """The bytes of files that will be asked for in this order; another one is read when it is asked for."""

    def __init__(self, source: ProfileSource, names: Sequence[str]) -> None:
        self._source = source
        self._names = deque(names)
        on_disk = isinstance(source.files, FolderFiles)
        self._bodies = map(source.read, names) if on_disk else fetched(source.read, names)

    def read(self, name: str) -> bytes:
        if not self._names or self._names[0] != name:
            return self._source.read(name)
        self._names.popleft()
        return next(self._bodies)


def _bodies(profile: Profile, keys: Sequence[str]) -> Iterable[Path | bytes | Unreadable]:
    source = profile.source
    if isinstance(source.files, FolderFiles):
        paths = source.files.paths
        return (paths[profile.files[key]] for key in keys)

    def body(key: str) -> bytes | Unreadable:
        try:
            return source.read(profile.files[key])
        except ObjectMissingError as fault:
            return Unreadable(str(fault))

    return fetched(body, keys)


def fetched(read: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Yield ``read(item)`` in order, sixteen of them under way at once."""
    if not items:
        return
    threads = ThreadPoolExecutor(FETCHES, thread_name_prefix="fetch")
    try:
        yield from _ahead(lambda item: threads.submit(read, item).result, items, FETCHES)
    finally:
        threads.shutdown(cancel_futures=True)


def _ahead(submit: Callable[[T], Callable[[], R]], items: Iterable[T], at_once: int) -> Iterator[R]:
    """Yield results in order, of ``at_once`` items that are under way."""
    under_way: deque[Callable[[], R]] = deque()
    for item in items:
        under_way.append(submit(item))
        if len(under_way) >= at_once:
            yield under_way.popleft()()
    while under_way:
        yield under_way.popleft()()
