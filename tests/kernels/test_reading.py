"""Traces of all formats by name and content, from a file, a folder and S3, and what none of them may do."""

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from tests.support import xplanes
from tests.support.kernel_traces import FP32_GEMM, TraceWriter
from tests.support.nsight_exports import SCHEMAS, steps
from trainguard.cli.commands.kernels import judged
from trainguard.cli.main import app
from trainguard.core.errors import KernelTraceError
from trainguard.kernels.columns import Trace
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers import reading
from trainguard.kernels.readers.reading import MAGIC, read_any
from trainguard.local.traces import open_traces


def chrome() -> bytes:
    made = TraceWriter()
    made.step(1, 0, 100)
    made.kernel(FP32_GEMM, 10, 50, launch=0)
    return made.text()


def xla() -> bytes:
    made = xplanes.ProfileWriter()
    made.step(1, 0, 100)
    made.kernel(FP32_GEMM, 10, 50, launch=0)
    return made.text()


def nsight(folder: Path) -> bytes:
    return steps(folder / "made.sqlite", SCHEMAS["2026"]).write().read_bytes()


@pytest.fixture
def bodies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return {"chrome": chrome(), "xla": xla(), "nsight": nsight(tmp_path_factory.mktemp("made"))}


@pytest.mark.parametrize("format_", ["chrome", "xla", "nsight"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_format_is_known_by_its_content(
    format_: str, packed: bool, on_disk: bool, bodies: dict[str, bytes], tmp_path: Path
) -> None:
    file = tmp_path / "trace.bin"
    file.write_bytes(gzip.compress(bodies[format_]) if packed else bodies[format_])
    trace = read_any(file.name, lambda: file.open("rb"), file if on_disk else None)
    assert len(trace.gpu) == {"chrome": 1, "xla": 1, "nsight": 12}[format_]


def test_unexported_report_is_refused_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "report.nsys-rep").write_bytes(b"\x00")
    for place in (tmp_path, tmp_path / "report.nsys-rep"):
        code, said = run(place, tmp_path / "out")
        assert (code, "nsys export --type sqlite" in said) == (2, True)


def test_a_folder_of_jax_gives_its_profiles_and_not_their_copies(bodies: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "plugins" / "profile" / "2026_11_23"
    folder.mkdir(parents=True)
    for host in ("host-a", "host-b"):
        (folder / f"{host}.xplane.pb").write_bytes(bodies["xla"])
        (folder / f"{host}.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    (folder / "perfetto_trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    code, said = run(tmp_path / "logs", tmp_path / "out")
    assert code == 0, said
    document = json.loads((tmp_path / "out" / "kernels.json").read_bytes())
    assert [rank["trace"].rpartition("/")[2] for rank in document["ranks"]] == ["host-a.xplane.pb", "host-b.xplane.pb"]


def test_a_folder_may_hold_traces_of_all_formats(bodies: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "a.pt.trace.json.gz").write_bytes(gzip.compress(bodies["chrome"]))
    (tmp_path / "b.xplane.pb").write_bytes(bodies["xla"])
    (tmp_path / "c.sqlite").write_bytes(bodies["nsight"])
    (tmp_path / "settings.sqlite").write_bytes(b"of another program")
    code, said = run(tmp_path, tmp_path / "out")
    assert code == 0, said
    document = json.loads((tmp_path / "out" / "kernels.json").read_bytes())
    assert {rank["trace"] for rank in document["ranks"]} == {"a.pt.trace.json.gz", "b.xplane.pb", "c.sqlite"}
    assert list(document["unread"]) == ["settings.sqlite"]


def run(place: Path | str, out: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["kernels", str(place), "--out", str(out)])
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def bucket(bodies: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="traces")
        s3.put_object(Bucket="traces", Key="job/plugins/profile/1/h.xplane.pb", Body=bodies["xla"])
        s3.put_object(Bucket="traces", Key="job/report.sqlite", Body=bodies["nsight"])
        yield "s3://traces/job"


def test_all_formats_are_read_from_s3(bucket: str) -> None:
    place = open_traces(bucket)
    assert list(place.names) == ["plugins/profile/1/h.xplane.pb", "report.sqlite"]
    traces = [place.read(name) for name in place.names]
    assert [len(each.gpu) for each in traces if isinstance(each, Trace)] == [1, 12]


def test_an_export_in_s3_that_is_too_large_is_refused(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_DATABASE_BYTES", 10_000)
    with pytest.raises(KernelTraceError, match="over 10,000 bytes"):
        open_traces(bucket).read("report.sqlite")


def test_profile_and_results_of_a_job_folder_are_no_traces(tmp_path: Path) -> None:
    others = (
        "profiler-output/system/1.algo-1.json",
        "debug-output/index/1.json",
        "rule-output/TrainGuardReport/a.json",
    )
    for name in (*others, "rule-output/copy.pt.trace.json", "logs/plain.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert open_traces(str(tmp_path)).names == ["logs/plain.json"]
    (tmp_path / "rank0.pt.trace.json").touch()
    assert open_traces(str(tmp_path)).names == ["rank0.pt.trace.json"]
    assert open_traces(str(tmp_path / "rule-output")).names == ["copy.pt.trace.json"]


@pytest.mark.parametrize("name", ["bomb.json.gz", "bomb.xplane.pb", "bomb.sqlite"])
def test_a_gzip_bomb_ends_in_one_clear_error(name: str, tmp_path: Path) -> None:
    """200 MB of one byte are 200 kB: no trace grows that much, and nobody waits for the end of it."""
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    first = {"bomb.json.gz": b'{"traceEvents": [', "bomb.xplane.pb": b"", "bomb.sqlite": MAGIC}[name]
    fill = b"\x0a\x02\x12\x00" * 250_000 if name == "bomb.xplane.pb" else b" " * 1_000_000
    body = packer.compress(first)
    for _ in range(200):
        body += packer.compress(fill)
    file = tmp_path / name
    file.write_bytes(body + packer.flush())
    with pytest.raises(KernelTraceError, match=r"grows over 400-fold|over 67,108,864 bytes|over 10,000 planes"):
        read_any(name, lambda: file.open("rb"), file)


def test_a_deep_nest_in_a_trace_costs_the_event_that_it_is_in() -> None:
    nest = b"[" * 100_000 + b"]" * 100_000
    text = chrome().replace(b'"traceName"', b'"traceName0"')
    broken = text.replace(b'"stream": 7', b'"stream": ' + nest)
    assert broken != text
    trace = read_any("trace.json", lambda: io.BytesIO(broken))
    assert len(trace.gpu) == 0
    assert trace.tally["unreadable_events"] == 1


def test_a_fault_of_a_reader_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").write_bytes(chrome())
    faulty = "trainguard.local.judged_traces.rank_profile"
    monkeypatch.setattr(faulty, lambda trace: 1 // 0 if "rank1" in trace.name else rank_profile(trace))
    result = judged.judged(str(tmp_path), tmp_path / "out", None)
    assert isinstance(result.document, KernelProfiles)
    assert list(result.document.unread) == ["rank1.json"]
    assert result.document.unread["rank1.json"].endswith("integer division or modulo by zero")
    assert len(result.document.ranks) == 1
