"""A recording as the profiler of XLA writes it for a training in JAX: no operators with shapes, kernels by their HLO.

Names are those of profiles that JAX recorded on an H200 and an MI300: thunks and calls that wait on the Python line,
calls of the driver on a line of threads, kernels by stream.
"""

import io
import re
from pathlib import Path
from typing import Any

from tests.support.xplanes import ENDING, ProfileWriter
from tests.verdicts.kernels.machine import Recording
from trainguard.kernels.columns import Trace
from trainguard.kernels.readers.reading import read_any

_STEP = re.compile(r"ProfilerStep#(\d+)")
_COPY = re.compile(r"Memcpy (\w)to(\w) \((\w+) -> (\w+)\)")
_PYTHON, _THREADS = "python3", "Host Threads/7"
_DRIVER = {
    "cudaLaunchKernel": "cuLaunchKernel", "cudaLaunchKernelExC": "cuLaunchKernelEx",
    "cudaDeviceSynchronize": "cuCtxSynchronize",
    "cudaMalloc": "cuMemAlloc_v2", "cudaFree": "cuMemFree_v2",
}  # fmt: skip
_MARKS = (
    (re.compile(r"enumerate\(DataLoader\)"), "IteratorGetNext"),
    (re.compile(r"CompileTime"), "PjRtStreamExecutorClient::CompileAndLoad"),
)
# Kernels of PyTorch's own by their pattern: XLA makes fusions of them; those of libraries keep their names.
_FUSED = (
    (re.compile(r"elementwise_kernel.*?(\w+)_functor|elementwise_kernel.*?native::(\w+)"), "loop_{}_fusion"),
    (re.compile(r"()(SoftMax|layer_norm|batch_norm|reduce_kernel)"), "input_{}_reduce_fusion"),
    (re.compile(r"()multi_tensor"), "loop_add_multiply_fusion{}"),
    (re.compile(r"()(gather|grad_weight|RadixSort|DeviceSelect)"), "loop_{}_fusion"),
)


def in_xla(recording: Recording, folder: Path) -> Trace:
    """Return the profile of a rank, read."""
    text = recording.whole(_Writer(recording).text())
    return read_any(f"{folder.name}/rank{recording.rank}{ENDING}", lambda: io.BytesIO(text))


class _Writer:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        gpu = recording.job.gpu
        copies = (each for each in recording.events if each.get("cat") == "gpu_memcpy")
        self.ways = {each["args"]["correlation"]: each["name"].split()[1] for each in copies}
        self.made = ProfileWriter(2)
        for plane in self.made.gpus:
            plane.stats = {
                "device_vendor": gpu.name, "core_count": gpu.sms, "memory_size": gpu.gib << 30,
                "compute_cap_major": gpu.capability[0], "compute_cap_minor": gpu.capability[1],
            }  # fmt: skip

    def text(self) -> bytes:
        write = {
            "cpu_op": self._thunk, "user_annotation": self._mark, "cuda_runtime": self._call, "kernel": self._work,
            "gpu_memcpy": self._work, "cpu_instant_event": self._memory,
        }  # fmt: skip
        self.made.host.event(_PYTHON, "PjitFunction(train_step)", 0, 1_000)
        for event in self.recording.events:
            start = round(event["ts"] * 1_000)
            write[event["cat"]](event, start, round(event.get("dur", 0) * 1_000))
        return self.made.text()

    def _thunk(self, event: dict[str, Any], start: int, lasts: int) -> None:
        name = event["name"].removeprefix("aten::")
        self.made.host.event(_PYTHON, name, start, lasts, _src="external/xla/xla/backends/gpu/runtime/thunk.cc")

    def _mark(self, event: dict[str, Any], start: int, lasts: int) -> None:
        name = event["name"]
        if step := _STEP.fullmatch(name):
            self.made.host.event(_PYTHON, "train", start, lasts, step_num=int(step[1]), _r=1)
            return
        shown = next((given for pattern, given in _MARKS if pattern.match(name)), name)
        self.made.host.event(_PYTHON, shown, start, lasts)

    def _call(self, event: dict[str, Any], start: int, lasts: int) -> None:
        if event["name"] == "cudaStreamSynchronize":
            self.made.host.event(_PYTHON, "$api.py:3105 block_until_ready", start, lasts)
            return
        number = event.get("args", {}).get("correlation")
        name = _DRIVER.get(event["name"]) or f"cuMemcpy{self.ways[number]}Async_v2"
        stats = {"correlation_id": number} if number else {}
        self.made.host.event(_THREADS, name, start, lasts, **stats)

    def _work(self, event: dict[str, Any], start: int, lasts: int) -> None:
        args = event["args"]
        plane, stream = self.made.gpus[args["device"]], args["stream"]
        name, stats = event["name"], {"correlation_id": args["correlation"]}
        copy = _COPY.fullmatch(name)
        if copy:
            details = f"kind_src:{copy[3].lower()} kind_dst:{copy[4].lower()} size:{args.get('bytes', 0)} async:1"
            way = f"Memcpy{copy[1]}2{copy[2]}"
            plane.event(f"Stream #{stream}({way})", way, start, lasts, memcpy_details=details, **stats)
            return
        fused = _fusion(name)
        blocks = max(round(args["blocks per SM"] * self.recording.job.gpu.sms), 1)
        stats |= {"kernel_details": f"regs:32 grid:{blocks},1,1 block:256,1,1 occ_pct:50", "hlo_op": fused[:40]}
        plane.event(f"Stream #{stream}(Compute)", fused, start, lasts, **stats)

    def _memory(self, event: dict[str, Any], start: int, lasts: int) -> None:
        most = event["args"]["Total Allocated"]
        self.made.host.event(
            _PYTHON, "MemoryAllocation", start, lasts, allocator_name="GPU_0_bfc", peak_bytes_in_use=most
        )


def _fusion(name: str) -> str:
    for pattern, given in _FUSED:
        if found := pattern.search(name):
            return given.format(next((each for each in found.groups() if each), "").lower())
    return name
