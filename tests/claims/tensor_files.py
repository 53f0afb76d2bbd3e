"""The saved tensors of a run, read from its folder by a reader of their own: the hook's event files, byte by byte."""

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
TRAIN, EVAL, GLOBAL = "TRAIN", "EVAL", "GLOBAL"

_DTYPES = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 8: "<c8", 9: "<i8", 10: "?", 17: "<u2", 18: "<c16",
    19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip
_TEXT = 0
_MODES = {"1": TRAIN, "2": EVAL, "3": "PREDICT", "4": GLOBAL}
_REDUCTION = re.compile(r"smdebug/reductions/((?:abs_)?[a-z0-9]+)/(.+)")


@dataclass
class Step:
    """What was saved at a step: its tensors by name, and of others alone reductions, by tensor and by kind."""

    number: int
    mode: str
    mode_step: int
    at: float
    tensors: dict[str, Array] = field(default_factory=dict)
    reductions: dict[str, dict[str, float]] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted({*self.tensors, *self.reductions})

    def reduction(self, name: str, kind: str) -> float | None:
        """Return a reduction that was saved of a tensor."""
        return self.reductions.get(name, {}).get(kind)


@dataclass
class TensorRun:
    """A run: its steps in order, and its collections, each of listed names and of patterns."""

    steps: list[Step]
    collections: dict[str, tuple[set[str], list[str]]]

    def members(self, step: Step, collection: str) -> list[str]:
        """Return the tensors of a step that a collection holds, sorted."""
        listed, patterns = self.collections.get(collection, (set(), []))
        return [name for name in step.names if name in listed or any(re.search(each, name) for each in patterns)]

    def matching(self, step: Step, patterns: str) -> list[str]:
        """Return the tensors of a step in which one of the patterns, separated by commas, is found, sorted."""
        return [name for name in step.names if any(re.search(each, name) for each in patterns.split(","))]


def read_tensors(folder: Path) -> TensorRun:
    """Return what the hook saved below a folder's ``debug-output``; of two workers the first one's tensor counts."""
    place = folder / "debug-output"
    steps: dict[int, Step] = {}
    for file in sorted(place.glob("events/*/*.tfevents"), key=lambda each: each.name):
        for payload in _frames(file.read_bytes()):
            _take(steps, payload)
    collections: dict[str, tuple[set[str], list[str]]] = {}
    for file in sorted(place.glob("collections/*/*_collections.json")):
        for name, each in json.loads(file.read_text("utf-8"))["collections"].items():
            listed, patterns = collections.setdefault(name, (set(), []))
            listed |= set(each["tensor_names"])
            patterns += [text for text in each["include_regex"] if text not in patterns]
    return TensorRun([steps[number] for number in sorted(steps)], collections)


def _take(steps: dict[int, Step], payload: bytes) -> None:
    event = fields(payload)
    number = int(event.get(2, [0])[0])
    value = fields(fields(event[5][0])[1][0])
    tag = value[1][0].decode()
    about = [fields(each) for each in fields(value[9][0]).get(1, [])]
    told = {each[1][0].decode(): each[2][0].decode() for each in about}
    at = struct.unpack("<d", event[1][0])[0]
    step = steps.setdefault(number, Step(number, _MODES[told["mode"]], int(told["mode_step"]), at))
    array, reduction = _array(value[8][0]), _REDUCTION.fullmatch(tag)
    if reduction is None:
        step.tensors.setdefault(tag, array)
    else:
        step.reductions.setdefault(reduction[2], {}).setdefault(reduction[1], float(array.ravel()[0]))


def _array(content: bytes) -> Array:
    """Return a TensorProto's entries; text as an array of objects."""
    tensor = fields(content)
    shape = tuple(int(fields(size).get(1, [0])[0]) for size in fields(tensor[2][0]).get(2, []))
    dtype = int(tensor.get(1, [_TEXT])[0])
    if dtype == _TEXT:
        return np.array([text.decode() for text in tensor.get(8, [])], dtype=object)
    return np.frombuffer(tensor[4][0], dtype=_DTYPES[dtype]).reshape(shape)


def _frames(content: bytes) -> Iterator[bytes]:
    """Yield the payloads of a record file: a length and its checksum stand before each, a checksum behind it."""
    place = 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        yield content[place + 12 : place + 12 + length]
        place += 12 + length + 4


def fields(message: bytes) -> dict[int, list[Any]]:
    """Return the fields of a protobuf message by number: whole numbers, or bytes."""
    found: dict[int, list[Any]] = {}
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        value: Any
        if wire == 0:
            value, place = _varint(message, place)
        else:
            size, place = _varint(message, place) if wire == 2 else ({1: 8, 5: 4}[wire], place)
            value, place = message[place : place + size], place + size
        found.setdefault(number, []).append(value)
    return found


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
