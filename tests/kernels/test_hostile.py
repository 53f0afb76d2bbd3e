"""Values of any type in any field of any format: a profile with its quality stated, or one clear error."""

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import xplanes
from tests.support.kernel_traces import A100, read
from tests.support.nsight_exports import SCHEMAS
from trainguard.core.errors import KernelTraceError
from trainguard.kernels.columns import Trace
from trainguard.kernels.document import KernelProfiles, encode_profiles
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.nsight.reader import read_nsight

EDGES = [0, 1, -1, 7, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, -(1 << 63), 10**18, 604_800 * 10**9 + 1]
INTS = st.sampled_from(EDGES) | st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.sampled_from(
    [
        *("ampere_sgemm_128x64_nn", "ncclDevKernel_AllReduce", "Memcpy", "Memset", "cudaLaunchKernel", "aten::mm"),
        *("ProfilerStep#1", "step 2", "ProfilerStep#99999999999999999999", "GPU 0 Counters", "[memory]"),
        *("", "\x1b[2J", "x" * 300),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | st.integers(0, 1 << 70) | st.floats() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
KEYS = [
    *("correlation", "stream", "device", "bytes", "name", "grid", "dtype", "value", "", "External id", "external id"),
    *("blocks per SM", "est. achieved occupancy %", "Collective name", "Input type", "Input Dims", "Concrete Inputs"),
    *("In msg nelems", "Out msg nelems", "Group size", "Process Group Name", "Process Group Ranks", "Total Reserved"),
    *("Device Id", "Device Type", "copy kind", "src kind", "dst kind", "memory kind"),
]
CATEGORIES = st.sampled_from(
    [
        *("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync", "cpu_op", "Operator"),
        *("user_annotation", "gpu_user_annotation", "overhead", "python_function", "ac2g"),
    ]
)
TIMES = st.floats(0, 1e6) | st.floats() | JSON
EVENT = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "C", "i", "M"]), "cat": CATEGORIES | JSON, "name": NAMES | JSON},
    optional={
        "pid": NAMES | JSON,
        "tid": JSON,
        "ts": TIMES,
        "dur": TIMES,
        "args": st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6) | JSON,
    },
)
HEAD = st.fixed_dictionaries(
    {},
    optional={
        "deviceProperties": st.just([A100])
        | JSON
        | st.lists(st.dictionaries(st.sampled_from([*A100]), JSON), max_size=2),
        "distributedInfo": st.dictionaries(st.sampled_from(["rank", "world_size"]), JSON) | JSON,
        "baseTimeNanoseconds": JSON,
    },
)
SLOW = settings(suppress_health_check=[*HealthCheck])


def whole(trace: Trace) -> None:
    """Judge a trace and write its document: the parts do not exceed the whole."""
    profile = rank_profile(trace)
    assert 0 <= profile.busy_ns <= profile.window_ns
    for step in profile.steps:
        assert sum(step.breakdown.values()) == step.gpu_duration_ns
        assert min(step.breakdown.values()) >= 0
    json.loads(encode_profiles(KernelProfiles(source="here", ranks=[profile], unread={})))


@SLOW
@given(HEAD, st.lists(EVENT, max_size=12))
def test_a_chrome_trace(head: dict[str, Any], events: list[dict[str, Any]]) -> None:
    try:
        trace = read(json.dumps(head | {"traceEvents": events}).encode())
    except KernelTraceError:
        return
    whole(trace)


STATS = st.dictionaries(
    st.sampled_from(
        [
            *("correlation_id", "step_num", "kernel_details", "memcpy_details", "Memset_details", "hlo_op", "tf_op"),
            *("_src", "memalloc_details", "allocator_name", "peak_bytes_in_use"),
        ]
    ),
    INTS | st.floats() | NAMES | st.sampled_from(["grid:0,1,1 occ_pct:x", "kind_src:a kind_dst:b size:-5", "grid:9,9"]),
    max_size=4,
)
LINES = st.sampled_from(["Stream #7(Compute)", "Stream #-1(Memcpy)", "python", "XLA Ops", "", "Stream #x"])
XLA_EVENT = st.tuples(LINES, NAMES, st.sampled_from(EDGES[:7]), st.sampled_from(EDGES[:7]), STATS)
PLANES = st.sampled_from(
    ["/device:GPU:0", "/device:GPU:x", "/device:GPU:999999999", "/host:CPU", "/host:CUPTI", "/device:TPU:0", ""]
)
OWN = st.dictionaries(
    st.sampled_from(["core_count", "memory_size", "compute_cap_major", "device_vendor", "profile_start_time"]),
    INTS | st.floats() | NAMES,
)


@SLOW
@given(st.lists(st.tuples(PLANES, OWN, st.lists(XLA_EVENT, max_size=6)), max_size=4), st.sampled_from(EDGES))
def test_a_profile_of_xla(planes: list[Any], timestamp_ns: int) -> None:
    made = xplanes.ProfileWriter(gpus=0, timestamp_ns=timestamp_ns)
    for name, own, events in planes:
        plane = xplanes.PlaneWriter(name, own)
        for line, event, start, lasts, stats in events:
            plane.event(line, event, start // 1_000, lasts // 1_000, **stats)
        made.others.append(plane)
    try:
        trace = xplanes.read(made.text())
    except KernelTraceError:
        return
    whole(trace)


CELL = st.none() | INTS | st.floats() | NAMES | st.binary(max_size=8)
TABLES = sorted(SCHEMAS["2026"])
ROWS = st.dictionaries(st.sampled_from(TABLES), st.lists(st.lists(CELL, min_size=20, max_size=20), max_size=4))


@SLOW
@given(rows=ROWS)
def test_an_export_of_nsight_systems(
    rows: dict[str, list[list[Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "hostile.sqlite"
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as base:
        for table, columns in SCHEMAS["2026"].items():
            # Without types and constraints a column takes what it is given.
            names = [column.split()[0] for column in columns.split(", ")]
            base.execute(f"CREATE TABLE {table} ({', '.join(names)})")
            marks = ", ".join("?" * len(names))
            written = [row[: len(names)] for row in rows.get(table, [])]
            base.executemany(f"INSERT INTO {table} VALUES ({marks})", written)  # noqa: S608
        base.commit()
    try:
        trace = read_nsight("hostile.sqlite", file)
    except KernelTraceError:
        return
    whole(trace)
