"""Which series of a cluster are of one GPU, and which GPUs of one node, whatever their exporters are called."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster import AT, Cluster, Value
from trainguard.core.errors import ProfileSourceError
from trainguard.formats.runs.prometheus.job import NO_DEVICE, OUT_OF_RANGE, TWICE, nothing_found, read_job
from trainguard.formats.runs.prometheus.queries import QueryRange
from trainguard.formats.runs.run import SeriesName, SourceRun

HOUR = QueryRange(AT, AT + 3_600.0, 60.0)
HALF = AT + 1_800.0


class Stub:
    """The query API over a cluster, without a server; ``asked`` are expressions."""

    place = "http://prom"

    def __init__(self, answer: Callable[[str, Mapping[str, str]], tuple[int, Any]]) -> None:
        self._answer = answer
        self.asked: list[str] = []

    def get(self, path: str, query: Mapping[str, str]) -> Any:
        self.asked.append(query["query"])
        return self._answer(f"/{path}", query)[1]


def read(cluster: Cluster, over: QueryRange = HOUR, **more: Any) -> SourceRun:
    return read_job(Stub(cluster.answer), "bert", "", over, **more)


def gpu(number: int, measure: str = "") -> SeriesName:
    return SeriesName("gpu", f"gpu{number}{measure}", "" if measure else "GPUUtilization")


def between(start: float, end: float, value: float) -> Value:
    return lambda at: value if start <= at < end else None


def shape(run: SourceRun) -> dict[str, set[str]]:
    """Return the GPUs by node."""
    return {
        node: {series.name for each in snapshots for series in each.values if series.type == "gpu"}
        for node, snapshots in run.snapshots.items()
    }


@pytest.mark.parametrize("label", ["Hostname", "instance", "hostname"])
def test_exporter_that_restarts_names_no_second_node(label: str) -> None:
    cluster = Cluster()
    for number in range(8):
        of = {"gpu": str(number), "UUID": f"GPU-{number}"}
        cluster.add("DCGM_FI_DEV_GPU_UTIL", between(AT, HALF, 90.0), **of, **{label: "exporter-a"})
        cluster.add("DCGM_FI_DEV_GPU_UTIL", between(HALF + 60, 9e9, 80.0), **of, **{label: "exporter-b"})
    run = read(cluster)
    assert shape(run) == {"exporter-a": {f"gpu{number}" for number in range(8)}}
    assert [each.values[gpu(3)] for each in run.snapshots["exporter-a"]] == [90.0] * 30 + [80.0] * 30
    assert run.bad == {}
    assert run.notes == ["exporter-a and exporter-b are one node, called exporter-a: its GPUs have the same UUIDs."]


def test_stale_series_of_a_restarted_exporter_are_merged() -> None:
    cluster = Cluster()
    of = {"gpu": "0", "UUID": "GPU-0"}
    cluster.add("DCGM_FI_DEV_GPU_UTIL", between(AT, HALF + 300, 90.0), **of, Hostname="exporter-a")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", between(HALF, 9e9, 70.0), **of, Hostname="exporter-b")
    run = read(cluster)
    [snapshots] = run.snapshots.values()
    assert [each.values[gpu(0)] for each in snapshots] == [90.0] * 30 + [80.0] * 5 + [70.0] * 26
    assert run.bad == {}
    assert (
        "Of 5 values that came from several series of the same GPU, which differ in Hostname, the mean is judged."
        in (run.notes)
    )


def test_exporters_that_swap_their_addresses_stay_two_nodes() -> None:
    cluster = Cluster()
    for (node, first, then), number in product((("a", "10.0.0.1", "10.0.0.2"), ("b", "10.0.0.2", "10.0.0.1")), "01"):
        of = {"gpu": number, "UUID": f"GPU-{node}{number}"}
        cluster.add("DCGM_FI_DEV_GPU_UTIL", between(AT, HALF, 90.0), **of, instance=f"{first}:9400")
        cluster.add("DCGM_FI_DEV_GPU_UTIL", between(HALF + 60, 9e9, 80.0), **of, instance=f"{then}:9400")
    assert shape(read(cluster)) == {"10.0.0.1": {"gpu0", "gpu1"}, "10.0.0.2": {"gpu0", "gpu1"}}


@pytest.mark.parametrize("label", ["node", "kubernetes_node", "k8s_node_name"])
def test_label_of_the_node_is_its_name_whatever_the_exporter_is(label: str) -> None:
    cluster = Cluster()
    for node, half in product("ab", (0, 1)):
        span = between(AT, HALF, 90.0) if not half else between(HALF, 9e9, 90.0)
        labels = {"UUID": f"GPU-{node}", "Hostname": f"exporter-{node}{half}", label: f"node-{node}"}
        cluster.add("DCGM_FI_DEV_GPU_UTIL", span, gpu="0", **labels)
    assert shape(read(cluster)) == {"node-a": {"gpu0"}, "node-b": {"gpu0"}}


def test_same_uuid_on_two_named_nodes_is_two_gpus() -> None:
    cluster = Cluster()
    for node in "ab":
        cluster.add("DCGM_FI_DEV_GPU_UTIL", 90.0, gpu="0", UUID="GPU-0", node=node)
    assert shape(read(cluster)) == {"a": {"gpu0"}, "b": {"gpu0"}}


def test_nodes_without_a_name_are_told_apart_by_uuid() -> None:
    cluster = Cluster()
    for node, value in (("a", 0.0), ("b", 97.0)):
        cluster.add("DCGM_FI_DEV_GPU_UTIL", value, gpu="0", UUID=f"GPU-{node}")
    run = read(cluster)
    assert shape(run) == {"node-1": {"gpu0", "gpu1"}}
    assert {value for each in run.snapshots["node-1"] for value in each.values.values()} == {0.0, 97.0}
    assert "node_label=NAME" in run.notes[0]


def test_gpu_that_takes_the_place_of_another_is_no_further_one() -> None:
    cluster = Cluster()
    cluster.add("DCGM_FI_DEV_GPU_UTIL", 90.0, gpu="0", UUID="GPU-0", Hostname="a")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", between(AT, HALF, 90.0), gpu="1", UUID="GPU-1", Hostname="a")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", between(HALF, 9e9, 80.0), gpu="1", UUID="GPU-2", Hostname="a")
    run = read(cluster)
    assert shape(run) == {"a": {"gpu0", "gpu1"}}
    assert run.notes == ["gpu1 of a is GPU-1 at first, and GPU-2 later: one took the place of the other."]


def test_gpu_whose_number_changes_stays_one() -> None:
    cluster = Cluster()
    cluster.add("DCGM_FI_DEV_GPU_UTIL", between(AT, HALF, 90.0), gpu="3", UUID="GPU-x", Hostname="a")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", between(HALF, 9e9, 90.0), gpu="2", UUID="GPU-x", Hostname="a")
    assert shape(read(cluster)) == {"a": {"gpu3"}}


@pytest.mark.parametrize(
    ("uuid", "label", "counted"),
    [("GPU-0", "prometheus_replica", 0), ("GPU-0", "job", 0), ("", "prometheus_replica", 0), ("", "rack", 61)],
)
def test_two_series_of_a_gpu_are_merged_and_counted(uuid: str, label: str, counted: int) -> None:
    cluster = Cluster()
    for name, value in (("one", 80.0), ("two", 90.0)):
        cluster.add("DCGM_FI_DEV_GPU_UTIL", value, gpu="0", UUID=uuid, Hostname="a", **{label: name})
    run = read(cluster)
    assert {each.values[gpu(0)] for each in run.snapshots["a"]} == {85.0}
    assert run.bad == ({TWICE: counted} if counted else {})
    assert bool(run.notes) is not bool(counted)


def test_gap_of_a_replica_is_filled_by_the_other() -> None:
    cluster = Cluster()
    of = {"gpu": "0", "UUID": "GPU-0", "Hostname": "a"}
    cluster.add("DCGM_FI_DEV_GPU_UTIL", between(AT, HALF, 90.0), **of, prometheus_replica="one")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", between(HALF, 9e9, 90.0), **of, prometheus_replica="two")
    run = read(cluster)
    assert len(run.snapshots["a"]) == 61
    assert run.notes == []


def test_xid_of_two_series_is_the_one_that_is_set() -> None:
    cluster = Cluster()
    for name, code in (("one", 0.0), ("two", 79.0)):
        cluster.add("DCGM_FI_DEV_XID_ERRORS", code, gpu="0", UUID="GPU-0", Hostname="a", prometheus_replica=name)
    assert {each.values[gpu(0, ".XID")] for each in read(cluster).snapshots["a"]} == {79.0}


def test_instances_have_their_own_series_and_their_gpu_the_rest() -> None:
    cluster = Cluster()
    for instance in "12":
        of = {"gpu": "0", "UUID": "GPU-0", "Hostname": "a", "GPU_I_ID": instance, "GPU_I_PROFILE": "3g.40gb"}
        for name, value in {
            "DEV_FB_USED": 9_000.0,
            "DEV_FB_FREE": 31_000.0,
            "PROF_GR_ENGINE_ACTIVE": 0.9,
            "PROF_SM_ACTIVE": 0.5,
            "DEV_POWER_USAGE": 300.0,
            "DEV_XID_ERRORS": 0.0,
            "DEV_GPU_UTIL": 0.0,
        }.items():
            cluster.add(f"DCGM_FI_{name}", value, **of)
    run = read(cluster)
    assert run.snapshots["a"][0].values == {
        gpu(0, ".PowerWatts"): 300.0,
        gpu(0, ".XID"): 0.0,
        **{
            gpu(0, f".mig{instance}.{measure}"): value
            for instance, (measure, value) in product(
                "12",
                (
                    ("MemoryUsedBytes", 9_000 * 2.0**20),
                    ("MemoryTotalBytes", 40_000 * 2.0**20),
                    ("EngineActivityPercent", 90.0),
                    ("SMActivityPercent", 50.0),
                ),
            )
        },
    }
    assert run.bad == {}


def test_programs_of_a_neuron_core_add_up() -> None:
    cluster = Cluster()
    for tag in ("1", "2"):
        of = {"neuroncore": "3", "instance_id": "i-0a", "runtime_tag": tag}
        cluster.add("neuroncore_utilization_ratio", 0.3, **of)
        cluster.add("neuroncore_memory_usage_tensors", 1_000.0, **of)
        cluster.add("neuroncore_memory_usage_constants", 10.0, **of)
    run = read(cluster)
    assert run.snapshots["i-0a"][0].values == {gpu(3): 60.0, gpu(3, ".MemoryUsedBytes"): 2_020.0}
    assert (run.bad, run.notes) == ({}, [])


@pytest.mark.parametrize("prefix", ["amd_", ""])
def test_gpus_of_amd_are_read_by_the_names_of_its_exporter(prefix: str) -> None:
    cluster = Cluster()
    of = {"gpu_id": "0", "hostname": "a", "gpu_uuid": "18ff74a1"}
    for name, value in {
        "gfx_activity": 50.0,
        "used_vram": 100.0,
        "total_vram": 400.0,
        "package_power": 65_535.0,
    }.items():
        cluster.add(f"{prefix}gpu_{name}", value, **of)
    run = read(cluster)
    assert run.snapshots["a"][0].values == {
        gpu(0): 50.0,
        gpu(0, ".MemoryUsedBytes"): 100 * 2.0**20,
        gpu(0, ".MemoryTotalBytes"): 400 * 2.0**20,
    }
    assert run.bad == {}


def test_part_of_a_job_calls_its_nodes_as_earlier_parts_did() -> None:
    cluster = Cluster()
    of = {"gpu": "0", "UUID": "GPU-0"}
    cluster.add("DCGM_FI_DEV_GPU_UTIL", between(AT, HALF, 90.0), **of, Hostname="exporter-a")
    cluster.add("DCGM_FI_DEV_GPU_UTIL", between(HALF, 9e9, 80.0), **of, Hostname="exporter-b")
    part = QueryRange(AT + 3_000.0, AT + 3_060.0, 15.0)
    assert list(read(cluster, part).snapshots) == ["exporter-b"]
    run = read(cluster, part, since=AT)
    assert {node: [each.at for each in found] for node, found in run.snapshots.items()} == {
        "exporter-a": [AT + 3_000.0 + 15.0 * number for number in range(5)]
    }


def _answers(series: Mapping[str, list[dict[str, str]]]) -> Callable[[str, Mapping[str, str]], tuple[int, Any]]:
    """Answer an expression that contains a key with series of its labels."""

    def answer(path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        found = [labels for part, each in series.items() if part in query["query"] for labels in each]
        result = [{"metric": labels, "values": [[AT, "1"]]} for labels in found]
        return 200, {"status": "success", "data": {"result": result}}

    return answer


def test_nothing_found_names_what_was_asked_for() -> None:
    said = nothing_found(Stub(_answers({})), 'pod="bert-0"', HOUR)
    assert 'with the matchers pod="bert-0": it was asked for DCGM_FI_DEV_GPU_UTIL and 14 more' in said
    assert "gpu_gfx_activity have no series without them either" in said


def test_nothing_found_names_other_metrics_that_match() -> None:
    names = [{"__name__": name} for name in ("habanalabs_gpu", "xpum_gpu")]
    said = nothing_found(Stub(_answers({"count by (__name__)": names})), 'pod="bert-0"', HOUR)
    assert said.endswith("there are habanalabs_gpu, xpum_gpu, which are not read")


def test_nothing_found_names_the_labels_that_there_are() -> None:
    others = {"topk(1, DCGM_FI_DEV_GPU_UTIL)": [{"__name__": "DCGM_FI_DEV_GPU_UTIL", "exported_pod": "bert-0"}]}
    said = nothing_found(Stub(_answers(others)), 'pod="bert-0"', HOUR)
    assert said.endswith('without them there is DCGM_FI_DEV_GPU_UTIL, for example with exported_pod="bert-0"')


def test_nothing_found_needs_no_answer_to_its_own_questions() -> None:
    def refused(path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        raise ProfileSourceError(path, "no")

    assert "it was asked for DCGM_FI_DEV_GPU_UTIL" in nothing_found(Stub(refused), "", HOUR)


LABELS = st.dictionaries(
    st.sampled_from(["gpu", "UUID", "Hostname", "instance", "node", "GPU_I_ID", "neuroncore", "runtime_tag", "gpu_id"]),
    st.one_of(st.sampled_from(["0", "1", "a", "b", "GPU-0"]), st.text(max_size=6)),
)
VALUES = st.one_of(st.floats(), st.sampled_from([0.0, 50.0, 2.0**31 - 16, 2.0**63, 65_535.0, -1.0]))


@given(st.lists(st.tuples(LABELS, st.lists(VALUES, min_size=1, max_size=4)), max_size=8), st.booleans())
def test_no_series_ends_the_reading(series: list[tuple[dict[str, str], list[float]]], earlier: bool) -> None:
    def answer(path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        result = [
            {"metric": labels, "values": [[AT + 60.0 * place, repr(value)] for place, value in enumerate(values)]}
            for labels, values in series
        ]
        return 200, {"status": "success", "data": {"result": result}}

    run = read_job(Stub(answer), "bert", "", HOUR, since=AT - 600.0 if earlier else None)
    found = [value for each in run.snapshots.values() for one in each for value in one.values.values()]
    assert all(value >= 0.0 for value in found)
    assert set(run.bad) <= {OUT_OF_RANGE, NO_DEVICE, TWICE}
