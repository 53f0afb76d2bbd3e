"""A recording as Nsight Systems exports it, with operators and shapes as PyTorch's ``emit_nvtx`` writes them.

The text of a range is that of ``getNvtxStr`` in PyTorch's ``torch/csrc/profiler/util.cpp``.
"""

import json
import re
from pathlib import Path
from typing import Any

from tests.support.nsight_exports import ExportWriter
from tests.verdicts.kernels.machine import Recording
from trainguard.kernels.columns import Trace
from trainguard.kernels.readers.reading import read_any

_START_NS = 1_790_000_000_000_000_000
_STEP = re.compile(r"ProfilerStep#(\d+)")
_COPY = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")
_WAYS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
_MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2}
_WAITS = ("StreamSynchronize", "DeviceSynchronize")


def in_nsight(recording: Recording, folder: Path) -> Trace:
    """Write the export of a rank, and read it."""
    path = folder / f"rank{recording.rank}.sqlite"
    _Writer(recording, path).write()
    path.write_bytes(recording.whole(path.read_bytes()))
    return read_any(path.name, lambda: path.open("rb"), path)


class _Writer:
    def __init__(self, recording: Recording, path: Path) -> None:
        self.recording = recording
        self.made = ExportWriter(path)
        self.process = 100 + recording.rank
        self.operators = 0

    def write(self) -> None:
        gpu, made = self.recording.job.gpu, self.made
        for number in range(2):
            made.add(
                "TARGET_INFO_GPU", vmId=0, id=number, name=gpu.name, totalMemory=gpu.gib << 30, smCount=gpu.sms,
                computeMajor=gpu.capability[0], computeMinor=gpu.capability[1],
            )  # fmt: skip
        made.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=_START_NS)
        write = {
            "cpu_op": self._range, "user_annotation": self._range, "cuda_runtime": self._call, "kernel": self._kernel,
            "gpu_memcpy": self._copy,
        }  # fmt: skip
        for event in self.recording.events:
            if event.get("cat") in write:
                start = round(event["ts"] * 1_000)
                write[event["cat"]](event, start, start + round(event["dur"] * 1_000))
        made.write()

    def _range(self, event: dict[str, Any], start: int, end: int) -> None:
        step = _STEP.fullmatch(event["name"])
        if step:
            self.made.range(f"step {step[1]}", start, end, pid=self.process)
            return
        self.operators += 1
        text = f"{event['name']}, op_id = {self.operators}"
        sizes = [each for shape in event["args"].get("Input Dims", []) for each in _flat(shape)]
        self.made.range(text + (f", sizes = {json.dumps(sizes)}" if sizes else ""), start, end, pid=self.process)

    def _call(self, event: dict[str, Any], start: int, end: int) -> None:
        self.made.call(
            f"{event['name']}_v7000", start, end, event.get("args", {}).get("correlation", 0), pid=self.process
        )
        if event["name"].endswith(_WAITS):
            self._work("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", event, start, end, syncType=3)

    def _kernel(self, event: dict[str, Any], start: int, end: int) -> None:
        name = self.made.string(event["name"])
        blocks = max(round(event["args"]["blocks per SM"] * self.recording.job.gpu.sms), 1)
        grid = {"gridX": blocks, "gridY": 1, "gridZ": 1, "blockX": 256}
        self._work("CUPTI_ACTIVITY_KIND_KERNEL", event, start, end, demangledName=name, shortName=name, **grid)

    def _copy(self, event: dict[str, Any], start: int, end: int) -> None:
        found = _COPY.fullmatch(event["name"])
        assert found is not None
        ends = {"srcKind": _MEMORY[found[2]], "dstKind": _MEMORY[found[3]]}
        size = event["args"].get("bytes", 0)
        self._work("CUPTI_ACTIVITY_KIND_MEMCPY", event, start, end, bytes=size, copyKind=_WAYS[found[1]], **ends)

    def _work(self, table: str, event: dict[str, Any], start: int, end: int, **more: Any) -> None:
        args = event.get("args", {})
        place = {"deviceId": args.get("device", 0), "streamId": args.get("stream", 7)}
        self.made.work(table, start, end, args.get("correlation", 0), self.process, **place, **more)


def _flat(shape: Any) -> list[Any]:
    """Return the shapes of an argument: a list of tensors is written tensor by tensor."""
    return list(shape) if shape and isinstance(shape[0], list) else [shape]
