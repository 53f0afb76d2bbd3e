"""A trainer's file that was made to fill the evaluator: reading it stays bounded, and what is left out shows.

Numbers of two characters are the dearest there are: the files are as large as the limits on numbers and rows need.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.functional.telemetry.test_memory import MEGABYTE, MOST, peak
from trainguard.core.errors import TelemetryFormatError
from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.training.stream import scalar_names
from trainguard.formats.tensors.scalars import taken_rows, trainer_files
from trainguard.formats.tensors.scalars.rows import values_of
from trainguard.formats.tensors.scalars.taken_rows import TakenRows
from trainguard.formats.tensors.scalars.text_lines import MOST_LINE
from trainguard.formats.tensors.scalars.trainer_files import MAX_FILE_BYTES, read_history, read_trainer_state

NAMES = scalar_names(FAMILIES.plan(JobRecord("job", "arn", "bucket", "")))
# The normal suite reads files of so small a share of the limits, and allows the same share of the memory.
SHARE = 64


def table(size: int, columns: int, cell: bytes = b"0") -> bytes:
    header = b"step," + b",".join(b"loss%d" % number for number in range(columns)) + b"\n"
    row = b"1," + b",".join([cell] * columns) + b"\n"
    return header + row * ((size - len(header)) // len(row))


def history(size: int, entry: bytes) -> bytes:
    return b'{"log_history": [' + (entry * (size // len(entry)))[:-1] + b"]}"


def wide_entry(columns: int) -> bytes:
    return b'{"step":1,' + b",".join(b'"loss%d":0' % number for number in range(columns)) + b"},"


def read(body: bytes) -> TakenRows:
    found = (read_trainer_state if body.startswith(b"{") else read_history)("file", body)
    values_of(found.rows, NAMES)
    return found


def read_or_refuse(body: bytes) -> None:
    with suppress(TelemetryFormatError):
        read(body)


def bodies(size: int) -> dict[str, bytes]:
    return {
        "columns": table(size, 1_500),
        "a line of columns": b"step," + b"a," * (size // 2) + b"\n",
        "lines of one number": table(size, 1),
        "a line in quotes": b'step,"a\n' + b'%s","\n' % (b"b" * 20) * (size // 24),
        "entries of one number": history(size, b'{"step":1,"a":0},'),
        "entries of many numbers": history(size, wide_entry(1_500)),
        "names": b'{"log_history":[' + b",".join(b'{"step":1,"x%d":0}' % at for at in range(size // 22)) + b"]}",
        "another field": b'{"x":[' + b"0," * (size // 2) + b'0],"log_history":[]}',
        "one entry": b'{"log_history":[{"x":[' + b"0," * (size // 2) + b"0]}]}",
    }


KINDS = sorted(bodies(100))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_made_to_fill_memory_stays_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MOST_NUMBERS", "MOST_ROWS", "MOST_NAMES"):
        monkeypatch.setattr(taken_rows, limit, getattr(taken_rows, limit) // SHARE)
    monkeypatch.setattr(trainer_files, "MOST_LINE", MOST_LINE // SHARE)
    body = bodies(MAX_FILE_BYTES // SHARE)[kind]
    assert peak(lambda: read_or_refuse(body)) < 2 * MOST // SHARE + 8 * MEGABYTE


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_the_largest_size_stays_bounded(kind: str) -> None:
    body = bodies(MAX_FILE_BYTES)[kind]
    assert peak(lambda: read_or_refuse(body)) < 2 * MOST


@pytest.mark.parametrize(
    ("limit", "most", "kept", "why"),
    [
        ("MOST_NUMBERS", 7, 2, "more than 7 numbers"),
        ("MOST_NAMES", 2, 0, "more than 2 names of scalars"),
        ("MOST_ROWS", 3, 3, "more than 3 "),
    ],
)
@pytest.mark.parametrize("make", [lambda: table(200, 3), lambda: history(400, wide_entry(3))])
def test_what_is_beyond_a_limit_is_counted_by_kind(
    limit: str, most: int, kept: int, why: str, make: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = make()
    whole = read(body)
    monkeypatch.setattr(taken_rows, limit, most)
    found = read(body)
    assert (len(found.rows), found.why is not None and found.why.startswith(why)) == (kept, True)
    assert found.bad > whole.bad
