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

import psutil

PAIRS = 8
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


def steps_sampled(environment: dict[str, str]) -> tuple[int, float, float]:
    """Return the loop's steps beside a sampler, the sampler's share of a core in percent, and its memory in MB."""
    command = [sys.executable, "-m", "trainguard_collector", "--", sys.executable, "-c", LOOP]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(1.5)
        (sampler,) = (
            child for child in psutil.Process(process.pid).children() if "process import" in " ".join(child.cmdline())
        )
        before, began = sum(sampler.cpu_times()[:2]), time.perf_counter()
        time.sleep(3.0)
        share = 100.0 * (sum(sampler.cpu_times()[:2]) - before) / (time.perf_counter() - began)
        memory = sampler.memory_info().rss / 1e6
        return int(process.communicate()[0]), share, memory


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
    spread = statistics.stdev(losses) / PAIRS**0.5
    print(f"{PAIRS} pairs at 500 ms on {os.cpu_count()} cores, without a GPU")
    print(
        f"throughput lost: median {statistics.median(losses):.2f} %, mean {statistics.mean(losses):.2f} ± {spread:.2f} %"
    )
    print(f"sampler: {statistics.median(shares):.2f} % of a core, at most {max(memories):.0f} MB of memory")


if __name__ == "__main__":
    main()
