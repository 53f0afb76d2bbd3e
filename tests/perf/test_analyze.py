"""What `trainguard analyze` costs beside the typed parse of the same bytes, and how that grows: `make bench`.

Goals: ``documented`` takes at most 2.5 times the parse on two cores and 4 times on one, beyond the start of the
process; 8 h take at most 2.1 times as long as 4 h; peak memory stays within 10 % from 1 h to 8 h. ``compatible``, which
keeps the history of every series as the managed service does, is measured beside it.
"""

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.perf.long_profile import first_hours, write_hours

pytestmark = pytest.mark.perf

HOURS = (1, 2, 4, 8)
ROUNDS = 3
REFUSED = 2
POLL_S = 0.02
PARSE_LIMIT = {1: 4.0, 2: 2.5}
DOUBLING_LIMIT = 2.1
MEMORY_LIMIT = 1.1
MB = 1e6


class TypedLine(msgspec.Struct):
    """All six fields of a line: what any reader of these objects has to parse."""

    Type: str
    Name: str | None
    Dimension: str
    Value: float
    NodeId: str
    Timestamp: float


class TypedEvent(msgspec.Struct):
    """All fields of an event."""

    ph: str
    name: str
    pid: int
    ts: int = 0
    dur: int = 0
    args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """A reading on so many cores."""

    reading: str
    cores: int


CASES = tuple(Case(reading, cores) for reading in ("documented", "compatible") for cores in (2, 1))


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of the parse, seconds of the command beyond the start of its process, and its peak memory, bytes."""

    parse: dict[int, float]
    seconds: dict[tuple[Case, int], float]
    peak: dict[tuple[Case, int], int]

    def ratio(self, case: Case, hours: int) -> float:
        """Return how many times as long as the parse the command took."""
        return self.seconds[case, hours] / self.parse[hours]


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """Profiles by their hours; the shorter ones are links into the longest."""
    folder = tmp_path_factory.mktemp("hours")
    longest = write_hours(folder / f"{HOURS[-1]}h", HOURS[-1])
    yield {hours: first_hours(longest, folder / f"{hours}h", hours) for hours in HOURS[:-1]} | {HOURS[-1]: longest}
    shutil.rmtree(folder)  # 1.5 GB, which pytest would keep


@pytest.fixture(scope="module")
def measured(profiles: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Measure everything, ``documented`` in some rounds.

    The machine's noise only ever adds to a time, so the best counts; looking now and then only ever misses a peak, so
    the highest counts.
    """
    out = str(tmp_path_factory.mktemp("out"))
    starts: dict[Case, float] = {}
    seconds: dict[tuple[Case, int], float] = {}
    parses: dict[int, float] = {}
    peaks: dict[tuple[Case, int], int] = {}
    for number in range(ROUNDS):
        for hours, profile in profiles.items():
            parses[hours] = min(parses.get(hours, math.inf), parse_s(profile))
            for case in CASES[: len(CASES) if number == 0 else 2]:
                starts[case] = min(starts.get(case, math.inf), timed_s(start_command(case, out), case.cores, REFUSED))
                took = timed_s(command(case, profile, out), case.cores)
                seconds[case, hours] = min(seconds.get((case, hours), math.inf), took)
    for hours, profile in profiles.items():
        for case in CASES:
            rounds = ROUNDS if case.reading == "documented" else 1
            peaks[case, hours] = max(peak_bytes(command(case, profile, out), case.cores) for _ in range(rounds))
    beyond = {(case, hours): took - starts[case] for (case, hours), took in seconds.items()}
    return Measured(parses, beyond, peaks)


def command(case: Case, profile: Path, out: str) -> list[str]:
    """Return the command that analyses a profile."""
    return [sys.executable, "-m", "trainguard", "analyze", str(profile), "--reading", case.reading, "--out", out]


def start_command(case: Case, out: str) -> list[str]:
    """Return a command that only starts: it imports what an analysis does, and is refused without a source."""
    return command(case, Path(out) / "nowhere", out)


def parse_s(profile: Path) -> float:
    """Time the typed parse of a profile's bytes."""
    lines, events = msgspec.json.Decoder(TypedLine), msgspec.json.Decoder(list[TypedEvent])
    total = 0.0
    for file in sorted(profile.rglob("*.json")):
        decode = lines.decode_lines if "system" in file.parts else events.decode
        body = file.read_bytes()
        started = time.perf_counter()
        decode(body)
        total += time.perf_counter() - started
    return total


def timed_s(words: list[str], cores: int, exit_code: int = 0) -> float:
    """Time a command on so many cores."""
    started = time.perf_counter()
    assert start(words, cores).wait() == exit_code
    return time.perf_counter() - started


def peak_bytes(words: list[str], cores: int) -> int:
    """Return the most that a command and its workers held at once; looking at them slows them down."""
    process = start(words, cores)
    peak = 0
    while process.poll() is None:
        peak = max(peak, held_bytes(process.pid))
        time.sleep(POLL_S)
    assert process.returncode == 0
    return peak


def start(words: list[str], cores: int) -> subprocess.Popen[bytes]:
    """Start a command on so many cores."""
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    return subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, chosen),  # noqa: PLW1509 -- no threads here
    )


def held_bytes(pid: int) -> int:
    """Return the bytes that a process and its children hold, pages that they share counted once."""
    total = 0
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
            total += held_bytes(int(child))
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def test_table(measured: Measured, capfd: pytest.CaptureFixture[str]) -> None:
    """Print what was measured."""
    lines = [
        "\nanalyze, 1 node, 96 cores, 8 GPUs, 500 ms: time beyond the process start (beside the parse), peak",
        f"{'':22}" + "".join(f"{f'{hours} h':>26}" for hours in HOURS),
        f"{'typed parse':22}" + "".join(f"{measured.parse[hours]:24.2f} s" for hours in HOURS),
    ]
    for case in CASES:
        cells = [
            f"{measured.seconds[case, hours]:.2f} s ({measured.ratio(case, hours):.2f}), "
            f"{measured.peak[case, hours] / MB:.0f} MB"
            for hours in HOURS
        ]
        lines.append(f"{f'{case.reading}, {case.cores} cores':22}" + "".join(f"{cell:>26}" for cell in cells))
    with capfd.disabled():
        os.write(1, ("\n".join(lines) + "\n").encode())


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("hours", HOURS)
def test_documented_beside_the_typed_parse(measured: Measured, cores: int, hours: int) -> None:
    """All rules, from files on disk to reports."""
    if len(os.sched_getaffinity(0)) < cores:
        pytest.fail(f"this machine has fewer than {cores} cores")
    assert measured.ratio(Case("documented", cores), hours) <= PARSE_LIMIT[cores]


@pytest.mark.parametrize("cores", [1, 2])
def test_documented_grows_with_the_job_and_no_faster(measured: Measured, cores: int) -> None:
    """Nothing looks at the whole history again."""
    case = Case("documented", cores)
    assert measured.seconds[case, 8] <= DOUBLING_LIMIT * measured.seconds[case, 4]


@pytest.mark.parametrize("cores", [1, 2])
def test_documented_holds_no_more_for_a_longer_job(measured: Measured, cores: int) -> None:
    """State is bounded, and nothing is read further ahead."""
    case = Case("documented", cores)
    assert measured.peak[case, 8] <= MEMORY_LIMIT * measured.peak[case, 1]
