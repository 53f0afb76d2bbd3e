"""Writes debug-output as the SageMaker hook does, and event files as TensorFlow does, byte by byte.

Nothing of the readers is used here, so that a mistake of theirs is not made twice.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

HOOK_FOOTER = 0x062DC0B3
DTYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8, "int64": 9, "bool": 10,
    "uint16": 17, "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
MODES = {"TRAIN": "1", "EVAL": "2", "PREDICT": "3", "GLOBAL": "4"}
NOW = 1_763_300_000.0

# An array, a number, or a list of texts.
Entries = Any


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def field_of(number: int, content: bytes) -> bytes:
    """Return a field of bytes, or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def number_of(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def masked_crc(content: bytes) -> int:
    crc: int = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payload: bytes, *, footer: int | None = None) -> bytes:
    """Return a frame; its footer is the payload's checksum unless it is given."""
    length = struct.pack("<Q", len(payload))
    end = masked_crc(payload) if footer is None else footer
    return length + struct.pack("<I", masked_crc(length)) + payload + struct.pack("<I", end)


def tensor_proto(tag: str, entries: Entries) -> bytes:
    if isinstance(entries, list) and all(isinstance(each, str) for each in entries):
        shape = number_of(1, len(entries)) + field_of(2, f"{tag}_{len(entries)}".encode())
        texts = b"".join(field_of(8, each.encode()) for each in entries)
        return number_of(1, 0) + field_of(2, field_of(2, shape)) + texts
    array = np.ascontiguousarray(np.atleast_1d(np.asarray(entries)))
    sizes = b"".join(field_of(2, number_of(1, n) + field_of(2, f"{tag}_{n}".encode())) for n in array.shape)
    return number_of(1, DTYPES[array.dtype.name]) + field_of(2, sizes) + field_of(4, array.tobytes())


def hook_event(
    tag: str, entries: Entries, *, step: int, mode: str = "GLOBAL", mode_step: int, at: float = NOW
) -> bytes:
    """Return the payload of a frame of the hook."""
    plugins = b"".join(
        field_of(1, field_of(1, name) + field_of(2, content.encode()))
        for name, content in ((b"mode_step", str(mode_step)), (b"mode", MODES[mode]))
    )
    value = field_of(1, tag.encode()) + field_of(8, tensor_proto(tag, entries)) + field_of(9, plugins)
    return event(field_of(1, value), step=step, at=at)


def event(summary: bytes, *, step: int, at: float = NOW) -> bytes:
    """Return an Event; the step is left out where it is 0, as protobuf does."""
    return b"\x09" + struct.pack("<d", at) + (number_of(2, step) if step else b"") + field_of(5, summary)


def simple_scalar(tag: str, value: float) -> bytes:
    """Return a Summary with a ``simple_value``."""
    return field_of(1, field_of(1, tag.encode()) + b"\x15" + struct.pack("<f", value))


def tensor_scalar(tag: str, value: float, *, plugin: str | None = "scalars", packed: bool = False) -> bytes:
    """Return a Summary with a tensor without dimensions: its bytes, or ``float_val`` as torch writes it."""
    content = field_of(5, struct.pack("<f", value)) if packed else field_of(4, struct.pack("<f", value))
    metadata = b"" if plugin is None else field_of(9, field_of(1, field_of(1, plugin.encode())))
    tensor = number_of(1, 1) + field_of(2, b"") + content
    return field_of(1, field_of(1, tag.encode()) + field_of(8, tensor) + metadata)


@dataclass
class HookWriter:
    """Writes the files of one run into ``files``, by name; `save_to` puts them into a folder."""

    workers: int = 1
    true_checksums: bool = False
    files: dict[str, bytes] = field(default_factory=dict)

    def collections(
        self, by_name: Mapping[str, tuple[Sequence[str], Sequence[str]]] | None = None, *, worker: str = "worker_0"
    ) -> "HookWriter":
        """Write a worker's collections: by name the tensors that are listed, and the regular expressions."""
        described = {
            name: {
                "name": name,
                "include_regex": list(patterns),
                "tensor_names": list(listed),
                "reduction_config": None,
                "save_config": None,
                "save_histogram": True,
            }
            for name, (listed, patterns) in (by_name or {}).items()
        }
        content = {"collections": described, "_meta": {"num_workers": self.workers}}
        self.files[f"collections/000000000/{worker}_collections.json"] = json.dumps(content).encode()
        return self

    def step(
        self,
        step: int,
        tensors: Mapping[str, Entries],
        *,
        worker: str = "worker_0",
        mode: str = "GLOBAL",
        mode_step: int | None = None,
        at: float = NOW,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> "HookWriter":
        """Write what a worker saves at a step: the event file, then its index."""
        within = step if mode_step is None else mode_step
        events = bytearray()
        payload = []
        for tag, entries in tensors.items():
            content = hook_event(tag, entries, step=step, mode=mode, mode_step=within, at=at)
            written = frame(content, footer=None if self.true_checksums else HOOK_FOOTER)
            payload.append({"tensorname": tag, "start_idx": len(events), "length": len(written)})
            events += written
        name = f"events/{step:012d}/{step:012d}_{worker}.tfevents"
        meta: dict[str, Any] = {"mode": mode, "mode_step": within}
        if tensors:
            self.files[name] = bytes(events)
            meta["event_file_name"] = name
        index = {
            "meta": meta,
            "tensor_payload": payload,
            "shape_payload": [
                {"tensorname": tag, "originalname": tag, "shape": list(shape)} for tag, shape in (shapes or {}).items()
            ],
        }
        self.files[f"index/{step // 1000:09d}/{step:012d}_{worker}.json"] = json.dumps(index).encode()
        return self

    def end(self) -> "HookWriter":
        """Write the mark of the run's end."""
        self.files["training_job_end.ts"] = b""
        return self

    def save_to(self, folder: Path) -> Path:
        """Write the files below a folder, and return it."""
        for name, content in self.files.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        return folder
