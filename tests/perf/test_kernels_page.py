"""What ``kernels.html`` of a large trace takes beside reading and judging it: `make bench`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.large_traces import SIZES_MB, write

pytestmark = pytest.mark.perf

SIZE = 237
MOST_PEAK_MB = 300
MOST_BYTES = 3_000_000
# Of the time for reading and judging.
MOST_SHARE = 0.3

MAKING = """
import pathlib, re, sys, time
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.reading import read_any
from trainguard.kernels.timeline.build import timeline_of
from trainguard.report.html.kernels.page import render_kernels
file = pathlib.Path(sys.argv[1])
start = time.perf_counter()
trace = read_any(file.name, lambda: file.open("rb"), file)
profile = rank_profile(trace)
judged = time.perf_counter()
page = render_kernels(KernelProfiles(source="here", ranks=[profile], unread={}), [(profile, timeline_of(trace))])
made = time.perf_counter()
peak = int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) // 1024
print(judged - start, made - judged, len(page.encode()), peak)
"""


def test_the_page_of_a_large_trace_takes_little_time_and_memory(tmp_path: Path) -> None:
    file = write(tmp_path / "large.pt.trace.json", SIZES_MB[SIZE])
    done = subprocess.run([sys.executable, "-c", MAKING, str(file)], capture_output=True, check=True, text=True)
    judging, making, size, peak = map(float, done.stdout.split())
    os.write(
        2,
        f"\n{SIZE} MB: read and judged in {judging:.2f} s, page of {size / 1e6:.2f} MB in {making:.2f} s; "
        f"peak {peak:.0f} MB\n".encode(),
    )
    assert making <= MOST_SHARE * judging
    assert size < MOST_BYTES
    assert peak <= MOST_PEAK_MB
