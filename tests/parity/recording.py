"""The recorded parity cases as one small file, and back to the bytes of every profile file.

System files are kept as columns, because their text is mostly noise with two decimals; framework files and the
original's reports as they are. Files that cases share are kept once. ``pack`` refuses what ``unpack`` would not give
back exactly.
"""

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

# Times of these days are float64 multiples of 2^-22 s.
TICKS_PER_S = 2**22

_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 64 * 2**20}]


class _Line(msgspec.Struct):
    Type: str
    Name: str
    Dimension: str
    Value: float
    NodeId: str
    Timestamp: float


_LINES = msgspec.json.Decoder(_Line)
_Series = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """A profile's files by path, the parameters that were set, and the reports that the original wrote."""

    name: str
    settings: Mapping[str, Any]
    files: Mapping[str, bytes]
    expected: Mapping[str, Any]

    def names(self) -> list[str]:
        """Return the paths in order."""
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""
        return self.files[name]


class _StoredCase(msgspec.Struct):
    name: str
    settings: str
    files: dict[str, tuple[str, int]]
    expected: str


class _Stored(msgspec.Struct):
    """All cases; the columns are those of all system files, one after the other.

    ``lengths`` holds the lines of each system file (int32); ``line_series`` the series of each line (uint8);
    ``values`` hundredths by dimension, file and series (int32, as four planes of bytes); ``run_lengths`` lines of one
    time in a row (int32), ``run_ticks`` their times as differences (int64).
    """

    series: list[_Series]
    lengths: bytes
    line_series: bytes
    values: bytes
    run_lengths: bytes
    run_ticks: bytes
    framework: list[bytes]
    cases: list[_StoredCase]


def pack(cases: list[Case]) -> bytes:
    """Return the recording of ``cases``; ValueError when it would not give every byte back."""
    system: dict[bytes, int] = {}
    framework: dict[bytes, int] = {}
    stored = []
    for case in cases:
        files = {}
        for name in case.names():
            body = case.files[name]
            kind, known = ("system", system) if "/incremental/" in name else ("framework", framework)
            files[name] = (kind, known.setdefault(body, len(known)))
        stored.append(_StoredCase(case.name, json.dumps(case.settings), files, json.dumps(case.expected)))
    recording = _columns(list(system), list(framework), stored)
    for body, text in zip(system, _system_files(recording), strict=True):
        if body != text:
            raise ValueError(f"a system file cannot be recorded, it begins with {body[:200]!r}")
    return lzma.compress(msgspec.msgpack.encode(recording), filters=_FILTERS)


def unpack(packed: bytes) -> list[Case]:
    """Return the recorded cases."""
    recording = msgspec.msgpack.decode(lzma.decompress(packed), type=_Stored)
    bodies = {"system": list(_system_files(recording)), "framework": recording.framework}
    return [
        Case(
            case.name,
            json.loads(case.settings),
            {name: bodies[kind][index] for name, (kind, index) in case.files.items()},
            json.loads(case.expected),
        )
        for case in recording.cases
    ]


def _columns(system: list[bytes], framework: list[bytes], cases: list[_StoredCase]) -> _Stored:
    lines = [_LINES.decode_lines(body) for body in system]
    every = [line for file in lines for line in file]
    table: dict[_Series, int] = {}
    of_line = [table.setdefault((line.Type, line.Name, line.Dimension, line.NodeId), len(table)) for line in every]
    line_series = np.array(of_line, dtype=np.uint8)
    lengths = np.array([len(file) for file in lines], dtype=np.int32)
    hundredths = np.rint(np.array([line.Value for line in every]) * 100).astype(np.int32)
    ticks = (np.array([line.Timestamp for line in every]) * TICKS_PER_S).astype(np.int64)
    starts = np.flatnonzero(_changes(ticks, _file_of_line(lengths)))
    order = _value_order(list(table), line_series, lengths)
    return _Stored(
        series=list(table),
        lengths=lengths.tobytes(),
        line_series=line_series.tobytes(),
        values=hundredths[order].view(np.uint8).reshape(-1, 4).T.tobytes(),
        run_lengths=np.diff(starts, append=len(every)).astype(np.int32).tobytes(),
        run_ticks=np.diff(ticks[starts], prepend=0).tobytes(),
        framework=framework,
        cases=cases,
    )


def _changes(ticks: NDArray[np.int64], files: NDArray[np.int64]) -> NDArray[np.bool_]:
    changes: NDArray[np.bool_] = (np.diff(ticks, prepend=-1) != 0) | (np.diff(files, prepend=-1) != 0)
    return changes


def _file_of_line(lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(lengths)), lengths)


def _value_order(
    series: list[_Series], line_series: NDArray[np.uint8], lengths: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Order lines by dimension, file and series: what is alike comes together."""
    dimensions = np.array([sorted({item[2] for item in series}).index(item[2]) for item in series])
    return np.lexsort((line_series, _file_of_line(lengths), dimensions[line_series]))


def _system_files(recording: _Stored) -> Iterator[bytes]:
    """Write every system file's text from the columns."""
    lengths = np.frombuffer(recording.lengths, dtype=np.int32)
    line_series = np.frombuffer(recording.line_series, dtype=np.uint8)
    planes = np.frombuffer(recording.values, dtype=np.uint8).reshape(4, -1).T
    values = np.empty(len(line_series), dtype=np.int32)
    order = _value_order(recording.series, line_series, lengths)
    values[order] = np.ascontiguousarray(planes).view(np.int32).ravel()
    ticks = np.cumsum(np.frombuffer(recording.run_ticks, dtype=np.int64))
    times = [repr(tick / TICKS_PER_S) for tick in ticks.tolist()]
    run_of_line = np.repeat(np.arange(len(times)), np.frombuffer(recording.run_lengths, dtype=np.int32)).tolist()
    heads = [f'{{"Type":"{kind}","Name":"{name}","Dimension":"{of}","Value":' for kind, name, of, _ in recording.series]
    tails = [f',"NodeId":"{node}","Timestamp":' for *_, node in recording.series]
    numbers = (values / 100).tolist()
    series = line_series.tolist()
    start = 0
    for length in lengths.tolist():
        part = slice(start, start + length)
        start += length
        text = "".join(
            f"{heads[of]}{number!r}{tails[of]}{times[run]}}}\n"
            for of, number, run in zip(series[part], numbers[part], run_of_line[part], strict=True)
        )
        yield text.encode()
