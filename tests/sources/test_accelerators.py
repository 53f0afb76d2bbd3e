"""Accelerators in W&B and neuron-monitor: which are read and judged, and which are named and block "healthy"."""

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.support.wandb_files import ended, history, run, run_file, stats
from trainguard.cli.main import app
from trainguard.formats.runs.neuron_monitor import read_neuron_monitor
from trainguard.formats.runs.run import UTILIZATION, SeriesName, SourceRun
from trainguard.formats.runs.wandb.run_file import read_run_file

AT = 1_800_000_000.0
MEBI = 2.0**20


def of(*samples: Mapping[str, float], host: str = "host-1") -> SourceRun:
    """Return a run of W&B with samples of system metrics, 15 s apart."""
    records = [run(host=host), *(stats(AT + 15.0 * place, each) for place, each in enumerate(samples))]
    return read_run_file("run-a.wandb", io.BytesIO(run_file(records)))


def gpu(number: int, measure: str = "") -> SeriesName:
    return SeriesName("gpu", f"gpu{number}{measure}", "" if measure else UTILIZATION)


def judged(place: Path, out: Path) -> dict[str, object]:
    result = CliRunner().invoke(app, ["report", str(place), "--json", "--out", str(out)])
    assert result.exit_code == 0, result.output
    report: dict[str, object] = json.loads((out / "report.json").read_bytes())
    return report


def written(folder: Path, values: Mapping[str, float], minutes: int = 60) -> Path:
    """Write a run of W&B whose loss falls, with the same sample each 15 s."""
    records = [run("bert", at=AT)]
    for number in range(4 * minutes):
        at = AT + 15.0 * number
        records += [stats(at, values), history(number, at, {"loss": 2.0 / (1 + number)})]
    file = folder / "run-bert.wandb"
    file.write_bytes(run_file([*records, ended(0)]))
    return file


def test_tpu_is_read_by_its_duty_cycle_and_memory() -> None:
    values = {"dutyCycle": 1.0, "tensorcoreUtilization": 0.5, "hbmCapacityUsage": 15e9, "hbmCapacityTotal": 16e9}
    found = of({f"tpu.{number}.{name}": value for name, value in values.items() for number in range(2)})
    assert found.snapshots["host-1"][0].values == {
        series: value
        for number in range(2)
        for series, value in (
            (gpu(number), 1.0),
            (gpu(number, ".MemoryUsedBytes"), 15e9),
            (gpu(number, ".MemoryTotalBytes"), 16e9),
        )
    }
    assert (found.not_judged, found.notes) == ({}, ["TPUs count as GPUs: gpu0 is tpu.0."])


def test_tpu_of_earlier_versions_has_the_same_series() -> None:
    found = of({"tpu.0.dutyCycle": 90.0, "tpu.0.memoryUsage": 50.0, "tpu.0.memoryUsageBytes": 8 * 2.0**30})
    assert found.snapshots["host-1"][0].values == {
        gpu(0): 90.0,
        gpu(0, ".MemoryUsedBytes"): 8 * 2.0**30,
        gpu(0, ".MemoryTotalBytes"): 16 * 2.0**30,
    }


def test_cores_of_trainium_are_read_with_the_sum_of_their_memory() -> None:
    memory = {f"trn.1.neuroncore_memory_usage.{part}": 10.0 for part in ("constants", "model_code", "tensors")}
    found = of({"trn.0.neuroncore_utilization": 30.0, "trn.1.neuroncore_utilization": 40.0, **memory})
    assert found.snapshots["host-1"][0].values == {gpu(0): 30.0, gpu(1): 40.0, gpu(1, ".MemoryUsedBytes"): 30.0}


def test_core_of_trainium_that_a_sample_lacks_does_nothing() -> None:
    both = {"trn.0.neuroncore_utilization": 90.0, "trn.1.neuroncore_utilization": 90.0}
    found = of(both, {"trn.0.neuroncore_utilization": 90.0}, {"memory_percent": 5.0})
    assert [each.values.get(gpu(1)) for each in found.snapshots["host-1"]] == [90.0, 0.0, None]


@pytest.mark.parametrize(
    ("name", "kind", "device"),
    [
        ("ipu.2.ipu utilisation (%)", "IPU", "ipu.2"),
        ("gpu.0.fanSpeed", "GPU", "gpu.0"),
        ("tpu.1.tensorcoreUtilization", "TPU", "tpu.1"),
        ("trn.host_total_memory_usage", "NeuronCore", "trn"),
        ("hpu.0.utilization/l:node-7", "HPU", "hpu.0"),
        ("openmetrics.dcgm.DCGM_FI_DEV_GPU_UTIL.0", "GPU", "openmetrics.dcgm.DCGM_FI_DEV_GPU_UTIL.0"),
    ],
)
def test_accelerator_that_is_not_read_is_named(name: str, kind: str, device: str) -> None:
    assert of({name: 5.0, "memory_percent": 3.0}).not_judged == {kind: {device}}


def test_accelerator_that_is_not_read_blocks_healthy(tmp_path: Path) -> None:
    host = {"memory_percent": 30.0}
    healthy = judged(written(tmp_path, host), tmp_path / "a")["verdict"]
    blocked = judged(written(tmp_path, {**host, "ipu.0.ipu utilisation (%)": 3.0}), tmp_path / "b")["verdict"]
    assert isinstance(healthy, dict)
    assert isinstance(blocked, dict)
    assert (healthy["level"], blocked["level"]) == ("healthy", "unknown")
    assert "the metrics of 1 accelerator are not read" in str(blocked)
    place = written(tmp_path, {**host, "ipu.0.ipu utilisation (%)": 3.0})
    said = CliRunner().invoke(app, ["analyze", str(place), "--out", str(tmp_path / "c")]).output
    assert "Not judged: Weights & Biases recorded metrics of IPUs (ipu.0), which are not read." in said


@pytest.mark.parametrize(
    "values",
    [
        {"tpu.0.dutyCycle": 0.5, "tpu.0.tensorcoreUtilization": 0.5},
        {"trn.0.neuroncore_utilization": 0.0, "trn.neuron_device_total_memory_usage": 12e9},
    ],
    ids=["TPU", "Trainium"],
)
def test_idle_accelerator_is_a_finding(values: Mapping[str, float], tmp_path: Path) -> None:
    verdict = judged(written(tmp_path, values), tmp_path / "out")["verdict"]
    assert isinstance(verdict, dict)
    assert verdict["level"] == "unhealthy"


def test_memory_of_all_cores_together_is_not_called_missing(tmp_path: Path) -> None:
    values = {"trn.0.neuroncore_utilization": 90.0, "trn.neuron_device_total_memory_usage": 12e9}
    said = CliRunner().invoke(app, ["analyze", str(written(tmp_path, values)), "--out", str(tmp_path / "c")]).output
    assert "no memory in use" not in said
    assert "Not judged: the memory in use of all NeuronCores together" in said


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"memoryAllocated": 61.0}, {".MemoryUsedPercent": 61.0}),
        ({"memoryAllocated": 161.0}, {}),
        (
            {"memoryUsed": 100.0, "memoryTotal": 400.0},
            {".MemoryUsedBytes": 100 * MEBI, ".MemoryTotalBytes": 400 * MEBI},
        ),
        ({"memoryUsed": 100.0, "memoryFree": 300.0}, {".MemoryUsedBytes": 100 * MEBI, ".MemoryTotalBytes": 400 * MEBI}),
        ({"memoryFree": 300.0}, {}),
    ],
)
def test_memory_is_read_in_each_of_its_units(values: Mapping[str, float], expected: Mapping[str, float]) -> None:
    found = of({"gpu.0.gpu": 5.0, **{f"gpu.0.{name}": value for name, value in values.items()}})
    assert found.snapshots["host-1"][0].values == {
        gpu(0): 5.0,
        **{gpu(0, measure): value for measure, value in expected.items()},
    }


LABELLED = {"gpu.0.gpu/l:node-7": 5.0, "gpu.1.gpu/l:node-7": 5.0}


@pytest.mark.parametrize("host", ["host-1", "node-7", "node-7.cluster.local", "NODE-7", ""])
def test_labelled_gpus_and_the_host_are_one_machine(host: str) -> None:
    found = of({"cpu.0.cpu_percent": 99.0, **LABELLED}, host=host)
    assert [len(each.values) for each in found.snapshots["node-7"]] == [3]
    assert list(found.snapshots) == ["node-7"]


def test_samples_of_host_and_exporter_make_one_snapshot() -> None:
    records = [run()]
    for number in range(20):
        records += [stats(AT + 15 * number, {"memory_percent": 5.0}), stats(AT + 15 * number + 4, LABELLED)]
    found = read_run_file("run-a.wandb", io.BytesIO(run_file(records)))
    assert [len(each.values) for each in found.snapshots["node-7"]] == [3] * 20


def test_host_of_several_labelled_nodes_is_left_out_and_said() -> None:
    found = of({"memory_percent": 9.0, "gpu.0.gpu/l:a": 5.0, "gpu.0.gpu/l:b": 5.0})
    assert {node: len(each[0].values) for node, each in found.snapshots.items()} == {"a": 1, "b": 1}
    assert "2 nodes have GPUs" in found.notes[0]
    known = of({"memory_percent": 9.0, "gpu.0.gpu/l:a": 5.0, "gpu.0.gpu/l:b": 5.0}, host="b")
    assert {node: len(each[0].values) for node, each in known.snapshots.items()} == {"a": 1, "b": 2}


def test_gpu_that_is_sampled_twice_keeps_wandbs_own_values() -> None:
    found = of({"gpu.0.gpu": 90.0, "gpu.1.gpu": 90.0, **LABELLED, "gpu.0.powerWatts/l:node-7": 300.0})
    assert found.snapshots["node-7"][0].values == {gpu(0): 90.0, gpu(1): 90.0, gpu(0, ".PowerWatts"): 300.0}
    assert found.notes[0].startswith("2 series of GPUs come twice")


def test_label_of_the_writer_behind_that_of_the_node_is_no_node() -> None:
    assert list(of({"gpu.0.gpu/l:node-7/l:rank-0": 5.0}).snapshots) == ["node-7"]


def test_activity_of_labelled_gpus_is_scaled_apart() -> None:
    found = of({"gpu.0.smActive": 40.0, "gpu.1.smActive/l:node-7": 0.4})
    assert found.snapshots["node-7"][0].values[gpu(1, ".SMActivityPercent")] == 40.0
    assert found.snapshots["host-1"][0].values[gpu(0, ".SMActivityPercent")] == 40.0


NAMES = st.one_of(
    st.text(max_size=30),
    st.builds(
        "{}.{}.{}{}".format,
        st.sampled_from(["gpu", "tpu", "trn", "ipu", "cpu", "openmetrics", "system.gpu"]),
        st.one_of(st.integers(0, 999), st.text(max_size=3)),
        st.sampled_from(["gpu", "memoryUsed", "memoryFree", "memoryAllocated", "dutyCycle", "neuroncore_utilization"]),
        st.one_of(st.just(""), st.text(max_size=4).map("/l:{}".format)),
    ),
)


@given(st.lists(st.dictionaries(NAMES, st.floats(allow_nan=False), max_size=6), max_size=5))
def test_no_name_of_a_metric_ends_the_reading(samples: list[dict[str, float]]) -> None:
    found = of(*samples)
    assert all(each.values for snapshots in found.snapshots.values() for each in snapshots)


def report(used: Mapping[str, float], *, devices: int = 0, **more: object) -> bytes:
    """Return a report of neuron-monitor: the cores in use with their utilization."""
    cores = {core: {"neuroncore_utilization": value} for core, value in used.items()}
    memory = {core: {"tensors": 1_000_000} for core in used}
    breakdown = {"neuron_runtime_used_bytes": {"usage_breakdown": {"neuroncore_memory_usage": memory}}}
    entry = {"report": {"neuroncore_counters": {"period": 5.0, "neuroncores_in_use": cores}, "memory_used": breakdown}}
    whole: dict[str, object] = {
        "neuron_runtime_data": [entry] if used else [],
        "system_data": {"vcpu_usage": {"period": 5.0, "usage_data": {"0": {"idle": 30.0, "io_wait": 4.0}}}},
        "neuron_hardware_info": {"neuron_device_count": devices, "neuroncore_per_device_count": 2},
        **more,
    }
    return json.dumps(whole).encode() + b"\n"


def utilizations(run: SourceRun) -> list[dict[str, float]]:
    [snapshots] = run.snapshots.values()
    return [
        {series.name: value for series, value in each.values.items() if series.dimension == UTILIZATION}
        for each in snapshots
    ]


def test_core_without_a_program_does_nothing() -> None:
    lines = [report({"0": 90.0, "1": 80.0}), report({"0": 90.0}), report({})]
    assert utilizations(read_neuron_monitor("trn", lines, AT)) == [
        {"gpu0": 90.0, "gpu1": 80.0},
        {"gpu0": 90.0, "gpu1": 0.0},
        {"gpu0": 0.0, "gpu1": 0.0},
    ]


def test_cores_of_the_machine_are_there_without_a_program() -> None:
    [values] = utilizations(read_neuron_monitor("trn", [report({"0": 90.0}, devices=2)], AT))
    assert values == {"gpu0": 90.0, "gpu1": 0.0, "gpu2": 0.0, "gpu3": 0.0}


@pytest.mark.parametrize("data", [[{"error": "no permission", "report": {}}], [{"report": {}}], [3]])
def test_report_with_an_error_says_nothing_of_other_cores(data: list[object]) -> None:
    lines = [report({"0": 90.0, "1": 80.0}), report({}, neuron_runtime_data=data)]
    assert utilizations(read_neuron_monitor("trn", lines, AT)) == [{"gpu0": 90.0, "gpu1": 80.0}, {}]


def test_report_without_any_program_is_a_report() -> None:
    found = read_neuron_monitor("trn", [report({}, neuron_runtime_data=None)], AT)
    assert (found.bad, len(found.snapshots["node-1"])) == ({}, 1)


def test_core_whose_program_ended_has_not_vanished(tmp_path: Path) -> None:
    file = tmp_path / "trn.jsonl"
    file.write_bytes(b"".join(report({"0": 95.0, "1": 95.0} if number < 300 else {"0": 95.0}) for number in range(720)))
    os.utime(file, (AT, AT))
    result = CliRunner().invoke(app, ["analyze", str(file), "--json", "--out", str(tmp_path / "out")])
    said = json.loads(result.stdout)
    assert "GPUHealth" not in said["fired"]
    assert "vanished" not in result.stdout


def test_log_without_a_device_says_what_was_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "monitor.jsonl"
    file.write_bytes(b'{"neuron_runtime_data": []}\n')
    result = CliRunner().invoke(app, ["analyze", str(file), "--out", str(tmp_path / "out")])
    assert result.exit_code != 0
    assert "has 1 reports of neuron-monitor, none of which has a NeuronCore" in result.stderr


ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just(10**400)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    *("report", "neuroncore_counters", "neuroncores_in_use", "0", "9" * 5_000, "memory_used", "period"),
                    *("neuron_device_count", "neuroncore_per_device_count", "usage_data", "vcpu_usage", "error"),
                ]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=12,
)


@given(ANY, ANY, ANY)
def test_no_report_ends_the_reading(data: object, system: object, hardware: object) -> None:
    whole = {"neuron_runtime_data": [data], "system_data": system, "neuron_hardware_info": hardware}
    line = json.dumps(whole).encode() + b"\n"
    read_neuron_monitor("trn", [line, report({"0": 1.0})], AT)
