"""Tensors of a step to an event file and its index, in the layout of the SageMaker hook (``debug-output``).

A training process hands over what is quick to write: a line about the step, a line about its tensors, and their bytes.
The sampler makes frames of them, of which neither numpy nor protobuf is needed.
"""

import json
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from trainguard_collector.objects import DRAFT, object_name

MODES = {"TRAIN": "1", "EVAL": "2", "PREDICT": "3", "GLOBAL": "4"}
DTYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8, "int64": 9, "bool": 10,
    "complex128": 18, "float16": 19,
}  # fmt: skip
"""Numbers of types in a file, by their names in torch and numpy."""

_FOOTER = struct.pack("<I", 0x062DC0B3)
"""The hook writes this constant in place of the payload's checksum."""

_COPY_BYTES = 1024 * 1024


class Entry(NamedTuple):
    """One tensor of a step: ``dtype`` is one of DTYPES, ``size`` its bytes."""

    name: str
    dtype: int
    shape: "list[int]"
    size: int


def step_line(*, step: int, mode: str, mode_step: int, worker: str, at: float) -> bytes:
    """Return the first line of what a training process hands over; ``at`` in epoch seconds."""
    named = {"step": step, "mode": mode, "mode_step": mode_step, "worker": worker, "at": at}
    return json.dumps(named).encode() + b"\n"


def entries_line(entries: "list[Entry]") -> bytes:
    """Return the second line: the tensors, in the order of their bytes."""
    return json.dumps(entries).encode() + b"\n"


def encode_step(path: Path) -> None:
    """Write the event file and the index of what ``path`` holds beside it, as objects, and delete it.

    Raises
    ------
    ValueError
        When the file is not what a training process writes, or is cut off.
    """
    with path.open("rb") as file:
        about = json.loads(file.readline())
        entries = [Entry(*each) for each in json.loads(file.readline())]
        step, worker = int(about["step"]), str(about["worker"])
        if sum(entry.size for entry in entries) != path.stat().st_size - file.tell():
            raise ValueError(f"step {step} has other bytes than its tensors")
        events = f"events/{step:012d}/{step:012d}_{worker}.tfevents"
        target = path.parent / object_name(f"debug-output/{events}")
        draft = target.with_suffix(DRAFT)
        with draft.open("wb") as out:
            payload = [_write_frame(out, file, about, entry) for entry in entries]
        draft.replace(target)
    meta = {"mode": about["mode"], "mode_step": about["mode_step"], "event_file_name": events}
    index = json.dumps({"meta": meta, "tensor_payload": payload, "shape_payload": []}).encode()
    target = path.parent / object_name(f"debug-output/index/{step // 1000:09d}/{step:012d}_{worker}.json")
    draft = target.with_suffix(DRAFT)
    draft.write_bytes(index)
    draft.replace(target)
    path.unlink()


def _write_frame(out: BinaryIO, source: BinaryIO, about: "dict[str, Any]", entry: Entry) -> "dict[str, Any]":
    """Write one frame: length, its checksum, an Event with one tensor, footer; return its entry of the index."""
    tag = entry.name.encode()
    sizes = b"".join(_field(2, _number(1, n) + _field(2, b"%b_%d" % (tag, n))) for n in entry.shape)
    before_content = _number(1, entry.dtype) + _field(2, sizes) + _varint(4 << 3 | 2) + _varint(entry.size)
    tensor_length = len(before_content) + entry.size
    plugins = _plugins(MODES[about["mode"]], str(int(about["mode_step"])))
    head = _field(1, tag) + _varint(8 << 3 | 2) + _varint(tensor_length) + before_content
    value_length = len(head) + entry.size + len(plugins)
    head = _varint(1 << 3 | 2) + _varint(value_length) + head
    summary_length = len(head) + entry.size + len(plugins)
    step = int(about["step"])
    start = b"\x09" + struct.pack("<d", float(about["at"])) + (_number(2, step) if step else b"")
    head = start + _varint(5 << 3 | 2) + _varint(summary_length) + head
    length = len(head) + entry.size + len(plugins)
    began = out.tell()
    out.write(_header(length) + head)
    left = entry.size
    while left:
        piece = source.read(min(left, _COPY_BYTES))
        out.write(piece)
        left -= len(piece)
    out.write(plugins + _FOOTER)
    return {"tensorname": entry.name, "start_idx": began, "length": length + 16}


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
    """Return the CRC-32C (Castagnoli) of a few bytes."""
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
