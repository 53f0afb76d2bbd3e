"""Kernel traces for tests: real ones by name, and written ones in any layout, with planted faults."""

import gzip
import io
import json
import lzma
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from trainguard.kernels.columns import Trace
from trainguard.kernels.document import RankProfile
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.kineto import read_trace

FOLDER = Path(__file__).parents[1] / "data" / "kernel_traces"
A100 = {"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 40 << 30, "computeMajor": 8, "computeMinor": 0, "numSms": 108}
FP32_GEMM = "ampere_sgemm_128x64_nn"
BF16_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
PINNED = "Memcpy HtoD (Pinned -> Device)"
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
STREAM, COMMUNICATION_STREAM = 7, 20


def real_names() -> list[str]:
    """Return the names of the real traces."""
    return sorted(file.name.removesuffix(".json.xz") for file in FOLDER.glob("*.json.xz"))


@cache
def real_text(name: str) -> bytes:
    return lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes())


@cache
def real_trace(name: str) -> Trace:
    return read(real_text(name), name)


@cache
def real_profile(name: str) -> RankProfile:
    return rank_profile(real_trace(name))


def read(text: bytes, name: str = "trace.json") -> Trace:
    return read_trace(name, io.BytesIO(text))


def judged(text: bytes) -> RankProfile:
    return rank_profile(read(text))


def ids(profile: RankProfile) -> set[str]:
    return {finding.id.removeprefix("kernels/") for finding in profile.findings}


@dataclass
class TraceWriter:
    """Collects events, times in microseconds from the start of the trace."""

    base_ns: int | None = 1_711_964_646_000_000_000
    rank: int | None = 0
    gpus: list[dict[str, Any]] = field(default_factory=lambda: [A100])
    events: list[dict[str, Any]] = field(default_factory=list)
    launched: int = 0

    def event(self, category: str, name: str, start: float, lasts: float, **more: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": lasts, **more}
        )

    def step(self, number: int, start: float, lasts: float) -> None:
        self.event("user_annotation", f"ProfilerStep#{number}", start, lasts)

    def kernel(
        self,
        name: str,
        start: float,
        lasts: float,
        *,
        launch: float | None,
        call: float = 5,
        stream: int = STREAM,
        blocks: float = 4.0,
    ) -> None:
        """A launching call, if there is one, and the kernel that it starts."""
        self.launched += 1
        args: dict[str, Any] = {"correlation": self.launched}
        if launch is not None:
            self.event("cuda_runtime", "cudaLaunchKernel", launch, call, args=args)
        said = {"device": 0, "stream": stream, "blocks per SM": blocks}
        self.event("kernel", name, start, lasts, args=args | said)

    def copy(
        self, name: str, start: float, lasts: float, *, size: int = 1_000_000, call: str = "cudaMemcpyAsync"
    ) -> None:
        self.launched += 1
        self.event("cuda_runtime", call, start - 20, 5, args={"correlation": self.launched})
        args = {"correlation": self.launched, "device": 0, "stream": STREAM, "bytes": size}
        self.event("gpu_memcpy", name, start, lasts, args=args)

    def document(self) -> dict[str, Any]:
        """Return the trace as Kineto orders it: the base time behind the events."""
        document: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": self.gpus}
        if self.rank is not None:
            document["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": 1}
        document["traceEvents"] = self.events
        document["traceName"] = "trace.json"
        if self.base_ns is not None:
            document["baseTimeNanoseconds"] = self.base_ns
        return document

    def text(self) -> bytes:
        return json.dumps(self.document()).encode()


LAYOUTS = {
    "one line": lambda document: json.dumps(document).encode(),
    "compact": lambda document: json.dumps(document, separators=(",", ":")).encode(),
    "indented": lambda document: json.dumps(document, indent=2).encode(),
    "sorted keys": lambda document: json.dumps(document, sort_keys=True).encode(),
    "gzip": lambda document: gzip.compress(json.dumps(document).encode()),
    "two gzip members": lambda document: b"".join(
        gzip.compress(part) for part in (json.dumps(document).encode()[:500], json.dumps(document).encode()[500:])
    ),
}
