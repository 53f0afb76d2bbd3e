"""What a server has read for its agents: a few readings, each made once, and none waited for without end."""

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillReading
from threading import Lock

from trainguard.cli.commands.mcp.places import Place, Places
from trainguard.cli.services.readings import Reading
from trainguard.core.errors import RequestError

# Readings that are kept, and seconds for which that of a place elsewhere is true.
KEPT = 8
FRESH_S = 60.0

# Seconds that a call waits; the reading goes on, and a later call gets it.
PATIENCE_S = 100.0

_Key = tuple[str, str]


class Session:
    """Readings by place and version; ``read`` reads a place, one at a time."""

    def __init__(self, places: Places, read: Callable[[str], Reading], *, patience_s: float = PATIENCE_S) -> None:
        self.places = places
        self._read = read
        self._patience_s = patience_s
        self._kept: OrderedDict[_Key, Future[Reading]] = OrderedDict()
        self._lock = Lock()
        self._reader = ThreadPoolExecutor(1, "trainguard-mcp")

    def reading(self, source: str) -> Reading:
        """Return what was read at a source; raises RequestError where it may not be, or is still being read."""
        place = self.places.find(source)
        try:
            return self._begun(place).result(self._patience_s)
        except StillReading:
            raise RequestError(f"{source!r} is still being read", "Call again in a minute.") from None

    def _begun(self, place: Place) -> Future[Reading]:
        key = (place.text, place.version or str(int(time.time() // FRESH_S)))
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None or (found.done() and found.exception() is not None):
                found = self._reader.submit(self._read, place.text)
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return found

    @property
    def readings(self) -> list[Reading]:
        """Return what has been read, the newest last."""
        with self._lock:
            done = [each for each in self._kept.values() if each.done() and not each.cancelled()]
        return [each.result() for each in done if each.exception() is None]

    def close(self) -> None:
        self._reader.shutdown(wait=False, cancel_futures=True)
