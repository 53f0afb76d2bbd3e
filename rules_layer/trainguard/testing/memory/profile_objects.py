"""Buckets in memory, with a clock that tests set."""

import hashlib
import heapq
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType

from trainguard.core.errors import ObjectMissingError
from trainguard.core.ports import ListedObject, check_range
from trainguard.testing.memory.faults import Faults

DELETE_BATCH_SIZE = 1_000


class MemoryByteStream:
    """Twin of S3ByteStream: the object as it was when it was opened."""

    def __init__(self, body: bytes, faults: Faults) -> None:
        self._rest = memoryview(body)
        self._faults = faults

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most ``size``; empty at the end."""
        with self._faults.call("ByteStream.read"):
            taken, self._rest = self._rest[:size], self._rest[size:]
            return bytes(taken)

    def __enter__(self) -> "MemoryByteStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._rest = memoryview(b"")


class MemoryProfileObjects:
    """Twin of S3ProfileObjects; ``page_size`` in keys, ``now`` is the clock of ``last_modified``, epoch seconds."""

    def __init__(self, *, faults: Faults, page_size: int = 1000) -> None:
        self.now = 0.0
        self._faults = faults
        self._page_size = page_size
        self._lock = threading.RLock()
        self._buckets: dict[str, dict[str, tuple[ListedObject, bytes]]] = {}
        self._content_types: dict[tuple[str, str], str] = {}

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        """Return the object's bytes, at most ``max_bytes + 1`` of them."""
        with self._faults.call("ProfileObjects.get"):
            return self._body(bucket, key)[: max_bytes + 1]

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from offset ``start`` on."""
        check_range(start, length)
        with self._faults.call("ProfileObjects.get_range"):
            return self._body(bucket, key)[start : start + length]

    def open_stream(self, bucket: str, key: str) -> "MemoryByteStream":
        """Open an object to be read from the front."""
        with self._faults.call("ProfileObjects.open_stream"):
            return MemoryByteStream(self._body(bucket, key), self._faults)

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """Iterate in UTF-8 order, page by page; as with S3, a page shows the bucket at its request."""
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
            etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
            entry = ListedObject(key, self.now, len(body), etag)
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
                    self._content_types.pop((bucket, key), None)

    def _body(self, bucket: str, key: str) -> bytes:
        with self._lock:
            held = self._buckets.get(bucket, {}).get(key)
        if held is None:
            raise ObjectMissingError(bucket, key)
        return held[1]

    def remove(self, bucket: str, key: str) -> None:
        """Delete an object, as a lifecycle rule would."""
        with self._lock:
            self._buckets.get(bucket, {}).pop(key, None)

    def content_type(self, bucket: str, key: str) -> str:
        """Return the content type that an object was written with."""
        with self._lock:
            return self._content_types[bucket, key]
