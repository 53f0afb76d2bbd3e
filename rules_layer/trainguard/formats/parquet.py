"""Columns of a flat Parquet file, as pandas, PyArrow, Spark and DuckDB write it: plain or with dictionaries.

Format: apache/parquet-format, ``parquet.thrift`` and ``Encodings.md``; google/snappy, ``format_description.txt``.
"""

import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from trainguard.core.errors import TelemetryFormatError

MAGIC = b"PAR1"
MOST_ROWS = 20_000_000
MOST_BYTES = 1 << 30
"""Of all chosen columns together, unpacked."""

Column = npt.NDArray[Any]

_CODECS = ("no compression", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4")
_NUMBERS = {1: "<i4", 2: "<i8", 4: "<f4", 5: "<f8"}
_BYTES = 6
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_PLAIN, _OLD_DICTIONARY, _RLE_DICTIONARY = 0, 2, 8
_DEEPEST = 16
_MOST_FIELDS = 10_000


def is_parquet(head: bytes) -> bool:
    return head.startswith(MAGIC)


def read_parquet(data: bytes, name: str, wanted: Collection[str]) -> dict[str, Column]:
    """Return the wanted columns that a file has: numbers, where one is missing as floats with NaN, or texts.

    Raises TelemetryFormatError of ``name`` where the file is damaged, or written in a form that is not read.
    """
    try:
        return _Reader(data, name).columns(wanted)
    except (AttributeError, IndexError, KeyError, ValueError, TypeError, OverflowError, zlib.error) as fault:
        raise TelemetryFormatError(name, f"is no whole Parquet file: {fault}") from fault


@dataclass(slots=True)
class _Reader:
    data: bytes
    name: str
    unpacked: int = field(default=0)

    def columns(self, wanted: Collection[str]) -> dict[str, Column]:
        if len(self.data) < 12 or self.data[-4:] != MAGIC:
            raise self._fault("ends before its footer")
        size = int.from_bytes(self.data[-8:-4], "little")
        if size > len(self.data) - 12:
            raise self._fault("has a damaged footer")
        about = _Compact(self.data[len(self.data) - 8 - size : -8]).struct()
        rows = about[3]
        if not 0 <= rows <= MOST_ROWS:
            raise self._fault(f"has {rows:,} rows, expected at most {MOST_ROWS:,}")
        optional = _flat_columns(about[2])
        found: dict[str, list[Column]] = {}
        for group in about[4]:
            for chunk in group[1]:
                column = chunk[3]
                path = b".".join(column[3]).decode("utf-8", "replace")
                if path in wanted and path in optional:
                    found.setdefault(path, []).append(self._chunk(column, path, optional[path]))
        columns = {path: np.concatenate(parts) for path, parts in found.items()}
        for path, column in columns.items():
            if len(column) != rows:
                raise self._fault(f"column {path!r} has {len(column):,} of {rows:,} rows")
        return columns

    def _chunk(self, about: Mapping[int, Any], path: str, is_optional: bool) -> Column:
        kind, codec, count = about[1], about[4], about[5]
        if kind not in _NUMBERS and kind != _BYTES:
            raise self._fault(f"column {path!r} has a type that is not read, expected numbers or texts")
        begin = min(about[9], about.get(11) or about[9])
        end = begin + about[7]
        if not 0 <= begin <= end <= len(self.data):
            raise self._fault(f"column {path!r} lies beyond the file's end")
        parts: list[Column] = []
        dictionary: Column | None = None
        at, left = begin, count
        while left > 0 and at < end:
            header = _Compact(self.data[at : min(end, at + (1 << 20))])
            page = header.struct()
            at += header.at
            packed = self.data[at : at + page[3]]
            at += page[3]
            if page[1] == _DICTIONARY:
                dictionary = _plain(self._unpacked(packed, codec, page[2]), kind, page[7][1])
            elif page[1] in {_DATA, _DATA_2}:
                part = self._page(page, packed, codec, kind, dictionary, is_optional, path)
                left -= len(part)
                parts.append(part)
        return np.concatenate(parts) if parts else np.empty(0, "<f8")

    def _page(
        self,
        page: Mapping[int, Any],
        packed: bytes,
        codec: int,
        kind: int,
        dictionary: Column | None,
        is_optional: bool,
        path: str,
    ) -> Column:
        there: npt.NDArray[np.int64] | None = None
        if page[1] == _DATA:
            count, encoding = page[5][1], page[5][2]
            data = self._unpacked(packed, codec, page[2])
            if is_optional:
                size = int.from_bytes(data[:4], "little")
                there, data = _hybrid(data[4 : 4 + size], 1, count), data[4 + size :]
        else:
            about = page[8]
            count, encoding, levels, repeated = about[1], about[4], about[5], about.get(6, 0)
            there = _hybrid(packed[repeated : repeated + levels], 1, count) if levels else None
            body = packed[repeated + levels :]
            size = page[2] - levels - repeated
            data = self._unpacked(body, codec if about.get(7, True) else 0, size)
        if not 0 <= count <= MOST_ROWS:
            raise self._fault(f"column {path!r} has a page of {count:,} values")
        values = count if there is None else int(there.sum())
        if encoding == _PLAIN:
            found = _plain(data, kind, values)
        elif encoding in {_OLD_DICTIONARY, _RLE_DICTIONARY} and dictionary is not None:
            found = dictionary[_hybrid(data[1:], data[0], values)] if values else dictionary[:0]
        else:
            raise self._fault(f"column {path!r} has encoding {encoding}, expected plain values or a dictionary")
        return found if there is None or values == count else _with_gaps(found, there)

    def _unpacked(self, packed: bytes, codec: int, size: int) -> bytes:
        self.unpacked += size
        if size < 0 or self.unpacked > MOST_BYTES:
            raise self._fault(f"has more than {MOST_BYTES:,} bytes in its columns")
        if codec == 0:
            return packed
        if codec == 1:
            return _snappy(packed, size)
        if codec == 2:
            return zlib.decompressobj(wbits=31).decompress(packed, size)
        named = _CODECS[codec] if 0 <= codec < len(_CODECS) else str(codec)
        raise self._fault(f"is packed with {named}, expected snappy, gzip or no compression; or write it as CSV")

    def _fault(self, reason: str) -> TelemetryFormatError:
        return TelemetryFormatError(self.name, reason)


def _flat_columns(schema: list[Mapping[int, Any]]) -> dict[str, bool]:
    """Return the columns that are not nested or repeated, and whether a value may be missing."""
    found = {}
    at = 1
    while at < len(schema):
        each = schema[at]
        if not each.get(5) and each.get(3, 0) != 2:
            found[each[4].decode("utf-8", "replace")] = each.get(3, 0) == 1
        at = _behind(schema, at)
    return found


def _behind(schema: list[Mapping[int, Any]], at: int) -> int:
    """Return the place behind a column and all that is nested in it."""
    left = 1
    while left:
        left += schema[at].get(5, 0) - 1
        at += 1
    return at


def _plain(data: bytes, kind: int, count: int) -> Column:
    if kind in _NUMBERS:
        return np.frombuffer(data, _NUMBERS[kind], count)
    return np.array(list(_texts(data, count)), dtype=object)


def _texts(data: bytes, count: int) -> Iterator[str]:
    at = 0
    for _ in range(count):
        size = int.from_bytes(data[at : at + 4], "little")
        at += 4 + size
        if at > len(data):
            raise ValueError("a text ends behind its page")
        yield data[at - size : at].decode("utf-8", "replace")


def _with_gaps(values: Column, there: npt.NDArray[np.int64]) -> Column:
    is_text = values.dtype == object
    found: Column = np.full(len(there), "" if is_text else np.nan, dtype=object if is_text else np.float64)
    found[there > 0] = values
    return found


def _hybrid(data: bytes, width: int, count: int) -> npt.NDArray[np.int64]:
    """Return numbers of ``width`` bits, of which runs are counted or packed."""
    if width > 32:
        raise ValueError(f"numbers of {width} bits, expected at most 32")
    found, left, read = [], count, _Compact(data)
    size = (width + 7) // 8
    while left > 0:
        run = read.unsigned()
        if run & 1:
            groups = run >> 1
            bits = np.unpackbits(np.frombuffer(read.take(groups * width), np.uint8), bitorder="little")
            part = bits.reshape(-1, width).astype(np.int64) @ (1 << np.arange(width)) if width else np.zeros(left, int)
        else:
            value = int.from_bytes(read.take(size), "little")
            part = np.full(min(run >> 1, left), value, np.int64)
        if not len(part):
            raise ValueError("a run of no numbers")
        found.append(part[:left])
        left -= len(part)
    return np.concatenate(found).astype(np.int64) if found else np.empty(0, np.int64)


def _snappy(data: bytes, size: int) -> bytes:
    read = _Compact(data)
    if read.unsigned() != size:
        raise ValueError("the size of a packed page differs from its header's")
    found = bytearray()
    while read.at < len(data) and len(found) <= size:
        tag = read.byte()
        sort = tag & 3
        if sort == 0:
            length = tag >> 2
            if length >= 60:
                length = int.from_bytes(read.take(length - 59), "little")
            found += read.take(length + 1)
            continue
        length = (tag >> 2 & 7) + 4 if sort == 1 else (tag >> 2) + 1
        back = (
            (tag >> 5 << 8) | read.byte() if sort == 1 else int.from_bytes(read.take(2 if sort == 2 else 4), "little")
        )
        if not 0 < back <= len(found):
            raise ValueError("a packed page points before its begin")
        begin = len(found) - back
        if back >= length:
            found += found[begin : begin + length]
        else:
            found += (bytes(found[begin:]) * (length // back + 1))[:length]
    if len(found) != size:
        raise ValueError(f"a packed page has {len(found):,} bytes, expected {size:,}")
    return bytes(found)


@dataclass(slots=True)
class _Compact:
    """Thrift's compact protocol: structs as mappings of the numbers of their fields."""

    data: bytes
    at: int = 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError("it ends in the middle of a value")
        self.at += size
        return self.data[self.at - size : self.at]

    def unsigned(self) -> int:
        found = shift = 0
        while shift < 64:
            byte = self.byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
        raise ValueError("a number of more than 64 bits")

    def signed(self) -> int:
        value = self.unsigned()
        return value >> 1 ^ -(value & 1)

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ValueError("its header is nested too deeply")
        found: dict[int, Any] = {}
        number = 0
        while len(found) < _MOST_FIELDS:
            head = self.byte()
            if head == 0:
                return found
            number = number + (head >> 4) if head >> 4 else self.signed()
            found[number] = (head & 15 == 1) if head & 15 in {1, 2} else self._value(head & 15, depth)
        raise ValueError("its header has too many fields")

    def _value(self, kind: int, depth: int) -> Any:
        if kind in {1, 2, 3}:
            return self.byte()
        if kind in {4, 5, 6}:
            return self.signed()
        if kind == 7:
            return self.take(8)
        if kind == 8:
            return self.take(self.unsigned())
        if kind in {9, 10}:
            head = self.byte()
            size = head >> 4 if head >> 4 < 15 else self.unsigned()
            if size > len(self.data):
                raise ValueError("a list is longer than its header")
            return [self._value(head & 15, depth + 1) for _ in range(size)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"its header has a value of kind {kind}")
