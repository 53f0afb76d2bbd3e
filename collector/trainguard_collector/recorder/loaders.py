"""A data loader whose batches are waited for: how long each of them took to come."""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Callable, Optional

from trainguard_collector.recorder.timeline import DATA_WAIT, LOADER_SETUP, EventLog, label_of

WAIT, SETUP = label_of(DATA_WAIT), label_of(LOADER_SETUP)


class WatchedLoader:
    """Iterates over another loader; all else is that loader's own."""

    def __init__(
        self,
        loader: Any,
        log: EventLog,
        wants: Optional[Callable[[str], bool]] = None,
        starting: "Callable[[Any], AbstractContextManager[None]]" = nullcontext,
    ) -> None:
        self._loader, self._log, self._wants, self._starting = loader, log, wants, starting

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches; what the loader raises is raised here."""
        record, clock, wants = self._log.record, time.monotonic_ns, self._wants
        waited = f'{{"pid":{os.getpid()}}}'
        with ExitStack() as starting:  # some loaders start their workers with the first batch
            starting.enter_context(self._starting(self._loader))
            began = clock()
            batches = iter(self._loader)
            record((SETUP, SETUP, began, clock(), setup_arguments(self._loader), 0))
            began = clock()
            try:
                batch = next(batches)
            except StopIteration:
                return
        while True:
            if wants is None or wants(WAIT):
                record((WAIT, WAIT, began, clock(), waited, 0))
            yield batch
            began = clock()
            try:
                batch = next(batches)
            except StopIteration:
                return

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._loader, name)


def setup_arguments(loader: Any) -> str:
    """Return what an event says about a loader, as JSON: workers and pinned memory where it has such settings."""
    parts = [f'"pid":{os.getpid()}']
    workers, pinned = getattr(loader, "num_workers", None), getattr(loader, "pin_memory", None)
    if isinstance(workers, int) and not isinstance(workers, bool) and workers >= 0:
        parts.append(f'"num_workers":{workers}')
    if isinstance(pinned, bool):
        parts.append(f'"pin_memory":{"true" if pinned else "false"}')
    return f"{{{','.join(parts)}}}"
