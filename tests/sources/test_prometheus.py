"""Metrics of a cluster by PromQL, against a stub of the query API that evaluates what is asked for over known data."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.cluster import AT, Cluster
from tests.support.json_service import Asked, json_service
from trainguard.aws import source_services
from trainguard.cli.main import app
from trainguard.core.errors import PortUnavailableError, ProfileSourceError
from trainguard.formats.runs.prometheus.job import NO_DEVICE, OUT_OF_RANGE, TWICE
from trainguard.formats.runs.prometheus.queries import MOST_POINTS
from trainguard.formats.runs.run import SeriesName, SourceRun
from trainguard.local.services import service_run

BLANK = 2_147_483_632.0


@contextmanager
def served(cluster: Cluster) -> Iterator[tuple[str, list[Asked]]]:
    with json_service(cluster.answer) as (url, requests):
        yield f"prometheus+{url}", requests


def read(cluster: Cluster, matchers: str = "", *, minutes: float = 30.0, step: float = 15.0) -> SourceRun:
    with served(cluster) as (place, _):
        return service_run(f"{place}?start={AT}&end={AT + 60 * minutes}&step={step}#{matchers}", {}).read()


def test_job_of_a_cluster_has_the_series_of_its_nodes() -> None:
    cluster = Cluster()
    cluster.node("ip-10-0-0-1", 35.0)
    cluster.node("ip-10-0-0-2", lambda at: 90.0 if at < AT + 600 else 10.0)
    run = read(cluster)
    assert {node: len(found) for node, found in run.snapshots.items()} == {"ip-10-0-0-1": 121, "ip-10-0-0-2": 121}
    assert run.snapshots["ip-10-0-0-1"][0].values == {
        SeriesName("gpu", "gpu0", "GPUUtilization"): 35.0,
        SeriesName("gpu", "gpu1", "GPUUtilization"): 35.0,
        SeriesName("gpu", "gpu0.MemoryUsedBytes"): 2.0**30,
        SeriesName("gpu", "gpu1.MemoryUsedBytes"): 2.0**30,
        SeriesName("cpu", "cpu0", "CPUUtilization"): 95.0,
        SeriesName("cpu", "cpu1", "CPUUtilization"): 95.0,
        SeriesName("cpu", "cpu0", "I/OWaitPercentage"): 1.0,
        SeriesName("cpu", "cpu1", "I/OWaitPercentage"): 1.0,
        SeriesName("memory", "MemoryUsedPercent"): 40.0,
    }
    second = [each.values[SeriesName("gpu", "gpu0", "GPUUtilization")] for each in run.snapshots["ip-10-0-0-2"]]
    assert second == [90.0] * 40 + [10.0] * 81
    assert run.bad == {}


def test_matchers_leave_out_other_jobs_and_their_nodes() -> None:
    cluster = Cluster()
    cluster.node("a", 35.0)
    cluster.node("b", 35.0)
    cluster.series = [
        (name, {**labels, "pod": "gpt-0"} if labels.get("Hostname") == "b" and "pod" in labels else labels, value)
        for name, labels, value in cluster.series
    ]
    assert list(read(cluster, 'pod=~"bert-.*"').snapshots) == ["a"]


def test_cores_and_gpus_on_different_ports_are_one_node() -> None:
    cluster = Cluster()
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 50.0, gpu="0", instance="10.0.0.1:9400")
    cluster.add("node_cpu_seconds_total", 7.0, cpu="0", mode="idle", instance="10.0.0.1:9100")
    cluster.add("node_cpu_seconds_total", 9.0, cpu="0", mode="idle", instance="10.0.001:9100")
    assert {node: len(found[0].values) for node, found in read(cluster).snapshots.items()} == {"10.0.0.1": 2}


def test_placeholder_values_are_absent_and_counted() -> None:
    cluster = Cluster()
    cluster.add("DCGM_FI_DEV_GPU_UTIL", lambda at: BLANK if at < AT + 60 else 50.0, gpu="0", Hostname="a")
    cluster.add("DCGM_FI_DEV_POWER_USAGE", 140_737_488_355_328.0, gpu="0", Hostname="a")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 150.0, gpu="2", Hostname="a")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 50.0, gpu="1", Hostname="a", GPU_I_ID="3")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 50.0, gpu="eth0", Hostname="a")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 50.0, gpu="1", Hostname="a", GPU_I_ID="x")
    run = read(cluster, minutes=2.0)
    assert [each.values for each in run.snapshots["a"]] == [{SeriesName("gpu", "gpu0", "GPUUtilization"): 50.0}] * 5
    assert run.bad == {OUT_OF_RANGE: 9, NO_DEVICE: 2}
    assert [note for note in run.notes if "that stand for none" in note] == [
        "DCGM_FI_DEV_GPU_UTIL has 4 values that stand for none: the GPU, or its driver, does not measure it then.",
        "DCGM_FI_DEV_POWER_USAGE has 9 values that stand for none: the GPU, or its driver, does not measure it then.",
    ]


def test_neuron_core_ratio_becomes_a_percentage() -> None:
    cluster = Cluster()
    cluster.add("neuroncore_utilization_ratio", 0.25, neuroncore="3", instance_id="i-0a")
    [snapshots] = read(cluster).snapshots.values()
    assert snapshots[0].values == {SeriesName("gpu", "gpu3", "GPUUtilization"): 25.0}


def test_dcgm_sm_activity_is_a_percentage_under_our_name() -> None:
    cluster = Cluster()
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 98.0, gpu="1", Hostname="a")
    cluster.add("DCGM_FI_PROF_SM_ACTIVE", 0.05, gpu="1", Hostname="a")
    assert read(cluster).snapshots["a"][0].values[SeriesName("gpu", "gpu1.SMActivityPercent")] == 5.0


def test_hollow_gpu_is_found_in_default_dcgm_exporter_metrics(tmp_path: Path) -> None:
    cluster = Cluster()
    for name, value in {
        "DEV_GPU_UTIL": 99.0,
        "DEV_POWER_USAGE": 110.0,
        "PROF_PIPE_TENSOR_ACTIVE": 0.0,
        "PROF_GR_ENGINE_ACTIVE": 0.99,
        "PROF_DRAM_ACTIVE": 0.01,
    }.items():
        cluster.add(f"DCGM_FI_{name}", value, gpu="0", Hostname="a")
    with served(cluster) as (place, _):
        asked = f"{place}?start={AT}&end={AT + 3_600}#"
        result = CliRunner().invoke(app, ["analyze", asked, "--json", "--out", str(tmp_path)])
    said = json.loads(result.stdout)
    assert said["fired"] == ["LowGPUUtilization"]
    [low] = [each for each in said["rules"] if each["rule"] == "LowGPUUtilization"]
    assert "activity of tensor cores and memory of at most 1 %" in low["reason"]
    assert any("was asked for a sample of the system metrics each 15.0 s" in note for note in said["notes"])
    assert any("recorded no SM activity of GPUs" in note for note in said["notes"])


@pytest.mark.parametrize(("activity", "fired"), [(0.9, []), (0.004, ["LowGPUUtilization"])])
def test_node_of_instances_alone_is_judged(activity: float, fired: list[str], tmp_path: Path) -> None:
    cluster = Cluster()
    for instance in "12":
        cluster.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", activity, gpu="0", Hostname="a", GPU_I_ID=instance)
        cluster.add("DCGM_FI_DEV_FB_USED", 9_000.0, gpu="0", Hostname="a", GPU_I_ID=instance)
    with served(cluster) as (place, _):
        asked = f"{place}?start={AT}&end={AT + 3_600}#"
        said = json.loads(CliRunner().invoke(app, ["analyze", asked, "--json", "--out", str(tmp_path)]).stdout)
    assert said["fired"] == fired
    [low] = [each for each in said["rules"] if each["rule"] == "LowGPUUtilization"]
    assert "engine activity" in low["reason"]


def test_engine_activity_replaces_utilization_with_a_note() -> None:
    cluster = Cluster()
    cluster.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.02, gpu="0", Hostname="a")
    cluster.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, gpu="1", Hostname="a")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 90.0, gpu="1", Hostname="a")
    run = read(cluster)
    assert run.snapshots["a"][0].values == {
        SeriesName("gpu", "gpu0", "GPUUtilization"): 2.0,
        SeriesName("gpu", "gpu1", "GPUUtilization"): 90.0,
    }
    assert run.notes == ["DCGM_FI_PROF_GR_ENGINE_ACTIVE stands for the utilization of gpu0 of a."]


@pytest.mark.parametrize("metric", ["DEV_POWER_USAGE", "PROF_GR_ENGINE_ACTIVE"])
def test_gpu_is_divided_by_any_series_of_an_instance(metric: str) -> None:
    cluster = Cluster()
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 0.0, gpu="0", Hostname="a")
    cluster.add(f"DCGM_FI_{metric}", 0.9, gpu="0", Hostname="a", GPU_I_ID="3")
    run = read(cluster, minutes=1.0)
    assert SeriesName("gpu", "gpu0", "GPUUtilization") not in run.snapshots["a"][0].values


def test_zero_utilization_of_a_partitioned_gpu_is_absent() -> None:
    cluster = Cluster()
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 0.0, gpu="0", Hostname="a")
    cluster.add("DCGM_FI_DEV_POWER_USAGE", 200.0, gpu="0", Hostname="a")
    cluster.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.9, gpu="0", Hostname="a", GPU_I_ID="3")
    run = read(cluster, minutes=1.0)
    assert {name for each in run.snapshots["a"] for name in each.values} == {
        SeriesName("gpu", "gpu0.PowerWatts"),
        SeriesName("gpu", "gpu0.mig3.EngineActivityPercent"),
    }
    assert (run.bad, run.notes) == ({}, ["The utilization of gpu0 of a is not read: it is divided (MIG)."])


@pytest.mark.parametrize("label", ["host.name", "@resource.host.name", "host_name", "rack"])
def test_nodes_by_other_labels_are_distinguished_or_counted(label: str) -> None:
    cluster = Cluster()
    for host, value in (("a", 0.0), ("b", 97.0)):
        cluster.add("DCGM_FI_DEV_GPU_UTIL", value, gpu="0", **{label: host})
    if label != "rack":
        assert list(read(cluster, minutes=1.0).snapshots) == ["a", "b"]
        return
    blind = read(cluster, minutes=1.0)
    assert (list(blind.snapshots), blind.bad) == (["node-1"], {TWICE: 5})
    with served(cluster) as (place, _):
        run = service_run(f"{place}?start={AT}&end={AT + 60}&node_label=rack", {}).read()
    assert (list(run.snapshots), run.bad) == (["a", "b"], {})


@pytest.mark.parametrize(
    ("parts", "total"),
    [
        ({"FB_FREE": 70_000.0, "FB_RESERVED": 500.0}, 80_500.0),
        ({"FB_FREE": 70_000.0}, 80_000.0),
        ({"FB_FREE": 70_000.0, "FB_TOTAL": 81_559.0}, 81_559.0),
        ({"FB_RESERVED": 500.0}, None),
    ],
)
def test_missing_memory_total_is_summed_from_its_parts(parts: dict[str, float], total: float | None) -> None:
    cluster = Cluster()
    for name, value in {"FB_USED": 10_000.0, **parts}.items():
        cluster.add(f"DCGM_FI_DEV_{name}", value, gpu="1", Hostname="a")
    expected = {SeriesName("gpu", "gpu1.MemoryUsedBytes"): 10_000.0 * 2**20}
    if total is not None:
        expected[SeriesName("gpu", "gpu1.MemoryTotalBytes")] = total * 2**20
    assert read(cluster).snapshots["a"][0].values == expected


def test_long_time_is_queried_in_parts_without_gap_or_overlap() -> None:
    cluster = Cluster()
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 50.0, gpu="0", Hostname="a")
    points = 2 * MOST_POINTS + 500
    run = read(cluster, minutes=(points - 1) / 60.0, step=1.0)
    assert [each.at for each in run.snapshots["a"]] == [AT + number for number in range(points)]


def test_hostile_node_name_stays_text_in_the_query() -> None:
    name = 'a"} or vector(1) #\\'
    cluster = Cluster()
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 50.0, gpu="0", Hostname=name)
    cluster.add("node_cpu_seconds_total", 7.0, cpu="0", mode="idle", Hostname=name)
    [snapshots] = read(cluster).snapshots.values()
    assert SeriesName("cpu", "cpu0", "CPUUtilization") in snapshots[0].values


def test_job_of_a_cluster_is_judged(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.node("ip-10-0-0-1", 3.0)
    with served(cluster) as (place, _):
        asked = f'{place}?start=2027-01-15T08:00:00Z&end=2027-01-15T09:00:00Z&name=bert#pod=~"bert.*"'
        result = CliRunner().invoke(app, ["report", asked, "--json", "--out", str(tmp_path)])
    said = json.loads(result.stdout)
    assert (said["job"], said["fired"]) == ("bert", ["LowGPUUtilization"])


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("", "start is ''"),
        ("?start=1&end=0", "expected up to 92 days"),
        ("?start=yesterday", "start is 'yesterday'"),
        ("?start=1&end=9&step=0", "at least 1 second"),
        ("?start=1&end=9&step=nan", "at least 1 second"),
        ("?start=1&end=9&begin=4", "has an option 'begin'"),
        ("?start=1&end=9&node_label=a%22b", "node_label is"),
    ],
)
def test_incomplete_place_error_says_what_is_expected(rest: str, said: str) -> None:
    with pytest.raises(ProfileSourceError, match=said):
        service_run(f"prometheus+http://prom:9090{rest}", {})


@pytest.mark.parametrize("server", ["file:///etc/passwd", "ftp://host", "prom:9090"])
def test_place_without_a_web_address_is_refused(server: str) -> None:
    with pytest.raises(ProfileSourceError, match="expected http"):
        service_run(f"prometheus+{server}?start=1&end=9", {})


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "error", "error": "parse error"},
        {"status": "success", "data": {"result": 3}},
        {"status": "success", "data": {"result": [{"metric": {}, "values": [[1]]}]}},
        {"status": "success", "data": {"result": [{"metric": {}}]}},
        [],
        b"<html>",
    ],
)
def test_foreign_response_error_names_the_service(answer: Any) -> None:
    with json_service(lambda _path, _query: (200, answer)) as (url, _):
        run = service_run(f"prometheus+{url}?start=1&end=9", {})
        with pytest.raises(ProfileSourceError, match=url):
            run.read()


@pytest.mark.parametrize(("status", "times"), [(503, 3), (429, 3), (400, 1), (302, 1)])
def test_only_an_overloaded_service_is_retried(status: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_services, "PAUSE_S", 0.0)
    with json_service(lambda _path, _query: (status, {"error": "no"})) as (url, requests):
        run = service_run(f"prometheus+{url}?start=1&end=9", {"PROMETHEUS_TOKEN": "t0k"})
        with pytest.raises((ProfileSourceError, PortUnavailableError), match=str(status)):
            run.read()
    assert [each.headers["Authorization"] for each in requests] == ["Bearer t0k"] * times
