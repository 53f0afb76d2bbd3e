"""Tensors of a step to an event file and its index, in the layout of the SageMaker hook (``debug-output``).

A training process hands over what is quick to write; the sampler makes frames of it, without numpy or protobuf.
"""

import json
import struct
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Union

from trainguard_collector.objects import DRAFT, object_name

MODES = {"TRAIN": "1", "EVAL": "2", "PREDICT": "3", "GLOBAL": "4"}
# Numbers by their names in torch and numpy.
DTYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8, "int64": 9, "bool": 10,
    "complex128": 18, "float16": 19,
}  # fmt: skip

# The hook writes this constant in place of the payload's checksum.
_FOOTER = struct.pack("<I", 0x062DC0B3)

_COPY_BYTES = 1024 * 1024
# Stands where the tensor's name is, in parts of a frame.
_NAME = b"name"


class Entry(NamedTuple):
    """One tensor of a step: ``dtype`` is one of DTYPES, ``size`` its bytes."""

    name: str
    dtype: int
    shape: "list[int]"
    size: int


class Reductions(NamedTuple):
    """Reductions of tensors: a float32 for each name and kind, name by name; the hook makes a tensor of each."""

    names: "list[str]"
    kinds: "list[str]"

    def entries(self) -> "list[Entry]":
        kinds = [f"smdebug/reductions/{kind}/" for kind in self.kinds]
        return [Entry(kind + name, DTYPES["float32"], [1], 4) for name in self.names for kind in kinds]


def step_line(*, step: int, mode: str, mode_step: int, worker: str, at: float) -> bytes:
    """Return the first line of what a training process hands over; ``at`` in epoch seconds."""
    named = {"step": step, "mode": mode, "mode_step": mode_step, "worker": worker, "at": at}
    return json.dumps(named).encode() + b"\n"


def entry_text(entry: "Union[Entry, Reductions]") -> str:
    return json.dumps(entry)


def entries_line(texts: "Iterable[str]") -> bytes:
    """Return the second line of what is handed over, from the text of each entry."""
    return f"[{', '.join(texts)}]\n".encode()


def _entries(line: bytes) -> "list[Entry]":
    found: list[Entry] = []
    for each in json.loads(line):
        found += Reductions(*each).entries() if len(each) == len(Reductions._fields) else [Entry(*each)]
    return found


def encode_step(path: Path) -> None:
    """Make event file and index of what ``path`` holds, and delete it; raises ValueError for damaged contents."""
    with path.open("rb") as file:
        about = json.loads(file.readline())
        entries = _entries(file.readline())
        step, worker = int(about["step"]), str(about["worker"])
        if sum(entry.size for entry in entries) != path.stat().st_size - file.tell():
            raise ValueError(f"step {step} has other bytes than its tensors")
        events = f"events/{step:012d}/{step:012d}_{worker}.tfevents"
        target = path.parent / object_name(f"debug-output/{events}")
        draft = target.with_suffix(DRAFT)
        with draft.open("wb") as out:
            payload = _write_frames(out, file, entries, about)
        draft.replace(target)
    meta = {"mode": about["mode"], "mode_step": about["mode_step"], "event_file_name": events}
    index = f'{{"meta": {json.dumps(meta)}, "tensor_payload": [{payload}], "shape_payload": []}}'.encode()
    target = path.parent / object_name(f"debug-output/index/{step // 1000:09d}/{step:012d}_{worker}.json")
    draft = target.with_suffix(DRAFT)
    draft.write_bytes(index)
    draft.replace(target)
    path.unlink()


def _write_frames(out: BinaryIO, source: BinaryIO, entries: "list[Entry]", about: "dict[str, Any]") -> str:
    """Write length, its checksum, an Event and footer for each tensor; return the entries of the index."""
    step = int(about["step"])
    start = b"\x09" + struct.pack("<d", float(about["at"])) + (_number(2, step) if step else b"")
    plugins = _plugins(MODES[about["mode"]], str(int(about["mode_step"])))
    heads: dict[tuple[int, int, int, tuple[int, ...]], tuple[int, tuple[bytes, ...]]] = {}
    after, quoted, began = plugins + _FOOTER, json.encoder.encode_basestring_ascii, 0
    lines = []
    for entry in entries:
        tag = entry.name.encode()
        kind = len(tag), entry.size, entry.dtype, tuple(entry.shape)
        found = heads.get(kind)
        if found is None:
            found = heads[kind] = _head(*kind, start, len(plugins))
        length, around = found
        out.write(tag.join(around))
        left = entry.size
        while left:
            piece = source.read(min(left, _COPY_BYTES))
            out.write(piece)
            left -= len(piece)
        out.write(after)
        lines.append(f'{{"tensorname": {quoted(entry.name)}, "start_idx": {began}, "length": {length}}}')
        began += length
    return ", ".join(lines)


def _head(
    tag: int, size: int, dtype: int, shape: "tuple[int, ...]", start: bytes, plugins: int
) -> "tuple[int, tuple[bytes, ...]]":
    """Return a frame's length, and what lies around the tensor's name; frames of one kind differ in the name alone."""
    names = [_part(2, [_number(1, n), *_part(2, [_NAME, b"_%d" % n], tag)], tag) for n in shape]
    dimensions = _part(2, [part for each in names for part in each], tag)
    tensor = [_number(1, dtype), *dimensions, _varint(4 << 3 | 2) + _varint(size)]
    value = _part(1, [*_part(1, [_NAME], tag), *_part(8, tensor, tag, size)], tag, size + plugins)
    event = [start, *_part(5, value, tag, size + plugins)]
    length = _length(event, tag) + size + plugins
    around = [b""]
    for part in [_header(length), *event]:
        if part is _NAME:
            around.append(b"")
        else:
            around[-1] += part
    return length + 16, tuple(around)


def _part(number: int, content: "list[bytes]", tag: int, more: int = 0) -> "list[bytes]":
    """Return a field of which ``more`` bytes follow after ``content``."""
    return [_varint(number << 3 | 2) + _varint(_length(content, tag) + more), *content]


def _length(parts: "list[bytes]", tag: int) -> int:
    return sum(tag if part is _NAME else len(part) for part in parts)


@lru_cache(maxsize=64)
def _plugins(mode: str, mode_step: str) -> bytes:
    both = ((b"mode_step", mode_step), (b"mode", mode))
    return _field(9, b"".join(_field(1, _field(1, name) + _field(2, text.encode())) for name, text in both))


@lru_cache(maxsize=4096)
def _header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    crc = _crc32c(packed)
    return packed + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)
