"""Buckets in memory, with a clock that tests set."""

import heapq
import threading
from collections.abc import Iterator, Sequence

from trainguard.adapters.memory.faults import Faults
from trainguard.errors import ObjectMissingError
from trainguard.ports import ListedObject

DELETE_BATCH_SIZE = 1_000


class MemoryProfileObjects:
    """Twin of S3ProfileObjects.

    Parameters
    ----------
    faults : Faults
        Switchboard.
    page_size : int
        Keys in a page of a listing.

    Attributes
    ----------
    now : float
        The clock of the twin in epoch seconds: an object's ``last_modified`` is its value at the ``put``.
    """

    def __init__(self, *, faults: Faults, page_size: int = 1000) -> None:
        self.now = 0.0
        self._faults = faults
        self._page_size = page_size
        self._lock = threading.RLock()
        self._buckets: dict[str, dict[str, tuple[ListedObject, bytes]]] = {}
        self._content_types: dict[tuple[str, str], str] = {}

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        """Return the object's bytes, at most ``max_bytes + 1`` of them."""
        with self._faults.call("ProfileObjects.get"), self._lock:
            held = self._buckets.get(bucket, {}).get(key)
            if held is None:
                raise ObjectMissingError(bucket, key)
            return held[1][: max_bytes + 1]

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """Iterate over the keys under ``prefix`` greater than ``start_after``, in UTF-8 order, page by page.

        As with S3, a page shows the bucket as it is when that page is asked for.
        """
        while True:
            with self._faults.call("ProfileObjects.list"), self._lock:
                # The order of code points, which Python compares, is the order of their UTF-8 bytes.
                names = (key for key in self._buckets.get(bucket, {}) if key.startswith(prefix) and key > start_after)
                found = heapq.nsmallest(self._page_size + 1, names)
                page = [self._buckets[bucket][name][0] for name in found[: self._page_size]]
            yield from page
            if len(found) <= self._page_size:
                return
            start_after = page[-1].key

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        """Write an object whole, at ``now``."""
        with self._faults.call("ProfileObjects.put"), self._lock:
            entry = ListedObject(key, self.now, len(body))
            self._buckets.setdefault(bucket, {})[key] = (entry, bytes(body))
            self._content_types[bucket, key] = content_type

    def folders(self, bucket: str, prefix: str) -> Iterator[str]:
        """Iterate over the names of the folders directly under ``prefix``."""
        with self._faults.call("ReportObjects.folders"), self._lock:
            below = (key.removeprefix(prefix) for key in self._buckets.get(bucket, {}) if key.startswith(prefix))
            found = sorted({name.partition("/")[0] for name in below if "/" in name})
        yield from found

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        """Delete objects, a thousand in a request."""
        for start in range(0, len(keys), DELETE_BATCH_SIZE):
            with self._faults.call("ReportObjects.delete"), self._lock:
                for key in keys[start : start + DELETE_BATCH_SIZE]:
                    self._buckets.get(bucket, {}).pop(key, None)

    def remove(self, bucket: str, key: str) -> None:
        """Delete an object, as a lifecycle rule would."""
        with self._lock:
            self._buckets.get(bucket, {}).pop(key, None)

    def content_type(self, bucket: str, key: str) -> str:
        """Return the content type that an object was written with."""
        with self._lock:
            return self._content_types[bucket, key]
