"""HolisticTraceAnalysis beside `trainguard kernels`, both as whole commands: `make bench-hta`.

It is installed into a folder of its own, below ``build``, and does only what it needs for the numbers that TrainGuard
gives too: load, temporal breakdown, overlap of communication and computation.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.large_traces import SIZES_MB, write

FOLDER = Path(__file__).parents[2] / "build" / "hta"
PACKAGES = ("HolisticTraceAnalysis==0.5.0", "pandas==2.2.3")
ANALYSIS = """
import sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
found.get_temporal_breakdown(visualize=False)
found.get_comm_comp_overlap(visualize=False)
"""


def whole(command: list[str]) -> tuple[float, int]:
    """Return what a command takes from its start to its end: seconds of CPU, and its peak in megabytes."""
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(started.pid, 0)
    if status:
        raise SystemExit(f"{command[0]} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


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
            took, peak = whole([sys.executable, "-m", "trainguard", "kernels", str(file)])
            theirs, most = whole([str(python), "-c", ANALYSIS, str(file)])
            print(
                f"{size:,} MB: TrainGuard {took:.1f} s, {peak:,} MB; {PACKAGES[0]} {theirs:.1f} s, {most:,} MB; "
                f"{theirs / took:.1f} times as fast",
                flush=True,
            )


if __name__ == "__main__":
    main()
