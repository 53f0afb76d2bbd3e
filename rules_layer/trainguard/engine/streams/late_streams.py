"""Streams that are opened one after the other, when each is first asked for."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from trainguard.engine.streams.session import Stream
from trainguard.records import StreamKey


class LateStreams(Mapping[StreamKey, Stream]):
    """Streams by key, in the order of ``keys``; raises StateCodecError when the item of one cannot be decoded."""

    def __init__(self, keys: Iterable[StreamKey], open_stream: Callable[[StreamKey], Stream]) -> None:
        self._opened: dict[StreamKey, Stream | None] = dict.fromkeys(keys)
        self._open = open_stream

    def __getitem__(self, key: StreamKey) -> Stream:
        stream = self._opened[key]
        if stream is None:
            stream = self._opened[key] = self._open(key)
        return stream

    def __iter__(self) -> Iterator[StreamKey]:
        return iter(self._opened)

    def __len__(self) -> int:
        return len(self._opened)

    def opener(self, key: StreamKey) -> Callable[[], Stream]:
        """Return what opens a stream once more, beside the one that is held, and holds none itself."""
        return partial(self._open, key)

    def in_order(self, keys: Iterable[StreamKey]) -> "LateStreams":
        """Return streams that are still to be opened, in another order."""
        return LateStreams(keys, self._open)
