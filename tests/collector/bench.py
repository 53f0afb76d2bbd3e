"""Measures what the collector costs, and fails above its bounds: ``make bench-collector``.

Throughput: one training loop runs on every core beside a sampler, which is stopped and continued by turns. What the
loop does in a turn with the sampler is compared with the turn without it right before, so that a noisy machine is noisy
for both. Large node: a sampler reads NVML's real bindings on a compiled stand-in with 8 GPUs, and a ``/proc`` of 96
cores, and sends to an S3 that does not answer: boto3 is loaded and minutes stay on disk.
"""

import gzip
import mmap
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.collector.bounds import of_median, of_value
from tests.collector.native.node import Procfs, environment_with_gpus
from trainguard_collector.spool import GZIP

PAIRS = 50
TURN_S = 1.0
LARGE_NODE_S = 75.0
READ_EVERY_S = 5.0
# Percent of the throughput, percent of a core, and megabytes.
MOST_LOST, MOST_OF_A_CORE, MOST_MB = 0.5, 1.0, 60.0

LOOP = """
import mmap, struct, sys
import numpy as np
file = open(sys.argv[1], "r+b")
shared = mmap.mmap(file.fileno(), 8)
random = np.random.default_rng(0)
data, truth = random.normal(size=(512, 256)), random.normal(size=(512, 1))
first, last = random.normal(size=(256, 512)) / 16, random.normal(size=(512, 1)) / 22
step = 0
while True:
    hidden = np.maximum(data @ first, 0.0)
    error = hidden @ last - truth
    gradient = (error @ last.T) * (hidden > 0.0)
    last -= 1e-5 * hidden.T @ error
    first -= 1e-5 * data.T @ gradient
    step += 1
    shared[:8] = struct.pack("q", step)
"""


@contextmanager
def sampled(command: list[str], environment: dict[str, str]) -> Iterator[tuple[psutil.Process, psutil.Process]]:
    """Run a command under the collector; yield its wrapper and its sampler, once it samples."""
    words = [sys.executable, "-m", "trainguard_collector", "--", *command]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as process:
        wrapper = psutil.Process(process.pid)
        spool = Path(environment["TRAINGUARD_SPOOL"])
        while not list(spool.glob("*/*.part")):
            time.sleep(0.1)
        (sampler,) = (each for each in wrapper.children() if "process import" in " ".join(each.cmdline()))
        try:
            yield wrapper, sampler
        finally:
            process.terminate()


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process's threads, finer than the kernel's ticks."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def losses(environment: dict[str, str], folder: Path) -> tuple[list[float], float]:
    """Return the throughput lost in each pair of turns, and the sampler's share of all cores, in percent."""
    counter = folder / "steps"
    counter.write_bytes(bytes(8))
    found = []
    with counter.open("r+b") as file, sampled([sys.executable, "-c", LOOP, str(counter)], environment) as (_, sampler):
        steps = mmap.mmap(file.fileno(), 8)

        def turn(number: int) -> float:
            sampler.send_signal(number)
            time.sleep(0.1)
            (before,) = struct.unpack("q", steps[:8])
            began = time.monotonic()
            time.sleep(TURN_S)
            (after,) = struct.unpack("q", steps[:8])
            return float(after - before) / (time.monotonic() - began)

        time.sleep(TURN_S)
        used_s = cpu_s(sampler.pid)
        for pair in range(PAIRS):
            order = (signal.SIGSTOP, signal.SIGCONT) if pair % 2 else (signal.SIGCONT, signal.SIGSTOP)
            made = {number: turn(number) for number in order}
            found.append(100.0 * (1.0 - made[signal.SIGCONT] / made[signal.SIGSTOP]))
        used_s = cpu_s(sampler.pid) - used_s
        sampler.send_signal(signal.SIGCONT)
    return found, 100.0 * used_s / (PAIRS * TURN_S * (os.cpu_count() or 1))


def plain(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(GZIP) else body


def large_node(environment: dict[str, str], folder: Path) -> tuple[list[float], float]:
    """Return the shares of a core by READ_EVERY_S, percent, and the most MB of a sampler of 8 GPUs and 96 cores."""
    (folder / "nvml").mkdir()
    procfs, over = Procfs(folder / "proc"), threading.Event()

    def work() -> None:
        while not over.wait(0.25):
            procfs.advance()

    kernel = threading.Thread(target=work)
    kernel.start()
    more = {
        **environment_with_gpus(folder / "nvml"),
        "TRAINGUARD_OUTPUT": "s3://nowhere/jobs",
        "TRAINGUARD_PROCFS": str(procfs.folder),
        "TRAINGUARD_CGROUP": str(folder / "no-cgroup"),
        "TRAINGUARD_SPOOL": str(folder / "large"),
        "TRAINGUARD_FINISH_S": "0",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        with sampled(["sleep", str(LARGE_NODE_S + 30.0)], {**environment, **more}) as (_, sampler):
            time.sleep(5.0)
            shares, most = [], 0.0
            for _ in range(round(LARGE_NODE_S / READ_EVERY_S)):
                before, began = cpu_s(sampler.pid), time.monotonic()
                time.sleep(READ_EVERY_S)
                shares.append(100.0 * (cpu_s(sampler.pid) - before) / (time.monotonic() - began))
                most = max(most, sampler.memory_info().rss / 1e6)
            minutes = b"".join(plain(path.read_bytes()) for path in (folder / "large").glob("*/*[0-9].*"))
    finally:
        over.set()
        kernel.join()
    assert b'"cpu95"' in minutes, "the cores have no samples"
    assert b'"gpu7.SMActivityPercent"' in minutes, "the GPUs have no samples"
    return shares, most


def main() -> int:
    """Print the throughput lost, and what the sampler itself takes; return 1 where a bound is broken."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            **os.environ,
            "TRAINGUARD_OUTPUT": f"{folder}/output",
            "TRAINGUARD_SPOOL": f"{folder}/spool",
            "TRAINGUARD_AUTOSTART": "0",
            "TRAINGUARD_JOB": "bench",
        }
        found, own = losses(environment, folder)
        shares, memory = large_node(environment, folder)
    print(f"{len(found)} pairs of {TURN_S:.0f} s at 500 ms, a loop on all {os.cpu_count()} cores")
    sampler = "sampler of 8 GPUs and 96 cores at 500 ms"
    bounds = (
        of_median("throughput lost", "%", found, MOST_LOST),
        of_value("the sampler's share of all cores beside it", "%", own, MOST_LOST),
        of_value(f"{sampler}, mean", "% of a core", statistics.mean(shares), MOST_OF_A_CORE),
        of_value(f"{sampler}, memory", "MB", memory, MOST_MB),
    )
    print(*bounds, sep="\n")
    return int(any(bound.is_broken for bound in bounds))


if __name__ == "__main__":
    sys.exit(main())
