"""Waits for the data loaders of torch, in loops that the script does not write itself."""

import functools
import os
import time
from typing import Any, Callable

from trainguard_collector.recorder.harmless import imported_torch
from trainguard_collector.recorder.loaders import SETUP, WAIT, setup_arguments
from trainguard_collector.recorder.recorder import Recorder

_clock = time.monotonic_ns


class TimedLoaders:
    """Times ``next()`` of all iterators of torch's loaders, and their workers, until the recorder is closed."""

    def __init__(self, recorder: Recorder) -> None:
        loaders = imported_torch().utils.data.dataloader
        self._iterator = loaders._BaseDataLoaderIter
        self._next = self._iterator.__next__
        self._timed = _timed(self._next, recorder)
        self._iterator.__next__ = self._timed
        self._with_workers = loaders._MultiProcessingDataLoaderIter
        self._start = self._with_workers.__init__
        self._starting = _starting(self._start, recorder)
        self._with_workers.__init__ = self._starting
        recorder.at_close.append(self._close)

    def _close(self) -> None:
        if self._iterator.__next__ is self._timed:  # else somebody has replaced it since; it calls through
            self._iterator.__next__ = self._next
        if self._with_workers.__init__ is self._starting:
            self._with_workers.__init__ = self._start


class _Settings:
    """What an iterator says of its loader."""

    def __init__(self, iterator: Any) -> None:
        self.num_workers = getattr(iterator, "_num_workers", None)
        self.pin_memory = getattr(iterator, "_pin_memory", None)


def _starting(start: Callable[..., None], recorder: Recorder) -> Callable[..., None]:
    @functools.wraps(start)
    def starting(iterator: Any, loader: Any, *arguments: Any, **named: Any) -> None:
        with recorder.starting_workers(loader):
            start(iterator, loader, *arguments, **named)

    return starting


def _timed(fetch: Callable[[Any], Any], recorder: Recorder) -> Callable[[Any], Any]:
    @functools.wraps(fetch)
    def timed(iterator: Any) -> Any:
        began = _clock()
        batch = fetch(iterator)
        try:
            if recorder.is_on and recorder.wants_wait(WAIT):
                if not getattr(iterator, "_trainguard_is_known", False):
                    iterator._trainguard_is_known = True
                    recorder.log.record((SETUP, SETUP, began, began, setup_arguments(_Settings(iterator)), 0))
                recorder.log.record((WAIT, WAIT, began, _clock(), f'{{"pid":{os.getpid()}}}', 0))
        except Exception as fault:
            recorder.faults.add("loaders", fault)
        return batch

    return timed
