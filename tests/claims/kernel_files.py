"""Kernel traces in their three formats, read by readers of their own: PyTorch's JSON, Nsight's SQLite, XLA's planes."""

import json
import math
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.claims.tensor_files import fields

HOST, CALL, KERNEL, COPY, SET = "host", "call", "kernel", "copy", "set"
_CATEGORIES = {
    "user_annotation": HOST,
    "cpu_op": HOST,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "gpu_memset": SET,
}
_WAYS = {1: "HtoD", 2: "DtoH", 8: "DtoD"}
_ENDS = {0: "Pageable", 1: "Pinned", 2: "Device"}
_PUSH_POP = 59
_VERSION = re.compile(r"_v\d+$")
_RANK = re.compile(r"rank(\d+)")


@dataclass(frozen=True)
class Event:
    """An event: nanoseconds, and of work of a GPU which one it is of and which call has started it."""

    category: str
    name: str
    start: int
    end: int
    correlation: int = 0
    device: int = 0
    blocks: float = math.nan
    bytes: int = -1
    # What is sent: its name, its group, and how many ranks are in it.
    collective: tuple[str, str, int] = ("", "", 0)

    is_operator: bool = False
    dims: tuple[tuple[int, ...], ...] = ()
    types: tuple[str, ...] = ()
    strides: tuple[tuple[int, ...], ...] = ()

    @property
    def lasts(self) -> int:
        """How long it takes."""
        return self.end - self.start

    @property
    def sends(self) -> bool:
        """Whether it is a kernel that communicates."""
        return self.category == KERNEL and (self.name.startswith("nccl") or bool(self.collective[0]))

    @property
    def computes(self) -> bool:
        """Whether it is another kernel."""
        return self.category == KERNEL and not self.sends

    @property
    def copies(self) -> bool:
        """Whether it copies or sets memory."""
        return self.category in {COPY, SET}


@dataclass(frozen=True)
class Card:
    """A GPU as a trace describes it: its name, compute capability, bytes of memory and multiprocessors."""

    name: str
    capability: tuple[int, int]
    memory: int
    sms: int


@dataclass
class Recording:
    """What a file holds; ``reserved`` are the most bytes of a GPU's memory that were in use, by its number.

    ``memory`` are events of its allocator: time, address, size, and what is allocated and reserved then.
    """

    file: str
    framework: str
    rank: int | None
    events: list[Event] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    reserved: dict[int, int] = field(default_factory=dict)
    memory: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    backend: str = ""


def read_recordings(folder: Path) -> list[Recording]:
    """Return the traces of a job's folder, by rank, those without one last."""
    found = []
    for file in sorted((folder / "kernel-traces").iterdir()):
        if file.name.endswith(".sqlite"):
            found.append(_nsight(file))
        elif file.name.endswith(".xplane.pb"):
            found.append(_xla(file))
        else:
            found.append(_pytorch(file))
    return sorted(found, key=lambda each: (each.rank is None, each.rank or 0, each.file))


def _named_rank(file: Path) -> int | None:
    match = _RANK.search(file.name)
    return int(match[1]) if match else None


def _pytorch(file: Path) -> Recording:
    document = json.loads(file.read_text("utf-8"))
    about = document.get("distributedInfo", {})
    recording = Recording(file.name, "pytorch", about.get("rank", _named_rank(file)), backend=about.get("backend", ""))
    recording.cards = [
        Card(each["name"], (each["computeMajor"], each["computeMinor"]), each["totalGlobalMem"], each["numSms"])
        for each in document["deviceProperties"]
    ]
    for each in document["traceEvents"]:
        said = each.get("args", {})
        if each["name"] == "[memory]" and said["Device Type"] == 1:
            _reserve(recording, said["Device Id"], said["Total Reserved"])
            if "Bytes" in said:
                held = said["Total Allocated"], said["Total Reserved"]
                recording.memory.append((round(1_000 * each["ts"]), said["Addr"], said["Bytes"], *held))
        elif each.get("ph") == "X" and each["cat"] in _CATEGORIES:
            start = round(1_000 * each["ts"])
            event = Event(
                _CATEGORIES[each["cat"]],
                each["name"],
                start,
                start + round(1_000 * each["dur"]),
                correlation=said.get("correlation", 0),
                device=said.get("device", 0),
                blocks=said.get("blocks per SM", math.nan),
                bytes=said.get("bytes", 2 * max(said.get("In msg nelems", 0), said.get("Out msg nelems", 0)) or -1),
                collective=(
                    said.get("Collective name", ""), said.get("Process Group Name", ""), said.get("Group size", 0)
                ),
                is_operator=each["cat"] == "cpu_op",
                dims=tuple(map(tuple, said.get("Input Dims", []))),
                types=tuple(said.get("Input type", [])),
                strides=tuple(map(tuple, said.get("Input Strides", []))),
            )  # fmt: skip
            recording.events.append(event)
    return recording


def _reserve(recording: Recording, device: int, size: int) -> None:
    recording.reserved[device] = max(size, recording.reserved.get(device, 0))


def _nsight(file: Path) -> Recording:
    recording = Recording(file.name, "unknown", _named_rank(file))
    with closing(sqlite3.connect(file)) as base:
        base.row_factory = sqlite3.Row
        texts = {row["id"]: row["value"] for row in base.execute("SELECT * FROM StringIds")}
        for row in base.execute("SELECT * FROM TARGET_INFO_GPU ORDER BY id"):
            capability = row["computeMajor"], row["computeMinor"]
            recording.cards.append(Card(row["name"], capability, row["totalMemory"], row["smCount"]))
        for row in base.execute("SELECT * FROM NVTX_EVENTS"):
            if row["eventType"] == _PUSH_POP:
                recording.events.append(Event(HOST, row["text"] or texts[row["textId"]], row["start"], row["end"]))
        for row in base.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME"):
            name = _VERSION.sub("", texts[row["nameId"]])
            recording.events.append(Event(CALL, name, row["start"], row["end"], row["correlationId"]))
        for row in base.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL"):
            blocks = row["gridX"] * row["gridY"] * row["gridZ"] / recording.cards[row["deviceId"]].sms
            what = texts[row["demangledName"]]
            recording.events.append(Event(KERNEL, what, *_place(row), blocks=blocks))
        for row in base.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_MEMCPY"):
            ends = f"{_ENDS[row['srcKind']]} -> {_ENDS[row['dstKind']]}"
            name = f"Memcpy {_WAYS[row['copyKind']]} ({ends})"
            recording.events.append(Event(COPY, name, *_place(row), bytes=row["bytes"]))
        for row in base.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_MEMSET"):
            recording.events.append(Event(SET, f"Memset ({_ENDS[row['memKind']]})", *_place(row), bytes=row["bytes"]))
    return recording


def _place(row: Any) -> tuple[int, int, int, int]:
    return row["start"], row["end"], row["correlationId"], row["deviceId"]


def _xla(file: Path) -> Recording:
    recording = Recording(file.name, "xla", _named_rank(file))
    cards: dict[int, Card] = {}
    for plane in map(fields, fields(file.read_bytes())[1]):
        name = plane[2][0].decode()
        names = {key: fields(each)[2][0].decode() for key, each in _entries(plane, 4)}
        stats = {key: fields(each)[2][0].decode() for key, each in _entries(plane, 5)}
        device = int(name.rpartition(":")[2]) if name.startswith("/device:GPU:") else None
        own = _stats(plane.get(6, []), stats)
        if device is not None:
            capability = own["compute_cap_major"], own["compute_cap_minor"]
            cards[device] = Card(own["device_vendor"], capability, own["memory_size"], own["core_count"])
        if any(each.startswith("PjitFunction") for each in names.values()):
            recording.framework = "jax"
        for line in map(fields, plane.get(3, [])):
            begins = line.get(3, [0])[0]
            for each in map(fields, line.get(4, [])):
                start = begins + each.get(2, [0])[0] // 1_000
                end = start + each.get(3, [0])[0] // 1_000
                said = _stats(each.get(4, []), stats)
                _add(recording, names[each[1][0]], start, end, said, cards, device)
    recording.cards = [cards[number] for number in sorted(cards)]
    return recording


def _entries(plane: dict[int, list[Any]], number: int) -> list[tuple[int, bytes]]:
    found = [fields(each) for each in plane.get(number, [])]
    return [(each[1][0], each[2][0]) for each in found]


def _stats(content: list[bytes], names: dict[int, str]) -> dict[str, Any]:
    found = {}
    for each in map(fields, content):
        value = names[each[7][0]] if 7 in each else each.get(4, [0])[0]
        found[names[each[1][0]]] = value
    return found


def _add(
    recording: Recording,
    name: str,
    start: int,
    end: int,
    said: dict[str, Any],
    cards: dict[int, Card],
    device: int | None,
) -> None:
    """Add an event of a plane of XLA, of a GPU or of the host."""
    correlation = said.get("correlation_id", 0)
    if device is None:
        if name == "MemoryAllocation":
            _reserve(recording, int(said["allocator_name"].split("_")[1]), said["peak_bytes_in_use"])
            return
        is_call = re.fullmatch(r"cu[A-Z]\w*", name)
        name = f"ProfilerStep#{said['step_num']}" if "step_num" in said else name
        plain = re.sub(r"_v\d+$", "", name) if is_call else name
        recording.events.append(Event(CALL if is_call else HOST, plain, start, end, correlation))
        return
    details = dict(re.findall(r"(\w+):(\S+)", next(text for name, text in said.items() if name.endswith("details"))))
    if "grid" in details:
        blocks = math.prod(int(side) for side in details["grid"].split(",")) / cards[device].sms
        event = Event(KERNEL, name, start, end, correlation, device, blocks=blocks)
    elif name == "Memset":
        called, size = f"Memset ({details['kind'].title()})", int(details["num_bytes"])
        event = Event(SET, called, start, end, correlation, device, bytes=size)
    else:
        way, ends = name.removeprefix("Memcpy"), (details["kind_src"].title(), details["kind_dst"].title())
        called = f"Memcpy {way.replace('2', 'to')} ({ends[0]} -> {ends[1]})"
        event = Event(COPY, called, start, end, correlation, device, bytes=int(details["size"]))
    recording.events.append(event)
