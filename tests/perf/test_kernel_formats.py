"""What reading profiles of XLA and exports of Nsight Systems takes, by event and in memory: `make bench`."""

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.nsight_exports import SCHEMAS, steps
from tests.support.xplanes import ProfileWriter, decoded

pytestmark = pytest.mark.perf

# Of CPU time by event, on a machine that does other things beside.
MOST_MICROSECONDS = 15

MOST_PEAK_MB = 450
READING = """
import pathlib, re, sys, time
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.reading import read_any
file = pathlib.Path(sys.argv[1])
start = time.process_time()
trace = read_any(file.name, lambda: file.open("rb"), file)
took = time.process_time() - start
assert rank_profile(trace).busy_ns
peak = int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) // 1024
print(trace.tally["events"], took, peak)
"""


def xla(folder: Path) -> Path:
    """A profile of a million events: one of ten thousand, again and again, each later."""
    made = ProfileWriter()
    made.step(0, 0, 100_000_000)
    for number in range(5_000):
        made.kernel(f"kernel_{number % 50}", 20_000 * number, 10_000, launch=20_000 * number)
    space: Any = decoded(made.text())
    for plane in space.planes:
        for line in list(plane.lines):
            for copy in range(1, 100):
                added = plane.lines.add()
                added.CopyFrom(line)
                added.timestamp_ns = 100_000_000 * copy
    file = folder / "large.xplane.pb"
    file.write_bytes(space.SerializeToString())
    return file


def nsight(folder: Path) -> Path:
    """An export of two and a half million rows: one of ten thousand, doubled and doubled, each half later."""
    file = steps(folder / "large.sqlite", SCHEMAS["2026"], 500).write()
    with closing(sqlite3.connect(file)) as base:
        for table in ("KERNEL", "MEMCPY", "RUNTIME"):
            name = f"CUPTI_ACTIVITY_KIND_{table}"
            held = [column[1] for column in base.execute(f"PRAGMA table_info({name})")]
            for half in range(9):
                later = {"start": 500_000_000 << half, "end": 500_000_000 << half, "correlationId": 1_500 << half}
                chosen = ", ".join(f"{each} + {later[each]}" if each in later else each for each in held)
                base.execute(f"INSERT INTO {name} SELECT {chosen} FROM {name}")  # noqa: S608
        base.commit()
    return file


@pytest.mark.parametrize("made", [xla, nsight])
def test_a_large_trace_takes_microseconds_an_event(made: Any, tmp_path: Path) -> None:
    file = made(tmp_path)
    done = subprocess.run([sys.executable, "-c", READING, str(file)], capture_output=True, check=True, text=True)
    events, took, peak = map(float, re.split(r"\s+", done.stdout.strip()))
    microseconds = 1e6 * took / events
    os.write(
        2,
        f"\n{file.name}: {file.stat().st_size / 1e6:.0f} MB, {events:,.0f} events in {took:.1f} s "
        f"({microseconds:.1f} us each); peak {peak:.0f} MB\n".encode(),
    )
    assert microseconds <= MOST_MICROSECONDS
    assert peak <= MOST_PEAK_MB
