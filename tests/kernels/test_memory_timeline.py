"""Memory timelines of torch.profiler: each form, what they cannot say, and hostile ones."""

import gzip
import io
import json
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from trainguard.cli.commands.kernels.schema import kernels_schema
from trainguard.cli.main import app
from trainguard.core.errors import KernelTraceError
from trainguard.kernels.memory.entries import GpuMemory
from trainguard.kernels.memory.snapshot import MemorySnapshot
from trainguard.kernels.memory.timeline import read_timeline
from trainguard.kernels.profile import snapshot_profile
from trainguard.kernels.readers.reading import read_recording

PARAMETER, STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT, DETAIL, UNKNOWN = range(8)
BEFORE, CREATE, CHANGE, DESTROY = 1, 2, 3, 4
START = 1_795_000_000_000_000_000
EVENTS = [
    *((-1, BEFORE, size, PARAMETER) for size in (800, 200)),
    (-1, BEFORE, 50, INPUT),
    *((START + step * 4_000, CREATE, 300, ACTIVATION) for step in range(4)),
    (START + 20_000, CREATE, 70, TEMPORARY),
    (START + 20_000, CREATE, 40, UNKNOWN),
    (START + 24_000, CREATE, 1_000, GRADIENT),
    (START + 24_000, CREATE, 10, DETAIL),
    (START + 25_000, DESTROY, -300, ACTIVATION),
    (START + 28_000, CHANGE, -200, PARAMETER),
    (START + 28_000, CHANGE, 200, PARAMETER),
    (START + 40_000, CREATE, 2_000, STATE),
    *((START + 41_000 + step, DESTROY, -300, ACTIVATION) for step in range(3)),
]
PEAK = {"parameters": 1_000, "optimizer_state": 2_000, "gradients": 1_000, "activations": 900}
PEAK |= {"workspace": 80, "unattributed": 90}


def raw(events: list[tuple[int, int, int, int]]) -> bytes:
    return json.dumps(events).encode()


def plain(events: list[tuple[int, int, int, int]]) -> bytes:
    """Return times in microseconds and sizes by category, as ``export_memory_timeline`` adds them up."""
    times: list[int] = []
    sizes: list[list[int]] = []
    for at, _, size, category in events:
        time = at // 1_000 if at >= 0 else START // 1_000
        if not times or times[-1] != time:
            times.append(time)
            sizes.append(list(sizes[-1]) if sizes else [0] * 9)
        sizes[-1][category + 1] += size
    return json.dumps([times, sizes]).encode()


def read(body: bytes, name: str = "rank2.raw.json.gz") -> MemorySnapshot:
    found = read_recording(name, partial(io.BytesIO, body))
    assert isinstance(found, MemorySnapshot)
    return found


def memory_of(body: bytes) -> GpuMemory:
    profile = snapshot_profile(read(body))
    assert (profile.rank, profile.findings) == (2, [])
    (memory,) = profile.memory
    return memory


@pytest.mark.parametrize("form", [raw, plain])
def test_each_form_has_its_peak_by_category(form: Any) -> None:
    body = form(EVENTS)
    memory = memory_of(body)
    assert memory == memory_of(gzip.compress(body))
    assert memory.kinds == PEAK
    assert (memory.peak, memory.peak_at_ns) == (sum(PEAK.values()), 40_000)
    assert max(memory.curve.allocated) == memory.peak
    assert [sum(sizes) for sizes in zip(*memory.curve.kinds.values(), strict=True)] == memory.curve.allocated


def test_what_a_timeline_cannot_say_is_said(tmp_path: Path) -> None:
    (tmp_path / "rank2.raw.json.gz").write_bytes(gzip.compress(raw(EVENTS)))
    result = CliRunner().invoke(app, ["kernels", str(tmp_path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "Not judged. A device without a name holds" in result.output
    assert "no rule judges it" in result.output
    document = json.loads((tmp_path / "out" / "kernels.json").read_bytes())
    Draft202012Validator(kernels_schema()).validate(document)
    (memory,) = document["snapshots"][0]["memory"]
    assert (memory["source"], memory["holders"], memory["most_reserved"], memory["limit"]) == (
        "timeline",
        [],
        None,
        None,
    )
    assert "names no device" in (tmp_path / "out" / "kernels.html").read_text()


def test_the_picture_of_a_timeline_is_refused_by_name() -> None:
    body = b'<html>\n<head><meta charset="utf-8" /><title>GPU Memory Timeline HTML</title></head>\n<body>'
    with pytest.raises(KernelTraceError, match=r"a picture of a memory timeline, expected export_memory_timeline"):
        read(body, "rank0.html")


REFUSED = {
    "no event": (b"[[], []]", "without an event"),
    "rows of another width": (b"[[1, 2], [[0, 1], [0, 2]]]", "each of 9 sizes"),
    "fewer rows": (b"[[1, 2], [[0, 0, 0, 0, 0, 0, 0, 0, 0]]]", "2 times and 1 rows"),
    "numbers of no timeline": (b"[[1, 2, 3]]", "expected the .json or .raw.json"),
    "cut": (raw(EVENTS)[:200], "expected the .json or .raw.json"),
    "sizes beyond any memory": (raw([(1, 2, 1 << 50, 0)]), "expected the .json or .raw.json"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_timeline_is_refused_with_its_reason(name: str) -> None:
    body, reason = REFUSED[name]
    with pytest.raises(KernelTraceError, match=reason):
        read(body)


def test_a_timeline_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainguard.kernels.readers.reading.MOST_TIMELINE_BYTES", 100)
    with pytest.raises(KernelTraceError, match="a memory timeline of over 100 bytes"):
        read(gzip.compress(raw(EVENTS)))


NUMBERS = st.integers(-(1 << 70), 1 << 70) | st.integers(-10, 10)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS)) | st.lists(st.lists(st.lists(NUMBERS) | NUMBERS)))
def test_any_numbers_end_in_a_profile_or_an_error(values: list[Any]) -> None:
    with suppress(KernelTraceError):
        (memory,) = read_timeline("x", json.dumps(values).encode()).memory
        assert memory.held == sum(memory.kinds.values())
        assert min(memory.curve.allocated) >= 0


@given(
    st.lists(
        st.tuples(st.integers(-1, 1 << 60), st.integers(1, 4), st.integers(-99, 99), st.integers(-2, 9)), min_size=1
    )
)
def test_events_of_unknown_categories_are_counted(events: list[tuple[int, int, int, int]]) -> None:
    bad = sum(not 0 <= category < 8 for *_, category in events)
    if bad == len(events):
        with pytest.raises(KernelTraceError, match="without an event"):
            read_timeline("x", raw(events))
    else:
        assert read_timeline("x", raw(events)).tally.get("bad_events", 0) == bad
