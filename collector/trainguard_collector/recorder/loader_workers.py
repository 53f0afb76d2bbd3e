"""The data loaders of torch: how long a training waits for them, and how long batches take in their workers.

A worker is reached by ``worker_init_fn`` alone; a loader gets its own function back as soon as its workers run.
"""

import functools
import json
import multiprocessing.util
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, NamedTuple, Optional

from trainguard_collector.layout import recorder_key
from trainguard_collector.objects import SHARED, Handover, TimelineFile
from trainguard_collector.recorder.harmless import Faults, imported_torch, module, replaced
from trainguard_collector.recorder.loaders import SETUP, WAIT, setup_arguments
from trainguard_collector.recorder.steps import FORMAT_VERSION, StepRecorder
from trainguard_collector.recorder.timeline import EventLog

LABEL, NAME = "DataLoaderWorker", "DataLoaderWorker::Fetch"
_FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")
_clock = time.monotonic_ns


class Owner(NamedTuple):
    """The training process whose loader it is, and where that records; all of it can be pickled."""

    folder: str
    max_bytes: int
    job: str
    node: str
    process: str
    pid: int
    origin_us: int


class WorkerStart:
    """What torch calls in a worker: the script's own function, then what records there. It can be pickled."""

    def __init__(self, original: "Optional[Callable[[int], Any]]", owner: Owner) -> None:
        self.original, self.owner = original, owner

    def __call__(self, worker_id: int) -> None:
        if self.original is not None:
            self.original(worker_id)
        if os.getpid() != self.owner.pid:
            with suppress(Exception):
                _Worker(self.owner, worker_id).record()


class _Worker:
    def __init__(self, owner: Owner, worker_id: int) -> None:
        self._owner, self._number = owner, worker_id
        self._batches = 0
        self._is_fetching = False
        self.faults = Faults()
        self._handover = Handover(Path(owner.folder), owner.max_bytes)
        self._mark = self._handover.mark(owner.pid)
        self._log = EventLog(self._open, self.faults, origin_us=owner.origin_us)

    def record(self) -> None:
        fetchers = module("torch.utils.data._utils.fetch")
        for name in _FETCHERS:
            kind = getattr(fetchers, name)
            kind.fetch = self._timed(kind.fetch)
        # A worker ends without the functions of atexit.
        multiprocessing.util.Finalize(self, self._close, exitpriority=100)

    def _timed(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fetch)
        def timed(*arguments: Any, **named: Any) -> Any:
            if self._is_fetching:  # the dataset has a loader of its own
                return fetch(*arguments, **named)
            self._is_fetching = True
            began = _clock()
            try:
                batch = fetch(*arguments, **named)
            finally:
                self._is_fetching = False
            self._add(began)
            return batch

        return timed

    @property
    def _is_wanted(self) -> bool:
        """Return whether the training still records: what comes later would lie in the spool for nobody."""
        return self._mark.exists()

    def _add(self, began_ns: int) -> None:
        try:
            if not self._is_wanted:
                return
            arguments = f'{{"pid":{os.getpid()},"worker_id":{self._number},"batch":{self._batches}}}'
            self._batches += 1
            self._log.record((LABEL, NAME, began_ns, _clock(), arguments, self._number))
        except Exception as fault:
            self.faults.add("loader worker", fault)

    def _open(self, header: Callable[[], bytes]) -> TimelineFile:
        return TimelineFile(self._handover, f"{self._owner.process}{SHARED}", header)

    def _close(self) -> None:
        with suppress(Exception):
            if not self._is_wanted:
                return
            self._log.close()
            if self._log.dropped or self.faults.newest:
                self._say_what_was_lost()

    def _say_what_was_lost(self) -> None:
        owner, process = self._owner, f"{self._owner.process}{SHARED}{self._number}"
        status = {
            "format_version": FORMAT_VERSION,
            "job": owner.job,
            "node": owner.node,
            "process": process,
            "pid": os.getpid(),
            "updated_at": round(time.time(), 3),
            "dropped_events": self._log.dropped,
            "errors": dict(self.faults.newest),
            "error_counts": dict(self.faults.counts),
        }
        self._handover.put(recorder_key(owner.node, process), json.dumps(status).encode())


@contextmanager
def recorded_workers(recorder: StepRecorder, loader: Any) -> Iterator[None]:
    """Have the workers that a torch loader starts within the block record what they do."""
    is_changed, original = False, None
    try:
        of_torch = module("torch.utils.data")
        is_of_torch = of_torch is not None and isinstance(loader, of_torch.DataLoader)
        if is_of_torch and recorder.records_workers and loader.num_workers:
            original = loader.worker_init_fn
            settings, process = recorder.settings, recorder.rank.process
            owner = Owner(
                str(recorder.folder),
                settings.spool_mb * 1024 * 1024,
                settings.identity.job,
                settings.identity.node,
                process,
                os.getpid(),
                recorder.log.origin_us,
            )
            loader.worker_init_fn = WorkerStart(original, owner)
            is_changed = True
    except Exception as fault:
        recorder.faults.add("loader workers", fault)
    try:
        yield
    finally:
        if is_changed:
            loader.worker_init_fn = original


def time_loaders(recorder: StepRecorder) -> None:
    """Time ``next()`` of all iterators of torch's loaders, and their workers, until the recorder is closed."""
    loaders = imported_torch().utils.data.dataloader

    def timed_next(fetch: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(fetch)
        def timed(iterator: Any) -> Any:
            began = _clock()
            batch = fetch(iterator)
            try:
                if recorder.is_on and recorder.wants_wait(WAIT):
                    if not getattr(iterator, "_trainguard_is_known", False):
                        iterator._trainguard_is_known = True
                        workers, pinned = (
                            getattr(iterator, "_num_workers", None),
                            getattr(iterator, "_pin_memory", None),
                        )
                        known = setup_arguments(SimpleNamespace(num_workers=workers, pin_memory=pinned))
                        recorder.log.record((SETUP, SETUP, began, began, known, 0))
                    recorder.log.record((WAIT, WAIT, began, _clock(), f'{{"pid":{os.getpid()}}}', 0))
            except Exception as fault:
                recorder.faults.add("loaders", fault)
            return batch

        return timed

    def starting_workers(start: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(start)
        def starting(iterator: Any, loader: Any, *arguments: Any, **named: Any) -> None:
            with recorded_workers(recorder, loader):
                start(iterator, loader, *arguments, **named)

        return starting

    recorder.at_close.append(replaced(loaders._BaseDataLoaderIter, "__next__", timed_next))
    recorder.at_close.append(replaced(loaders._MultiProcessingDataLoaderIter, "__init__", starting_workers))
