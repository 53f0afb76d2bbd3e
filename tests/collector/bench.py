"""Measures what the collector costs a loop on one core: ``make bench-collector``.

A run alone and a run beside a sampler follow each other, so that a noisy machine is noisy for both. The loop is plain
Python; it says nothing of loops that fill every core.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.collector.nvml_stub import Nvml
from trainguard_collector.cgroup import Cgroup
from trainguard_collector.gpu import Gpus
from trainguard_collector.host import Host
from trainguard_collector.lines import encode

PAIRS = 8
SNAPSHOTS = 200
LOOP = """
import time
until, steps = time.perf_counter() + 5.0, 0
while time.perf_counter() < until:
    sum(range(2000))
    steps += 1
print(steps)
"""


def steps_alone() -> int:
    """Return how many steps the loop makes alone in five seconds."""
    return int(subprocess.run([sys.executable, "-c", LOOP], capture_output=True, text=True, check=True).stdout)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process's first thread, finer than the kernel's ticks."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def steps_sampled(environment: dict[str, str]) -> tuple[int, float, float]:
    """Return the loop's steps beside a sampler, the sampler's share of a core in percent, and its memory in MB."""
    command = [sys.executable, "-m", "trainguard_collector", "--", sys.executable, "-c", LOOP]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(1.5)
        (sampler,) = (
            child for child in psutil.Process(process.pid).children() if "process import" in " ".join(child.cmdline())
        )
        before, began = cpu_s(sampler.pid), time.perf_counter()
        time.sleep(3.0)
        share = 100.0 * (cpu_s(sampler.pid) - before) / (time.perf_counter() - began)
        memory = sampler.memory_info().rss / 1e6
        return int(process.communicate()[0]), share, memory


def large_node_ms() -> float:
    """Return the CPU time of a snapshot of 8 GPUs and 96 cores, on a stub of NVML and a written ``/proc``."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(SNAPSHOTS):
            rows = "".join(f"cpu{core} {20 * number} 0 0 {30 * number} 0 0 0 0 0 0\n" for core in range(96))
            Path(folder, f"{number}").mkdir()
            Path(folder, f"{number}", "stat").write_text(f"cpu 0 0 0 0 0 0 0 0 0 0\n{rows}")
        host, gpus = Host(Cgroup("/no-limits", "/proc")), Gpus(Nvml(8))
        read, number, written = psutil.cpu_times, 0, 0

        def cores(percpu: bool) -> list[Any]:
            psutil.PROCFS_PATH = f"{folder}/{number}"
            try:
                return read(percpu=percpu)  # type: ignore[no-any-return]
            finally:
                psutil.PROCFS_PATH = "/proc"

        psutil.cpu_times = cores
        began = time.process_time()
        for number in range(SNAPSHOTS):
            samples = host.read(number * 0.5) + gpus.read(number * 0.5, with_slow=number % 20 == 0)
            written += encode(samples, "node-1", 1_800_000_000.0 + number * 0.5).count(b"\n")
        spent = time.process_time() - began
    assert written > SNAPSHOTS * 2 * 90, "the cores have no samples"
    return 1_000.0 * spent / SNAPSHOTS


def main() -> None:
    """Print the ratio of throughput, and what the sampler itself takes."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TRAINGUARD_OUTPUT": f"{folder}/output", "TRAINGUARD_SPOOL": f"{folder}/spool"}
        losses, shares, memories = [], [], []
        for number in range(PAIRS):
            environment["TRAINGUARD_JOB"] = f"run-{number}"
            alone = steps_alone()
            sampled, share, memory = steps_sampled(environment)
            losses.append(100.0 * (1.0 - sampled / alone))
            shares.append(share)
            memories.append(memory)
    cost_ms = large_node_ms()
    spread = statistics.stdev(losses) / PAIRS**0.5
    print(f"{PAIRS} pairs at 500 ms on {os.cpu_count()} cores, without a GPU")
    mean, median = statistics.mean(losses), statistics.median(losses)
    print(f"throughput lost: median {median:.2f} %, mean {mean:.2f} ± {spread:.2f} % (standard error)")
    print(f"sampler: {statistics.median(shares):.2f} % of a core, at most {max(memories):.0f} MB of memory")
    print(f"a snapshot of 8 GPUs and 96 cores on stubs: {cost_ms:.2f} ms, {cost_ms / 5.0:.2f} % of a core at 500 ms")


if __name__ == "__main__":
    main()
