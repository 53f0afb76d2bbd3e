"""The reader of Nsight Systems' exports: versions, several processes, hostile databases, damage."""

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.nsight_exports import GEMM, NCCL, SCHEMAS, START_NS, ExportWriter, steps
from trainguard.core.errors import KernelTraceError
from trainguard.kernels import columns
from trainguard.kernels.columns import Trace, WorkKind
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.nsight import database
from trainguard.kernels.readers.nsight.reader import read_nsight
from trainguard.kernels.readers.reading import MAGIC
from trainguard.kernels.times.window import find_window

NEW = SCHEMAS["2026"]
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def named(trace: Trace, sort: str) -> Counter[str]:
    rows = trace.gpu if sort == "gpu" else getattr(trace, sort)
    return Counter(trace.names[name] for name in rows.name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report.sqlite"


@pytest.mark.parametrize("version", SCHEMAS)
@pytest.mark.parametrize("batch", [3, database.BATCH_ROWS])
def test_every_version_is_read(version: str, batch: int, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BATCH_ROWS", batch)
    trace = steps(file, SCHEMAS[version]).read()
    new = version == "2026"
    assert set(trace.tally) == {"events"}, "nothing is damaged"
    copy = "Memcpy HtoD (Pageable -> Device)" if new else "Memcpy HtoD"
    assert named(trace, "gpu") == {GEMM: 4, NCCL: 4, copy: 4}
    assert named(trace, "launches") == {"cudaLaunchKernel": 8, "cudaMemcpyAsync": 4, "cudaStreamSynchronize": 4}
    assert named(trace, "annotations") == {f"ProfilerStep#{step}": 1 for step in range(4)} | {"forward": 4}
    assert named(trace, "operators") == {"aten::mm": 4}
    assert named(trace, "waits") == ({"Stream Sync": 4} if new else {})
    gemm = trace.gpu.kind == WorkKind.COMPUTE
    assert trace.gpu.start[gemm].tolist() == [1_000_000 * step + 100_000 for step in range(4)]
    assert trace.gpu.blocks_per_sm[gemm].tolist() == pytest.approx(
        [0.5] * 4 if new else [float("nan")] * 4, nan_ok=True
    )
    assert trace.gpu.size[trace.gpu.kind == WorkKind.MEMCPY].tolist() == [4_096] * 4
    window = find_window(trace)
    assert (window.launch >= 0).all()
    assert sorted(window.step.tolist()) == sorted([0, 1, 2, 3] * 3)
    assert trace.base_ns == (START_NS if new else 0)
    assert [gpu.name for gpu in trace.gpus] == (["NVIDIA H100 80GB HBM3"] if new else [])


def test_an_export_is_judged_by_the_rules_of_all_traces(file: Path) -> None:
    judged = rank_profile(steps(file, NEW).read())
    assert (judged.compute_ns, judged.exposed_communication_ns) == (4 * 400_000, 4 * 200_000)
    assert judged.synchronization_source == "gpu"
    assert judged.start_unix_ns == START_NS
    assert {"kernels/PageableCopy", "kernels/ExposedCommunication"} <= {each.id for each in judged.findings}
    assert judged.quality.missing == ["no rank"]


def test_processes_keep_their_launches_and_their_gpus_apart(file: Path) -> None:
    """Both use correlation 1, stream 7 and device 0, each on a GPU of its own."""
    made = ExportWriter(file)
    for number, pid in enumerate((100, 200)):
        made.gpu(number, sms=132 if number else 66)
        made.add("TARGET_INFO_CUDA_DEVICE", gpuId=number, cudaId=0, pid=pid)
        made.kernel(GEMM, 10_000, 20_000, launch=1_000 * (number + 1), pid=pid, correlation=1)
    trace = made.read()
    window = find_window(trace)
    assert trace.launches.start[window.launch].tolist() == [1_000, 2_000]
    assert trace.gpu.device.tolist() == [0, 1]
    assert trace.gpu.blocks_per_sm.tolist() == [1.0, 0.5]
    assert [trace.names[lane] for lane in trace.gpu.lane] == ["7", "1:7"]
    assert trace.tally["processes"] == 2
    assert any("2 processes" in each for each in rank_profile(trace).quality.missing)


def test_a_graph_that_was_traced_as_a_whole_is_work(file: Path) -> None:
    made = ExportWriter(file)
    made.work("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 5_000, 95_000, 3, graphId=42)
    made.call("cudaGraphLaunch_v10000", 1_000, 2_000, 3)
    trace = made.read()
    assert named(trace, "gpu") == {"CUDA graph 42": 1}
    assert rank_profile(trace).busy_ns == 90_000
    assert any("traced as a whole" in each for each in rank_profile(trace).quality.missing)


def test_what_the_hardware_counted_is_added_up_by_gpu(file: Path) -> None:
    made = steps(file, NEW, 1)
    for gpu in (0, 1):
        made.add("TARGET_INFO_GPU_METRICS", typeId=(5 << 32) | gpu, metricId=3, metricName="SMs Active [Throughput %]")
        for value in (10, 30):
            made.add("GPU_METRICS", timestamp=5, typeId=(5 << 32) | gpu, metricId=3, value=value + gpu)
    made.add("GPU_METRICS", timestamp=5, typeId=1, metricId=99, value=5)
    trace = made.read()
    assert [(each.gpu, each.name, each.samples, each.mean) for each in trace.counters] == [
        (0, "SMs Active [Throughput %]", 2, 20.0),
        (1, "SMs Active [Throughput %]", 2, 21.0),
    ]


def test_ranges_without_an_end_and_marks_are_no_annotations(file: Path) -> None:
    made = steps(file, NEW, 1)
    made.range("open", 5, None)
    made.range("mark", 5, None, kind=34)
    made.range("started", 5, 10, kind=60)
    assert named(made.read(), "annotations") == {"ProfilerStep#0": 1, "forward": 1, "started": 1}


def test_an_export_without_the_gpus_side_says_what_is_missing(file: Path) -> None:
    made = ExportWriter(file, {"NVTX_EVENTS": NEW["NVTX_EVENTS"]})
    made.range("forward", 0, 10)
    assert rank_profile(made.read()).quality.missing[:2] == ["no steps", "no work of a GPU"]


def test_views_virtual_tables_and_computed_columns_are_refused(file: Path) -> None:
    made = steps(file, NEW)
    made.schema["NVTX_EVENTS"] += ", computed INTEGER GENERATED ALWAYS AS (start + 1)"
    bomb = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start, x AS end FROM n"
    virtual = "CREATE VIRTUAL TABLE NVTX_OTHER USING fts5(start)"
    del made.schema[KERNELS]
    trace = made.read([f"CREATE VIEW {KERNELS} AS {bomb}", virtual])
    assert trace.tally["refused_tables"] >= 2
    assert trace.tally["refused_columns"] == 1
    assert set(named(trace, "gpu")) == {"Memcpy HtoD (Pageable -> Device)"}
    said = rank_profile(trace).quality.damaged
    assert any("refused" in each for each in said)


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH DATABASE '{path}.other' AS other",
        "SELECT load_extension('x')",
        "SELECT readfile('/etc/hostname')",
        "PRAGMA writable_schema=ON",
        "CREATE TABLE made (x)",
        "DELETE FROM StringIds",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
    ],
)
def test_nothing_but_reading_is_allowed(statement: str, file: Path) -> None:
    before = steps(file, NEW, 1).write().read_bytes()
    with database.Export("report.sqlite", file, Counter()) as export, pytest.raises(sqlite3.Error):
        export._base.execute(statement.format(path=file)).fetchmany(5)
    assert file.read_bytes() == before
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_values_of_other_types_are_counted_or_unknown(file: Path) -> None:
    made = steps(file, NEW, 1)
    for values in ({"start": "text"}, {"end": b"blob"}, {"end": 1.5}, {"end": 50_000 - (1 << 62)}):
        made.work(KERNELS, 50_000, 60_000, 1, gridX=1, gridY=1, gridZ=1, blockX=1, **names(made))
        made.rows[KERNELS][-1] |= values
    made.work(KERNELS, 50_000, 50_000 + columns.LONGEST_NS + 1, 1, gridX=1, gridY=1, gridZ=1, blockX=1, **names(made))
    made.work(KERNELS, 50_000, 60_000, 1, gridX="x", gridY=1, gridZ=1, blockX=1, demangledName=9_999, shortName="x")
    trace = made.read()
    assert trace.tally["bad_times"] == 5
    assert named(trace, "gpu")[""] == 1


def names(made: ExportWriter) -> dict[str, Any]:
    return {"demangledName": made.string(GEMM), "shortName": made.string("sm90")}


def test_a_long_text_is_cut(file: Path) -> None:
    made = ExportWriter(file)
    made.range("x" * (columns.LONGEST_NAME + 5), 0, 10)
    assert max(map(len, named(made.read(), "annotations"))) == columns.LONGEST_NAME


def test_more_rows_than_a_trace_has_end_in_one_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MOST_ROWS", 10)
    with pytest.raises(KernelTraceError, match="over 10 rows"):
        steps(file, NEW).read()


@pytest.mark.parametrize(
    "body", [b"", b"no database", b"SQLite format 3\x00", b"SQLite format 3\x00" + b"\xff" * 4_096], ids=range(4)
)
def test_what_is_no_database_is_refused(body: bytes, file: Path) -> None:
    file.write_bytes(body)
    with pytest.raises(KernelTraceError, match="cannot be read"):
        read_nsight("report.sqlite", file)


def test_a_database_of_another_program_is_refused(file: Path) -> None:
    ExportWriter(file, {"settings": "name TEXT"}).write()
    with pytest.raises(KernelTraceError, match="expected an nsys export"):
        read_nsight("report.sqlite", file)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_truncated_export_gives_a_part_or_one_error(part: float, file: Path) -> None:
    body = steps(file, NEW, 500).write().read_bytes()
    file.write_bytes(body[: int(part * len(body))])
    try:
        trace = read_nsight("report.sqlite", file)
    except KernelTraceError:
        return
    assert trace.tally["unreadable_parts"]
    assert rank_profile(trace).quality.damaged


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_damage_gives_a_profile_or_one_clear_error(data: st.DataObject, file: Path) -> None:
    if not file.exists():
        steps(file, NEW, 2).write()
    body = bytearray(file.read_bytes())
    used = [place for place in range(0, len(body), 64) if any(body[place : place + 64])]
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.sampled_from(used)) + data.draw(st.integers(0, 63))
        change = data.draw(st.binary(min_size=1, max_size=20))
        body[place : place + len(change)] = change
    damaged = file.with_suffix(".damaged")
    damaged.write_bytes(body)
    try:
        judged = rank_profile(read_nsight("report.sqlite", damaged))
    except KernelTraceError:
        return
    assert 0 <= judged.busy_ns <= judged.window_ns


def test_random_bytes_behind_the_magic_are_refused(file: Path) -> None:
    file.write_bytes(MAGIC + random.Random(1).randbytes(8_192))
    with pytest.raises(KernelTraceError):
        read_nsight("report.sqlite", file)
