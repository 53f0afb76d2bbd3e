"""Dumps become objects when they are whole; hostile ones are dropped, with the reason."""

import gzip
import os
from pathlib import Path

import pytest

from trainguard_collector.hangs.dumps import MOST_BYTES, Dumps
from trainguard_collector.objects import Handover
from trainguard_collector.outgoing import Outgoing

PICKLE = b"\x80\x02}q\x00."
JSON = b'{"entries": []}\n'


def objects(folder: Path) -> dict[str, bytes]:
    outgoing = Outgoing(folder, "run-1", "node-1")
    outgoing.prepare(final=True)
    assert outgoing.faults == {}
    return {key: gzip.decompress(path.read_bytes()) for key, path in outgoing.ready()}


@pytest.fixture
def dumps(tmp_path: Path) -> Dumps:
    return Dumps(tmp_path, Handover(tmp_path, 10**9))


def test_whole_dump_is_sent_unchanged_at_the_second_look(dumps: Dumps, tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_7").write_bytes(PICKLE)
    (tmp_path / "nccl_trace_rank_12").write_bytes(JSON)
    assert dumps.take(str.upper, final=False) == 0
    assert dumps.take(lambda name: f"hang-dumps/{name}", final=False) == 2
    assert objects(tmp_path) == {
        "run-1/hang-dumps/nccl_trace_rank_7.gz": PICKLE,
        "run-1/hang-dumps/nccl_trace_rank_12.gz": JSON,
    }
    assert dumps.faults == {}


def test_dump_that_is_being_written_is_left_alone(dumps: Dumps, tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_7"
    for size in range(1, len(PICKLE)):
        path.write_bytes(PICKLE[:size])
        assert dumps.take(str, final=False) == 0
    assert dumps.take(str, final=False) == 0  # the writer is slow: no end
    path.write_bytes(PICKLE)
    assert [dumps.take(str, final=False) for _ in range(3)] == [0, 1, 0]


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.write(PICKLE)
        file.truncate(2 * 1024**3)


def _link(path: Path) -> None:
    secret = path.parent / "secret"
    secret.write_bytes(PICKLE)
    path.symlink_to(secret)


HOSTILE = {
    "cut": lambda path: path.write_bytes(PICKLE[:-1]),
    "text": lambda path: path.write_text("Hello."),
    "empty": lambda path: path.touch(),
    "2 GiB": _huge,
    "one byte more": lambda path: path.write_bytes(b"\x80" + b"." * MOST_BYTES),
    "link": _link,
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_dump_is_dropped_and_the_next_one_sent(kind: str, dumps: Dumps, tmp_path: Path) -> None:
    HOSTILE[kind](tmp_path / "nccl_trace_rank_1")
    (tmp_path / "nccl_trace_rank_2").write_bytes(PICKLE)
    assert dumps.take(str, final=False) == 0
    assert dumps.take(str, final=True) == 1
    assert not os.path.lexists(tmp_path / "nccl_trace_rank_1")
    expected = "is no regular file" if kind in ("link", "pipe") else "has "
    assert dumps.faults["dump"].startswith(f"nccl_trace_rank_1 {expected}")
    assert list(objects(tmp_path)) == ["run-1/nccl_trace_rank_2.gz"]


def test_folder_in_place_of_a_dump_harms_nothing(dumps: Dumps, tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_1").mkdir()
    (tmp_path / "nccl_trace_rank_2.tmp").write_bytes(PICKLE)
    assert dumps.take(str, final=True) == 0
    assert dumps.faults["dump"] == "nccl_trace_rank_1 is no regular file"


def test_number_of_dumps_is_bounded(dumps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainguard_collector.hangs.dumps.MOST_DUMPS", 2)
    for rank in range(5):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(PICKLE)
    assert dumps.take(str, final=True) == 2
    assert "more than 2" in dumps.faults["dump"]
