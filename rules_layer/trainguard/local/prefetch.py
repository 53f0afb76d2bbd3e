"""Objects read ahead of their use: system metrics by other processes, objects of a bucket by threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainguard.core.errors import ObjectMissingError, TelemetryFormatError
from trainguard.formats.profile.keys import SystemKey
from trainguard.formats.profile.system import Samples, read_system_object
from trainguard.local.pool import WorkerPool
from trainguard.local.profile import Profile
from trainguard.local.sources import FolderFiles, ProfileSource, read_file

FETCHES = 16
"""At 3 MB a node-minute, 48 MB."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why nothing could be read of an object: what its reader raised, in a form that crosses processes."""

    reason: str
    foreseen: bool

    def error(self, key: str) -> Exception:
        """Return the error to raise for it where the object is used."""
        return TelemetryFormatError(key, self.reason) if self.foreseen else RuntimeError(self.reason)


@dataclass(frozen=True, slots=True)
class SystemTask:
    """One object of system metrics to parse; ``body`` is its file where that can be opened, else its bytes."""

    key: str
    node: str
    minute: int
    body: Path | bytes | Unreadable


def read_samples(task: SystemTask) -> Samples | Unreadable:
    """Parse one object; whatever is wrong with it is the result."""
    if isinstance(task.body, Unreadable):
        return task.body
    try:
        body = read_file(task.body) if isinstance(task.body, Path) else task.body
        return read_system_object(task.key, body, node=task.node, minute=task.minute)
    except TelemetryFormatError as fault:
        return Unreadable(fault.reason, foreseen=True)
    except Exception as fault:
        # As in the deployed stack, a reader that fails in a way nobody thought of costs its own object and no other.
        return Unreadable(f"{type(fault).__name__}: {fault}", foreseen=False)


class SamplesAhead:
    """The samples of a profile's system objects, in the order in which they will be asked for."""

    def __init__(self, profile: Profile, order: Sequence[tuple[str, SystemKey]], pool: WorkerPool) -> None:
        bodies = _bodies(profile, [key for key, _ in order])
        tasks = (
            SystemTask(key, parsed.node, parsed.minute, body) for (key, parsed), body in zip(order, bodies, strict=True)
        )
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
        """Return a file's content."""
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
            return Unreadable(str(fault), foreseen=False)

    return fetched(body, keys)


def fetched(read: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Yield ``read(item)`` in order, sixteen of them under way at once."""
    if not items:
        return
    threads = ThreadPoolExecutor(FETCHES, thread_name_prefix="fetch")
    try:
        under_way: deque[Future[R]] = deque()
        for item in items:
            under_way.append(threads.submit(read, item))
            if len(under_way) == FETCHES:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        threads.shutdown(cancel_futures=True)
