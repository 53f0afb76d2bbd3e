"""Profiles of XLA for tests: real ones by name, and written ones, field by field."""

import io
import lzma
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.support.kernel_traces import FOLDER
from trainguard.formats.protobuf import message_classes
from trainguard.kernels.columns import Trace
from trainguard.kernels.readers.xplane.reader import read_xplane

ENDING = ".xplane.pb"
START_NS = 1_771_595_639_000_000_000
_STATS = ("stats", 4, "Stat*")
_CLASSES: Any = message_classes(
    "tests.xplane",
    {
        "Space": [("planes", 1, "Plane*"), ("hostnames", 4, "bytes*")],
        "Plane": [
            ("id", 1, "int64"),
            ("name", 2, "bytes"),
            ("lines", 3, "Line*"),
            ("event_metadata", 4, "EventEntry*"),
            ("stat_metadata", 5, "StatEntry*"),
            ("stats", 6, "Stat*"),
        ],
        "Line": [
            ("id", 1, "int64"),
            ("name", 2, "bytes"),
            ("timestamp_ns", 3, "int64"),
            ("events", 4, "Event*"),
        ],
        "Event": [("metadata_id", 1, "int64"), ("offset_ps", 2, "int64"), ("duration_ps", 3, "int64"), _STATS],
        "Stat": [
            ("metadata_id", 1, "int64"),
            ("double_value", 2, "double"),
            ("uint64_value", 3, "uint64"),
            ("int64_value", 4, "int64"),
            ("str_value", 5, "bytes"),
            ("ref_value", 7, "uint64"),
        ],
        "EventEntry": [("key", 1, "int64"), ("value", 2, "Named")],
        "StatEntry": [("key", 1, "int64"), ("value", 2, "Named")],
        "Named": [("id", 1, "int64"), ("name", 2, "bytes")],
    },
)


def real_names() -> list[str]:
    """Return the names of the real profiles."""
    return sorted(file.name.removesuffix(ENDING + ".xz") for file in FOLDER.glob("*.xplane.pb.xz"))


@cache
def real_text(name: str) -> bytes:
    return lzma.decompress((FOLDER / f"{name}{ENDING}.xz").read_bytes())


def decoded(text: bytes) -> Any:
    """Return a profile as protobuf decodes it whole."""
    return _CLASSES["Space"].FromString(text)


def read(text: bytes, name: str = "host.xplane.pb") -> Trace:
    return read_xplane(name, lambda: io.BytesIO(text))


@dataclass
class PlaneWriter:
    """One plane; names get numbers as they are first used, texts of stats are referred to as XLA does."""

    name: str
    stats: dict[str, int | float | str] = field(default_factory=dict)
    lines: dict[str, list[tuple[str, int, int, dict[str, Any]]]] = field(default_factory=dict)

    def event(self, line: str, name: str, start_ns: int, lasts_ns: int, **stats: Any) -> None:
        self.lines.setdefault(line, []).append((name, start_ns, lasts_ns, stats))

    def message(self, timestamp_ns: int) -> Any:
        events: dict[str, int] = {}
        texts: dict[str, int] = {}
        plane = _CLASSES["Plane"](name=self.name.encode())

        def stat(name: str, value: Any) -> Any:
            number = texts.setdefault(name, len(texts) + 1)
            if isinstance(value, str):
                return _CLASSES["Stat"](metadata_id=number, ref_value=texts.setdefault(value, len(texts) + 1))
            if isinstance(value, float):
                return _CLASSES["Stat"](metadata_id=number, double_value=value)
            return _CLASSES["Stat"](metadata_id=number, int64_value=value)

        for line, rows in self.lines.items():
            written = plane.lines.add(name=line.encode(), timestamp_ns=timestamp_ns)
            for name, start_ns, lasts_ns, stats in rows:
                written.events.add(
                    metadata_id=events.setdefault(name, len(events) + 1),
                    offset_ps=start_ns * 1_000,
                    duration_ps=lasts_ns * 1_000,
                    stats=[stat(key, value) for key, value in stats.items()],
                )
        plane.stats.extend(stat(key, value) for key, value in self.stats.items())
        for kind, named in (("event_metadata", events), ("stat_metadata", texts)):
            for name, number in named.items():
                entry = getattr(plane, kind).add(key=number)
                entry.value.id, entry.value.name = number, name.encode()
        return plane


H100: dict[str, int | float | str] = {
    "device_vendor": "Nvidia",
    "core_count": 132,
    "memory_size": 80 << 30,
    "compute_cap_major": 9,
    "compute_cap_minor": 0,
}


class ProfileWriter:
    """A profile of one host with GPUs of one kind; times in nanoseconds from its start."""

    def __init__(self, gpus: int = 1, timestamp_ns: int = 0) -> None:
        self.host = PlaneWriter("/host:CPU")
        self.gpus = [PlaneWriter(f"/device:GPU:{number}", dict(H100)) for number in range(gpus)]
        self.task = PlaneWriter("Task Environment", {"profile_start_time": START_NS})
        self.others: list[PlaneWriter] = []
        self.timestamp_ns = timestamp_ns
        self.launched = 0

    def step(self, number: int, start_ns: int, lasts_ns: int) -> None:
        self.host.event("python", "train", start_ns, lasts_ns, step_num=number, _r=1)

    def kernel(self, name: str, start_ns: int, lasts_ns: int, *, launch: int, gpu: int = 0, **stats: Any) -> None:
        """A launching call and the kernel that it starts."""
        self.launched += 1
        both = {"correlation_id": self.launched, "hlo_op": "fusion.1"}
        self.host.event("Host Threads/1", "cuLaunchKernel", launch, 5_000, **both)
        details = "regs:32 static_shared:0 dynamic_shared:0 grid:66,1,1 block:256,1,1 occ_pct:50"
        line = "Stream #14(Compute)"
        self.gpus[gpu].event(line, name, start_ns, lasts_ns, **both, **({"kernel_details": details} | stats))

    def copy(self, name: str, start_ns: int, lasts_ns: int, details: str) -> None:
        self.launched += 1
        self.host.event("Host Threads/1", "cuMemcpyHtoDAsync_v2", start_ns - 5_000, 2_000, correlation_id=self.launched)
        stats = {"correlation_id": self.launched, "memcpy_details": details}
        self.gpus[0].event("Stream #15(MemcpyH2D)", name, start_ns, lasts_ns, **stats)

    def text(self) -> bytes:
        planes = [*self.others, *self.gpus, self.host, self.task]
        space = _CLASSES["Space"](planes=[plane.message(self.timestamp_ns) for plane in planes])
        return bytes(space.SerializeToString())
