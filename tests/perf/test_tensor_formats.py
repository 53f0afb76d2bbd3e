"""What reading training health costs: scalars of event files, and the tensors of a step.

`make bench`. Event files are measured as a share of the speed of reading their bytes and checking their frames.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.run_folder import FolderFiles, MemoryFiles
from tests.support.tensor_files import NOW, HookWriter, event, field_of, frame, simple_scalar, tensor_scalar
from trainguard.formats.tensors.debug.run import find_run
from trainguard.formats.tensors.frames import walk
from trainguard.formats.tensors.scalars.bulk import CHUNK_BYTES, read_scalars

pytestmark = pytest.mark.perf

FILE_BYTES = 64 * 1024 * 1024
GIGABYTE = 1024**3
LEAST_SHARE = 0.6
REDUCTIONS = 1_000
REDUCTIONS_LIMIT_S = 0.05
TAGS = ["train/loss", "train/accuracy", "lr", "grad_norm", *(f"layer{number}/norm" for number in range(20))]
HISTOGRAM = frame(event(field_of(1, field_of(1, b"weights") + field_of(5, bytes(8_000))), step=7))


def scalars(summary: Callable[[str, float], bytes], first: int, steps: int) -> bytes:
    return b"".join(
        frame(event(summary(tag, step / 2), step=step, at=NOW + step))
        for step in range(first, first + steps)
        for tag in TAGS
    )


CONTENTS: dict[str, Callable[[int], bytes]] = {
    "simple values": lambda part: scalars(simple_scalar, 500 * part, 500),
    "tensors": lambda part: scalars(tensor_scalar, 500 * part, 500),
    "scalars and histograms": lambda part: (scalars(simple_scalar, 10 * part, 3) + HISTOGRAM) * 40,
    "histograms": lambda _: HISTOGRAM * 100,
}


@pytest.mark.parametrize("content", CONTENTS)
def test_event_files_are_read_almost_at_checksum_speed(content: str, tmp_path: Path) -> None:
    with (tmp_path / "events").open("wb") as file:
        for body in _parts(content):
            file.write(body)
    files = FolderFiles(tmp_path)
    share = min(_frames(files) for _ in range(3)) / min(_scalars(files) for _ in range(3))
    os.write(1, f"\n{content}: {share:.0%} of the speed of reading and checking frames\n".encode())
    assert share >= LEAST_SHARE


def test_gigabyte_of_event_files_is_read_near_checksum_speed(tmp_path: Path) -> None:
    parts = [body for content in CONTENTS for body in _parts(content)]
    with (tmp_path / "events").open("wb") as file:
        while file.tell() < GIGABYTE:
            file.writelines(parts)
    files = FolderFiles(tmp_path)
    frames, read = _frames(files), _scalars(files)
    size = (tmp_path / "events").stat().st_size / 1e9
    said = (
        f"{size:.2f} GB of all contents: {frames / read:.0%} of the speed of reading and checking frames, {read:.1f} s"
    )
    os.write(1, f"\n{said}\n".encode())
    assert frames / read >= LEAST_SHARE


def _parts(content: str) -> Iterator[bytes]:
    size = part = 0
    while size < FILE_BYTES:
        body = CONTENTS[content](part)
        yield body
        size += len(body)
        part += 1


def _frames(files: FolderFiles) -> float:
    start, offset = time.process_time(), 0
    while end := walk("events", files.get_range("events", offset, CHUNK_BYTES)).end:
        offset += end
    return time.process_time() - start


def _scalars(files: FolderFiles) -> float:
    start, offset = time.process_time(), 0
    while columns := read_scalars(files, "events", offset):
        offset = columns.end
    return time.process_time() - start


def test_a_step_of_a_thousand_reductions() -> None:
    saved = {f"smdebug/reductions/abs_mean/gradient/layer{number}": np.float32(1) for number in range(REDUCTIONS)}
    files = HookWriter().collections({"gradients": ([], ["^gradient"])}).step(0, saved).files
    best = min(_read_step(files) for _ in range(10))
    os.write(1, f"\na step of {REDUCTIONS:,} reductions: {1_000 * best:.1f} ms from index to numbers\n".encode())
    assert best < REDUCTIONS_LIMIT_S


def _read_step(files: dict[str, bytes]) -> float:
    run = find_run(MemoryFiles(files), "run")
    start = time.process_time()
    step = run.open_step(0, ["worker_0"])
    for name in step.members("gradients"):
        step.reduction(name, "mean", absolute=True)
    return time.process_time() - start
