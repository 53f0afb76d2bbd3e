"""An adapter in memory, with a place where a test lets its calls fail."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext


class Calls:
    """Surrounds each request that the AWS adapter of a twin would make; here nothing goes wrong."""

    def call(self, operation: str, *, item: str = "", version: int = 0) -> AbstractContextManager[None]:
        del operation, item, version
        return nullcontext()


class Twin:
    """An adapter in memory; thread-safe, its conditional writes are atomic."""

    def __init__(self, *, faults: Calls) -> None:
        self._faults = faults
        self._lock = threading.RLock()

    @contextmanager
    def _call(self, operation: str, *, item: str = "", version: int = 0) -> Iterator[None]:
        with self._faults.call(operation, item=item, version=version), self._lock:
            yield
