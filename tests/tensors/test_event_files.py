"""TensorBoard's event files: scalars of all that write them, in growing files, beside what is no scalar."""

import math
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.support.fuzzing import search, short_and_long
from tests.support.run_folder import FolderFiles, MemoryFiles
from tests.support.tensor_files import NOW, event, field_of, frame, number_of, simple_scalar, tensor_scalar
from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.tensors.frames import walk
from trainguard.formats.tensors.scalars import bulk
from trainguard.formats.tensors.scalars.bulk import CHUNK_BYTES, decode_scalars, read_scalars, scalars_of
from trainguard.formats.tensors.scalars.rows import ScalarColumns

DATA = Path(__file__).parents[1] / "data" / "event_files"
VERSION = frame(b"\x09" + struct.pack("<d", NOW) + field_of(3, b"brain.Event:2"))

Plain = list[tuple[str, int, float, float]]


def histogram(tag: str, size: int) -> bytes:
    return field_of(1, field_of(1, tag.encode()) + field_of(5, bytes(size)))


def written(*frames: bytes) -> MemoryFiles:
    return MemoryFiles({"events": b"".join(frames)})


def plain(columns: ScalarColumns | None) -> Plain:
    assert columns is not None
    return [
        (columns.tags[tag], step, at, value)
        for tag, step, at, value in zip(
            columns.tag.tolist(), columns.step.tolist(), columns.at.tolist(), columns.value.tolist(), strict=True
        )
    ]


def one_by_one(content: bytes) -> Plain:
    """Return the scalars of a file without the bulk reader."""
    walked = walk("events", content)
    found = []
    for start, length in zip(walked.starts.tolist(), walked.lengths.tolist(), strict=True):
        found += scalars_of("events", content[start : start + length])
    return found


def test_a_file_of_tensorboardx() -> None:
    columns = read_scalars(FolderFiles(DATA), "events.out.tfevents.tensorboardx")
    assert columns is not None
    found = {(tag, step): value for tag, step, _, value in plain(columns)}
    assert found.keys() == {(tag, step) for tag in ("train/loss", "val/acc") for step in range(20)}
    assert found["train/loss", 3] == 0.25
    assert columns.bad == 0


def test_a_file_of_tensorboards_own_writer() -> None:
    found = plain(read_scalars(FolderFiles(DATA), "events.out.tfevents.tensorboard"))
    assert [value for tag, _, _, value in found if tag == "epoch_loss"] == [
        np.float32(1 / (step + 1)) for step in range(20)
    ]
    assert [value for tag, _, _, value in found if tag == "described"] == [3.0]


@pytest.mark.parametrize(
    "summary",
    [
        simple_scalar("loss", 0.5),
        tensor_scalar("loss", 0.5),
        tensor_scalar("loss", 0.5, packed=True),
        tensor_scalar("loss", 0.5, plugin=None),
        simple_scalar("loss", 0.5) + histogram("weights", 40),
        histogram("weights", 4_000) + simple_scalar("loss", 0.5),
    ],
)
def test_every_form_of_a_scalar(summary: bytes) -> None:
    for count in (1, 40):
        frames = [frame(event(summary, step=step, at=NOW + step)) for step in range(count)]
        assert plain(read_scalars(written(VERSION, *frames), "events")) == [
            ("loss", step, NOW + step, 0.5) for step in range(count)
        ]


def test_what_is_no_scalar_is_passed_over() -> None:
    vector = field_of(1, field_of(1, b"v") + field_of(8, number_of(1, 1) + field_of(4, bytes(400))))
    text = tensor_scalar("note", 1.0, plugin="text")
    large = field_of(1, field_of(1, b"image") + field_of(4, bytes(5_000)))
    graph = b"\x09" + struct.pack("<d", NOW) + field_of(4, bytes(20_000))
    frames = [frame(event(each, step=1)) for each in (vector, text, large, histogram("h", 600))]
    assert plain(read_scalars(written(VERSION, *frames, frame(graph)), "events")) == []


def test_values_that_are_no_numbers_stay_so() -> None:
    frames = [frame(event(simple_scalar("loss", value), step=1)) for value in (math.nan, math.inf) for _ in range(9)]
    values = [value for _, _, _, value in plain(read_scalars(written(*frames), "events"))]
    assert np.isnan(values[:9]).all()
    assert np.isinf(values[9:]).all()


summaries = st.one_of(
    st.builds(simple_scalar, st.sampled_from(["a", "b", "loss", "long/name"]), st.floats(width=32)),
    st.builds(tensor_scalar, st.sampled_from(["a", "loss"]), st.floats(width=32), packed=st.booleans()),
    st.builds(histogram, st.just("h"), st.sampled_from([10, 600, 700])),
    st.builds(
        lambda one, two: simple_scalar("a", one) + simple_scalar("b", two), st.floats(width=32), st.floats(width=32)
    ),
)
events = st.builds(
    lambda summary, step, at: event(summary, step=step, at=at),
    summaries,
    st.sampled_from([0, 1, 127, 128, 20_000, 2**40]),
    st.floats(0, 2e9),
)


@short_and_long
def test_the_bulk_reader_agrees_with_the_plain_one(examples: int) -> None:
    def check(payloads: list[bytes], repeats: int) -> None:
        content = b"".join(frame(payload) for payload in payloads * repeats)
        columns = decode_scalars("events", content, walk("events", content))
        assert repr(plain(columns)) == repr(one_by_one(content))

    search(check, examples, payloads=st.lists(events, min_size=1, max_size=12), repeats=st.sampled_from([1, 9, 30]))


@short_and_long
def test_a_file_that_grows_gives_what_the_whole_one_gives(examples: int) -> None:
    def check(payloads: list[bytes], cuts: list[float]) -> None:
        whole = VERSION + b"".join(frame(payload) for payload in payloads)
        offset, found = 0, []
        for end in sorted([*(int(cut * len(whole)) for cut in cuts), len(whole)]):
            columns = read_scalars(MemoryFiles({"events": whole[:end]}), "events", offset)
            if columns is not None:
                found += plain(columns)
                offset = columns.end
        assert repr(found) == repr(one_by_one(whole))
        assert offset == len(whole)

    search(check, examples, payloads=st.lists(events, max_size=8), cuts=st.lists(st.floats(0, 1), max_size=5))


class TestDamage:
    def test_payload_with_wrong_checksum_is_counted(self) -> None:
        good = [frame(event(simple_scalar("loss", 1.0), step=step)) for step in range(3)]
        broken = bytearray(good[1])
        broken[-6] ^= 1
        columns = read_scalars(written(good[0], bytes(broken), good[2]), "events")
        assert [step for _, step, _, _ in plain(columns)] == [0, 2]
        assert columns is not None
        assert (columns.bad, columns.why) == (1, "an event does not agree with its checksum")

    def test_the_footer_of_the_hook_is_not_tensorboards(self) -> None:
        columns = read_scalars(written(frame(event(simple_scalar("loss", 1.0), step=1), footer=0x062DC0B3)), "events")
        assert columns is not None
        assert columns.bad == 1

    def test_what_comes_before_a_broken_length_is_read(self) -> None:
        files = written(frame(event(simple_scalar("loss", 1.0), step=1)), b"x" * 40)
        columns = read_scalars(files, "events")
        assert len(plain(columns)) == 1
        assert columns is not None
        with pytest.raises(TelemetryFormatError, match="checksum"):
            read_scalars(files, "events", columns.end)

    def test_an_event_over_the_chunk_is_passed_over_unread(self) -> None:
        graph = frame(b"\x09" + struct.pack("<d", NOW) + field_of(4, bytes(CHUNK_BYTES)))
        files = written(VERSION, graph, frame(event(simple_scalar("loss", 1.0), step=1)))
        offset, found = 0, []
        while columns := read_scalars(files, "events", offset):
            found += plain(columns)
            offset = columns.end
        assert [tag for tag, _, _, _ in found] == ["loss"]

    def test_a_step_that_does_not_end_is_not_read_in_bulk(self) -> None:
        payloads = [event(simple_scalar("loss", 1.0), step=step) for step in range(200, 240)]
        broken = bytearray(payloads[20])
        broken[11] |= 0x80
        columns = read_scalars(written(*(frame(each) for each in (*payloads, bytes(broken)))), "events")
        assert [step for _, step, _, _ in plain(columns)] == list(range(200, 240))
        assert columns is not None
        assert columns.bad == 1

    def test_a_long_tag_is_counted(self) -> None:
        columns = read_scalars(written(frame(event(simple_scalar("x" * 2_000, 1.0), step=1))), "events")
        assert columns is not None
        assert columns.bad == 1
        assert columns.why == "a tag has 2,000 bytes, expected at most 1,024"

    @short_and_long
    def test_hostile_bytes_give_one_error(self, examples: int) -> None:
        whole = VERSION + b"".join(frame(event(simple_scalar("loss", step), step=step)) for step in range(20))

        def check(place: int, instead: bytes, proper: bool) -> None:
            content = whole[:place] + instead + whole[place + len(instead) :]
            if proper:
                content = b"".join(frame(content[start : start + 40]) for start in range(0, len(content), 40))
            offset = 0
            with suppress(TelemetryFormatError):
                while columns := read_scalars(MemoryFiles({"events": content}), "events", offset):
                    assert columns.end > offset
                    assert columns.value.size <= len(content)
                    offset = columns.end

        search(
            check,
            examples,
            place=st.integers(0, len(whole)),
            instead=st.binary(max_size=60),
            proper=st.booleans(),
        )


def test_rows_of_one_hash_are_still_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "hashes_of", lambda words: np.zeros(len(words), np.uint64))
    content = b"".join(
        frame(event(simple_scalar(tag, step), step=step)) for step in range(1, 100) for tag in ("aaaa", "bbbb")
    )
    assert plain(decode_scalars("events", content, walk("events", content))) == one_by_one(content)


def test_a_bulk_reader_that_reads_nothing_would_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(frame(event(simple_scalar("loss", step), step=step)) for step in range(300))
    fast = plain(decode_scalars("events", content, walk("events", content)))

    def nothing(file: str, content: bytes, walked: Any) -> Any:
        return [], np.arange(walked.starts.size)

    monkeypatch.setattr(bulk, "read_bulk", nothing)
    assert plain(decode_scalars("events", content, walk("events", content))) == fast
