"""``trainguard kernels`` with memory snapshots: alone, beside traces and beside files that cannot be read."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from tests.support.html_pages import Page
from tests.support.kernel_traces import real_text
from tests.support.memory_snapshots import MIB, Allocator, Training, as_json, frame, pickled
from trainguard.cli.commands.kernels.schema import kernels_schema
from trainguard.cli.main import app


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["kernels", *map(str, words)])
    return result.exit_code, result.output


def leaking(**more: Any) -> bytes:
    training = Training(leak=3, **more)
    training.setup()
    training.run(12)
    return pickled(training.allocator.snapshot())


def out_of_memory() -> dict[str, Any]:
    training = Training(Allocator(limit=400 * MIB), logits=260)
    training.setup()
    with pytest.raises(MemoryError):
        training.run(3)
    return training.allocator.snapshot()


@pytest.mark.parametrize("name", ["dump", "memory.pickle", "snapshot.pkl.gz", "mem_snapshot.json"])
def test_a_snapshot_alone_has_document_page_and_findings(name: str, tmp_path: Path) -> None:
    body = as_json(out_of_memory()) if name.endswith("json") else leaking()
    (tmp_path / name).write_bytes(gzip.compress(body) if name.endswith("gz") else body)
    code, said = run(tmp_path / name, "--out", tmp_path / "out")
    assert code == 0, said
    document = json.loads((tmp_path / "out" / "kernels.json").read_bytes())
    Draft202012Validator(kernels_schema()).validate(document)
    (snapshot,) = document["snapshots"]
    assert (document["ranks"], snapshot["trace"]) == ([], name)
    rule = "kernels/GpuMemoryRanOut" if name.endswith("json") else "kernels/GpuMemoryGrows"
    assert snapshot["findings"][0]["id"] == rule
    assert rule in said
    assert "memory of GPU 0" in said
    page = (tmp_path / "out" / "kernels.html").read_text()
    assert f'id="finding-{rule.removeprefix("kernels/")}"' in page
    assert "Largest holders of" in page
    assert 'id="timeline"' not in page
    assert run(tmp_path / name, "--out", tmp_path / "out", "--fail-on-fire")[0] == 1


def test_neither_a_snapshot_nor_its_neighbours_are_lost(tmp_path: Path) -> None:
    (tmp_path / "rank0.pt.trace.json").write_bytes(real_text("h100_bert_small_1step"))
    (tmp_path / "rank0_snapshot.pickle").write_bytes(leaking())
    (tmp_path / "model.pickle").write_bytes(b"\x80\x04cos\nsystem\n.")
    (tmp_path / "cut.pickle").write_bytes(leaking()[:5_000])
    code, said = run(tmp_path, "--out", tmp_path / "out")
    assert code == 0, said
    document = json.loads((tmp_path / "out" / "kernels.json").read_bytes())
    assert [each["trace"] for each in document["ranks"]] == ["rank0.pt.trace.json"]
    assert [(each["trace"], each["rank"]) for each in document["snapshots"]] == [("rank0_snapshot.pickle", 0)]
    assert "opcode b'c' at byte 2, expected plain values" in document["unread"]["model.pickle"]
    assert "cut.pickle" in document["unread"]
    assert document["ranks"][0]["memory"][0]["limit"] == 85_018_279_936
    assert document["across"] is None
    page = (tmp_path / "out" / "kernels.html").read_text()
    assert 'id="timeline"' in page
    assert "rank0_snapshot.pickle, GPU 0" in page
    _, listed = run(tmp_path, "--list", "--json")
    (line,) = json.loads(listed)["profiles"]
    assert (line["traces"], "GpuMemoryGrows" in line["findings"]) == (2, True)


def test_a_folder_of_snapshots_is_read_without_other_json(tmp_path: Path) -> None:
    for rank in range(10):
        (tmp_path / f"rank{rank}_memory_snapshot.pickle").write_bytes(leaking())
    (tmp_path / "config.json").write_text("{}")
    code, said = run(tmp_path, "--out", tmp_path / "out")
    assert code == 0, said
    assert "1 file not read: config.json" in said
    assert "2 more traces not shown here: rank8_memory_snapshot.pickle, rank9_memory_snapshot.pickle" in said
    assert "2 GPUs with less memory are in kernels.json." in (tmp_path / "out" / "kernels.html").read_text()


def test_texts_of_a_snapshot_are_shown_and_not_run(tmp_path: Path) -> None:
    allocator = Allocator()
    markup = "</script><img src=x onerror=window.__hacked=1>"
    allocator.alloc(MIB, [frame(f"{markup}\u202e.py", 1, markup)])
    name = "rank0 <b>_snapshot.pickle"
    (tmp_path / name).write_bytes(pickled(allocator.snapshot()))
    assert run(tmp_path / name, "--out", tmp_path / "out")[0] == 0
    page = (tmp_path / "out" / "kernels.html").read_text()
    assert not Page(page).of("img")
    assert "\u202e" not in page
