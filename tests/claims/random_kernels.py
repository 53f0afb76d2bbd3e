"""Kernel traces drawn at random, as the PyTorch profiler writes them: one GPU, and what a loop may do wrong."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

BASE_NS = 1_780_272_017_000_000_000
GPU = {"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 40 << 30, "computeMajor": 8, "computeMinor": 0, "numSms": 108}
FP32, BF16 = "ampere_sgemm_128x64_nn", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PAGEABLE, PINNED = "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
CALL_US = 5


@dataclass
class _Loop:
    """Writes the events of a loop of training, times in whole microseconds; ``gpu`` is when the GPU is free."""

    rng: np.random.Generator
    events: list[dict[str, Any]] = field(default_factory=list)
    host: int = 1_000
    gpu: int = 0
    launched: int = 0

    def __post_init__(self) -> None:
        rng = self.rng
        self.kernels = int(rng.choice([5, 40, 330]))
        self.lasts = int(rng.choice([3, 30, 400]))
        self.between = int(rng.choice([0, 4, 60]))
        self.loads = int(rng.choice([0, 0, 300, 6_000]))
        self.syncs = int(rng.choice([0, 0, 1, 8]))
        self.copies = int(rng.choice([0, 0, 2, 20]))
        self.sends = int(rng.choice([0, 0, 400, 4_000]))
        self.gemm = str(rng.choice([FP32, BF16]))
        self.copy = str(rng.choice([PAGEABLE, PINNED]))
        self.blocks = float(rng.choice([0.4, 4.0]))
        self.slow = float(rng.choice([0.0, 0.1]))

    def event(self, category: str, name: str, start: int, lasts: int, **more: Any) -> None:
        """Write an event of the host's thread."""
        place = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": lasts}
        self.events.append({**place, **more})

    def launch(self, category: str, name: str, lasts: int, call: str, stream: int = 7, **said: Any) -> None:
        """Write a call that starts work of the GPU, and the work behind all that was started before."""
        self.launched += 1
        args = {"correlation": self.launched}
        self.event("cuda_runtime", call, self.host, CALL_US, args=args)
        self.host += CALL_US
        begins = max(self.gpu, self.host + int(self.rng.integers(1, 9)))
        self.event(category, name, begins, lasts, args={**args, "device": 0, "stream": stream, **said})
        if stream == 7:
            self.gpu = begins + lasts
        self.host += int(self.rng.integers(0, self.between + 1))

    def step(self, number: int) -> None:
        """Write a step: data, copies, kernels, gradients, and waits for the GPU."""
        rng, begins = self.rng, self.host
        said: dict[str, Any] = {"blocks per SM": self.blocks}
        if self.loads:
            lasts = int(rng.integers(1, self.loads))
            self.event("user_annotation", LOADER, self.host, lasts)
            self.host += lasts
        for _ in range(self.copies):
            self.launch("gpu_memcpy", self.copy, int(rng.integers(5, 200)), "cudaMemcpyAsync", bytes=100_000)
        waits = set(rng.integers(0, self.kernels, self.syncs).tolist())
        for place in range(self.kernels):
            lasts = int(rng.integers(1, 2 * self.lasts))
            self.launch("kernel", self.gemm, lasts, "cudaLaunchKernel", **said)
            if place in waits:
                self.wait("cudaStreamSynchronize")
        if self.sends:
            lasts = int(rng.integers(100, self.sends))
            self.launch("kernel", NCCL, lasts, "cudaLaunchKernel", stream=20, **said)
        if rng.random() < self.slow:
            self.host += 40_000
        self.wait("cudaDeviceSynchronize")
        self.event("user_annotation", f"ProfilerStep#{number}", begins, self.host - begins)
        self.host += int(rng.integers(0, 50))

    def wait(self, call: str) -> None:
        """Write a call that waits until the GPU is done."""
        until = max(self.gpu, self.host + 2)
        self.event("cuda_runtime", call, self.host, until - self.host, args={"correlation": 0})
        self.host = until + int(self.rng.integers(1, 200))


def write_kernels_job(seed: int, root: Path) -> Path:
    """Write the folder of a job of a seed with a kernel trace; return it."""
    rng = np.random.default_rng([seed, 21])
    loop = _Loop(rng)
    for number in range(int(rng.integers(3, 15))):
        loop.step(number)
    folder = root / f"kernels-{seed}"
    traces = folder / "kernel-traces"
    traces.mkdir(parents=True)
    about = {
        "schemaVersion": 1,
        "deviceProperties": [GPU],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
        "traceEvents": loop.events,
        "traceName": "trace.json",
        "baseTimeNanoseconds": BASE_NS,
    }
    (folder / "metrics.csv").write_text("step,loss\n0,2.0\n1,1.5\n")  # a job of kernel traces alone is none
    (traces / "host_1.1780272017000.pt.trace.json").write_text(json.dumps(about))
    return folder
