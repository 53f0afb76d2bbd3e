"""HolisticTraceAnalysis beside the reader of kernel traces: `make bench-hta`, for whoever wants to compare.

It is installed into a folder of its own, below ``build``, and does only what it needs for the numbers that TrainGuard
gives too: load, temporal breakdown, overlap of communication and computation.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.perf.test_kernels import judged
from tests.support.large_traces import SIZES_MB, write

FOLDER = Path(__file__).parents[2] / "build" / "hta"
PACKAGES = ("HolisticTraceAnalysis==0.5.0", "pandas==2.2.3")
ANALYSIS = """
import json, pathlib, re, sys, time
start = time.perf_counter()
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
found.get_temporal_breakdown(visualize=False)
found.get_comm_comp_overlap(visualize=False)
took = time.perf_counter() - start
peak = int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) // 1024
print(json.dumps({"seconds": took, "peak_mb": peak}))
"""


def main() -> None:
    """Install the peer, measure both on traces of each size, and print a line for each."""
    python = FOLDER / "bin" / "python"
    uv = os.environ["UV"]
    if not python.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(FOLDER)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *PACKAGES], check=True)
    with tempfile.TemporaryDirectory() as folder:
        for size, copies in SIZES_MB.items():
            file = write(Path(folder) / "large.pt.trace.json", copies)
            took, peak = judged(file)
            done = subprocess.run([python, "-c", ANALYSIS, str(file)], capture_output=True, check=True, text=True)
            peer = json.loads(done.stdout.strip().splitlines()[-1])
            print(
                f"{size:,} MB: TrainGuard {took:.1f} s, {peak:,} MB; "
                f"{PACKAGES[0]} {peer['seconds']:.1f} s, {peer['peak_mb']:,} MB; "
                f"{peer['seconds'] / took:.0f} times as fast",
                flush=True,
            )


if __name__ == "__main__":
    main()
