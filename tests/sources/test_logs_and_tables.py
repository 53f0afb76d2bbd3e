"""Reports of neuron-monitor, logs of Dynolog, tables: what is read of them, and what a broken line costs."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from trainguard.cli.main import app
from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.runs import dynolog, neuron_monitor
from trainguard.formats.runs.dynolog import read_dynolog
from trainguard.formats.runs.neuron_monitor import read_neuron_monitor
from trainguard.formats.runs.run import SeriesName, SourceRun
from trainguard.formats.runs.table import NO_DEVICE, NO_NUMBER, NO_SHARE, NO_TIME, read_mapping
from trainguard.local.places import recording_at

AT = 1_800_000_000.0
PARTS = ((0, "12 %"), (1, "[N/A]"))


def gpu(number: int, dimension: str = "GPUUtilization") -> SeriesName:
    return SeriesName("gpu", f"gpu{number}", dimension)


def core(number: int, dimension: str = "CPUUtilization") -> SeriesName:
    return SeriesName("cpu", f"cpu{number}", dimension)


def report(used: float, period: float = 5.0, *, programs: int = 1) -> bytes:
    """Return a report in the form of neuron-monitor's guide."""
    counters = {"period": period, "neuroncores_in_use": {"0": {"neuroncore_utilization": used}, "1": None}}
    system = {
        "vcpu_usage": {"period": period, "usage_data": {"0": {"idle": 30.0, "io_wait": 4.0}, "all": {"idle": 1.0}}},
        "memory_info": {"memory_total_bytes": 200, "memory_used_bytes": 50},
    }
    whole = {
        "neuron_runtime_data": [{"pid": each, "report": {"neuroncore_counters": counters}} for each in range(programs)],
        "system_data": system,
        "instance_info": {"instance_id": "i-0abc", "instance_type": "trn1.32xlarge", "error": ""},
    }
    return json.dumps(whole).encode() + b"\n"


def logged(seconds: float, data: dict[str, object]) -> bytes:
    """Return a line as Dynolog's logger and glog write it."""
    text = json.dumps(data, separators=(",", ":"))
    return f"I20270115 08:00:00.1 77 Logger.cpp:55] time = 2027-01-15T08:00:{seconds:06.3f}Z data = {text}\n".encode()


def test_memory_of_programs_on_a_neuron_core_is_summed() -> None:
    def program(**cores: object) -> dict[str, object]:
        used = {"neuron_runtime_used_bytes": {"usage_breakdown": {"neuroncore_memory_usage": cores}}}
        return {"report": {"memory_used": used}}

    whole: dict[str, object] = {
        "neuron_runtime_data": [
            program(**{"0": {"tensors": 1_000, "model_code": 20}, "x": {"tensors": 1}}),
            program(**{"0": {"tensors": 500}, "1": {"tensors": -1}, "2": {"tensors": "a"}, "3": 7}),
        ]
    }
    [[snapshot]] = read_neuron_monitor("trn", [json.dumps(whole).encode() + b"\n"], AT).snapshots.values()
    assert snapshot.values == {SeriesName("gpu", "gpu0.MemoryUsedBytes"): 1_520.0}


def test_neuron_monitor_times_are_counted_back_from_the_last() -> None:
    run = read_neuron_monitor("trn", [report(10.0), report(20.0), report(30.0, 10.0)], AT)
    [(node, snapshots)] = run.snapshots.items()
    assert (node, run.gpu_type, run.bad) == ("i-0abc", "trn1.32xlarge", {})
    assert [(each.at, each.values[gpu(0)]) for each in snapshots] == [(AT - 15.0, 10.0), (AT - 10.0, 20.0), (AT, 30.0)]
    assert snapshots[0].values == {
        gpu(0): 10.0,
        core(0): 70.0,
        core(0, "I/OWaitPercentage"): 4.0,
        SeriesName("memory", "MemoryUsedPercent"): 25.0,
    }


def test_core_shared_by_several_programs_has_their_sum() -> None:
    [snapshots] = read_neuron_monitor("trn", [report(40.0, programs=2)], AT).snapshots.values()
    assert snapshots[0].values[gpu(0)] == 80.0


def test_invalid_lines_are_counted_except_the_one_being_written() -> None:
    lines = [report(1.0), b"[" * 5_000 + b"\n", b"\xff\n", b"{}\n", report(2.0), report(3.0)[:40]]
    run = read_neuron_monitor("trn", lines, AT)
    assert len(run.snapshots["i-0abc"]) == 2
    assert run.bad == {neuron_monitor.NO_REPORT: 3}


def test_dynolog_gpus_of_one_moment_make_one_snapshot() -> None:
    lines = []
    for number in range(4):
        lines += [
            logged(10.0 * number, {"device": 0, "gpu_device_utilization": 40, "gpu_power_draw": "250.100"}),
            logged(10.0 * number + 0.002, {"device": 1, "gpu_device_utilization": 41, "sm_active_ratio": "0.1"}),
            logged(10.0 * number, {"cpu_util": "3.0", "cpu_u": "2.0"}),
        ]
    run = read_dynolog("log", lines)
    [snapshots] = run.snapshots.values()
    assert run.interval_s == 10.0
    assert [each.values for each in snapshots] == [
        {
            gpu(0): 40.0,
            gpu(1): 41.0,
            SeriesName("gpu", "gpu0.PowerWatts"): 250.1,
            SeriesName("gpu", "gpu1.SMActivityPercent"): 10.0,
        }
    ] * 4


def test_dynolog_profiling_gives_engine_activity_as_utilization() -> None:
    ratios = {"tensorcore_active": "0.25", "hbm_mem_bw_util": "0.5", "graphics_engine_active_ratio": "0.75"}
    lines = [
        logged(1.0, {"device": 0, **ratios}),
        logged(1.0, {"device": 1, "graphics_engine_active_ratio": "0.5", "gpu_device_utilization": 40}),
    ]
    run = read_dynolog("log", lines)
    assert run.snapshots["node-1"][0].values == {
        SeriesName("gpu", "gpu0.TensorActivityPercent"): 25.0,
        SeriesName("gpu", "gpu0.DRAMActivityPercent"): 50.0,
        gpu(0): 75.0,
        gpu(1): 40.0,
    }
    assert run.notes == ["graphics_engine_active_ratio stands for the utilization of gpu0."]


def test_blank_values_and_broken_lines_are_absent_and_counted() -> None:
    lines = [
        logged(1.0, {"device": 0, "gpu_device_utilization": 9_223_372_036_854_775_792, "dcgm_error": 1}),
        b"time = 2027-01-15T08:00:00Z data = {broken}\n",
        b"time = 2027-99-15T08:00:00Z data = {}\n",
        b"I2027 Logging : 4 values\n",
        logged(2.0, {"device": 0, "gpu_device_utilization": 7}),
        logged(3.0, {"device": 0, "gpu_device_utilization": 7})[:-9],
    ]
    run = read_dynolog("log", lines)
    assert [each.values for each in run.snapshots["node-1"]] == [{gpu(0): 7.0}]
    assert (run.bad, run.absent) == ({dynolog.NO_RECORD: 2}, {dynolog.BLANK: 1})


def table(tmp_path: Path, text: str, mapping: dict[str, Any] | None = None) -> SourceRun:
    file = tmp_path / "samples.csv"
    file.write_text(text)
    if mapping is not None:
        (tmp_path / "samples.mapping.json").write_bytes(msgspec.json.encode(mapping))
    found = recording_at(str(file))
    assert found is not None
    return found.read()


def test_nvidia_smi_output_needs_no_mapping(tmp_path: Path) -> None:
    text = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W], name\n" + "".join(
        f"2027/01/15 08:00:{second:02d}.{each}00, {each}, {10 * each} %, 1024 MiB, [N/A], NVIDIA A100\n"
        for second in range(0, 50, 10)
        for each in range(2)
    )
    run = table(tmp_path, text)
    [snapshots] = run.snapshots.values()
    memory = {SeriesName("gpu", f"gpu{each}.MemoryUsedBytes"): 2.0**30 for each in range(2)}
    assert [each.values for each in snapshots] == [{gpu(0): 0.0, gpu(1): 10.0, **memory}] * 5
    assert (run.bad, run.interval_s) == ({}, 10.0)


def test_gpu_without_any_value_in_a_table_is_noted(tmp_path: Path) -> None:
    head = "timestamp, index, utilization.gpu [%], power.draw [W]\n"
    rows = [f"2027/01/15 08:00:0{n}.000, {gpu}, {value}, [N/A]\n" for n in range(3) for gpu, value in PARTS]
    run = table(tmp_path, head + "".join(rows))
    assert run.notes == ["The table has lines of gpu1, and no value in any of them."]


def test_mapping_gives_series_and_scalars_of_nodes(tmp_path: Path) -> None:
    mapping = {
        "name": "bert",
        "time": {"column": "ts", "unit": "ms"},
        "node": "host",
        "series": {
            "util": "gpu3/GPUUtilization",
            "mem": {"series": "gpu3/MemoryUsedBytes", "factor": 1e9},
            "c0": "cpu0/CPUUtilization",
            "ram": "memory/MemoryUsedPercent",
        },
        "step": "global_step",
        "scalars": {"loss": "train/loss"},
    }
    text = "ts,host,util,mem,c0,ram,loss,global_step\n1800000000000,a,50,2,7,9,1.5,10\n1800000001000,b,60,,,,nan,20\n"
    run = table(tmp_path, text, mapping)
    assert run.name == "bert"
    assert run.snapshots["a"][0].values == {
        gpu(3): 50.0,
        SeriesName("gpu", "gpu3.MemoryUsedBytes"): 2e9,
        core(0): 7.0,
        SeriesName("memory", "MemoryUsedPercent"): 9.0,
    }
    assert run.snapshots["b"][0].values == {gpu(3): 60.0}
    assert [(row.step, row.at) for row in run.scalars] == [(10, AT), (20, AT + 1.0)]


def test_broken_cell_of_a_table_costs_only_itself(tmp_path: Path) -> None:
    mapping = {"time": {"column": "t"}, "device": "gpu", "series": {"u": "gpu*/GPUUtilization"}}
    text = (
        "t,gpu,u\n1800000000,0,50\nnever,0,50\n1800000001,zero,50\n1800000002,0,busy\n1800000003,0,150\n\n1800000004\n"
    )
    run = table(tmp_path, text, mapping)
    assert [each.values for each in run.snapshots["node-1"]] == [{gpu(0): 50.0}]
    assert run.bad == {NO_TIME: 1, NO_DEVICE: 2, NO_NUMBER: 1, NO_SHARE: 1}


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({"time": {"column": "t"}, "series": {"u": "gpu/GPUUtilization"}}, "expected gpu<n>/GPUUtilization"),
        ({"time": {"column": "t"}, "series": {"u": "cpu0/MemoryUsedBytes"}}, "expected gpu<n>/GPUUtilization"),
        ({"time": {"column": "t"}, "series": {"u": "gpu*/GPUUtilization"}}, "no column is the device"),
        ({"time": {"column": "t"}, "colour": {}}, "colour"),
        ({"time": "t"}, "time"),
    ],
)
def test_invalid_mapping_error_says_what_is_expected(mapping: dict[str, Any], said: str) -> None:
    with pytest.raises(TelemetryFormatError, match=said):
        read_mapping("a.mapping.json", msgspec.json.encode(mapping))


def test_mapping_of_a_missing_column_names_it(tmp_path: Path) -> None:
    with pytest.raises(TelemetryFormatError, match="has no column 'when'"):
        table(tmp_path, "t,u\n", {"time": {"column": "when"}, "series": {"u": "gpu0/GPUUtilization"}})


@given(st.binary(max_size=400))
def test_given_any_bytes_when_read_then_nothing_breaks(content: bytes) -> None:
    lines = content.splitlines(keepends=True)
    read_dynolog("a", [b"time = 2027-01-15T08:00:00Z data = {" + line for line in lines])
    read_neuron_monitor("a", [*lines, b'{"neuron_runtime_data": [' + content + b"]}\n"], AT)


def test_each_log_in_a_folder_is_a_job_of_the_fleet(tmp_path: Path) -> None:
    trn = tmp_path / "trn.jsonl"
    trn.write_bytes(b"".join(report(3.0) for _ in range(600)))
    os.utime(trn, (AT, AT))
    minutes = (f"2027-01-15 {8 + minute // 60:02d}:{minute % 60:02d}:00, 0, 96 %\n" for minute in range(90))
    (tmp_path / "smi.csv").write_text("timestamp, index, utilization.gpu [%]\n" + "".join(minutes))
    (tmp_path / "metrics.csv").write_text("step,loss\n1,2.0\n")
    (tmp_path / "notes.txt").write_text("nothing to see")
    result = CliRunner().invoke(app, ["report", str(tmp_path), "--json", "--out", str(tmp_path / "page")])
    assert {each["place"]: each["fired"] for each in json.loads(result.stdout)["jobs"]} == {
        "trn.jsonl": ["LowGPUUtilization"],
        "smi.csv": [],
        ".": [],
    }
