"""Exports of Nsight Systems for tests, in the tables and columns of several of its versions."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainguard.kernels.columns import Trace
from trainguard.kernels.readers.nsight.reader import read_nsight

START_NS = 1_790_000_000_000_000_000
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
_NEW = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, totalMemory INTEGER, "
    "memoryBandwidth INTEGER, smCount INTEGER, uuid TEXT, chipName TEXT, computeMajor INTEGER, computeMinor INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, "
    "globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, "
    "gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, "
    "graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "value INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "syncType INTEGER NOT NULL, eventId INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, graphId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, "
    "globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, "
    "category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, "
    "textId INTEGER, domainId INTEGER",
    "TARGET_INFO_GPU_METRICS": "typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, metricName TEXT NOT NULL",
    "GPU_METRICS": "timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value INTEGER NOT NULL",
    "PROFILER_OVERHEAD": "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL",
}
_OLD = {
    "StringIds": "id INTEGER, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, "
    "contextId INT NOT NULL, streamId INT NOT NULL, correlationId INT NOT NULL, shortName INT NOT NULL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, "
    "streamId INT NOT NULL, correlationId INT NOT NULL, bytes INT NOT NULL, copyKind INT NOT NULL",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INT NOT NULL, end INT NOT NULL, globalTid INT NOT NULL, "
    "correlationId INT NOT NULL, nameId INT NOT NULL",
    "NVTX_EVENTS": "start INT NOT NULL, end INT NOT NULL, eventType INT NOT NULL, text TEXT, globalTid INT NOT NULL",
}
# By year of the version: old exports have fewer tables and columns, and no key.
SCHEMAS = {"2019": _OLD, "2026": _NEW}


def global_id(pid: int, thread: int = 0) -> int:
    return (1 << 48) | (pid << 24) | thread


@dataclass
class ExportWriter:
    """Writes rows into the tables and columns that the version has; others are left out."""

    path: Path
    schema: dict[str, str] = field(default_factory=lambda: dict(_NEW))
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)
    launched: int = 0

    def add(self, table: str, **values: Any) -> None:
        self.rows.setdefault(table, []).append(values)

    def string(self, text: str) -> int:
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 10
            self.add("StringIds", id=self.strings[text], value=text)
        return self.strings[text]

    def gpu(self, number: int = 0, name: str = "NVIDIA H100 80GB HBM3", sms: int = 132) -> None:
        self.add(
            "TARGET_INFO_GPU",
            vmId=0,
            id=number,
            name=name,
            totalMemory=80 << 30,
            smCount=sms,
            computeMajor=9,
            computeMinor=0,
        )

    def range(
        self, text: str, start: int, end: int | None, *, pid: int = 1, kind: int = 59, known: bool = False
    ) -> None:
        named: dict[str, Any] = {"textId": self.string(text)} if known else {"text": text}
        self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=global_id(pid, 7), **named)

    def call(self, name: str, start: int, end: int, correlation: int, pid: int = 1) -> None:
        row = {"start": start, "end": end, "correlationId": correlation, "globalTid": global_id(pid, 7)}
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", **row, eventClass=0, nameId=self.string(name), returnValue=0)

    def kernel(self, name: str, start: int, end: int, *, launch: int, pid: int = 1, correlation: int = 0) -> None:
        self.launched += 1
        correlation = correlation or self.launched
        self.call("cudaLaunchKernel_v7000", launch, launch + 5_000, correlation, pid)
        names = {"demangledName": self.string(name), "shortName": self.string(name.split("_", maxsplit=1)[0])}
        if "demangledName" not in self.schema["CUPTI_ACTIVITY_KIND_KERNEL"]:
            names = {"shortName": self.string(name)}
        self.work(
            "CUPTI_ACTIVITY_KIND_KERNEL", start, end, correlation, pid, **names, gridX=66, gridY=1, gridZ=1, blockX=256
        )

    def work(self, table: str, start: int, end: int, correlation: int, pid: int = 1, **more: Any) -> None:
        row = {"start": start, "end": end, "correlationId": correlation, "globalPid": global_id(pid)}
        self.add(table, **({"deviceId": 0, "contextId": 1, "streamId": 7} | row | more))

    def write(self, extra: Sequence[str] = ()) -> Path:
        self.path.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.path)) as base:
            base.execute("PRAGMA synchronous=OFF")
            for table, columns in self.schema.items():
                base.execute(f"CREATE TABLE {table} ({columns})")
                held = [column.split()[0] for column in columns.split(", ")]
                for row in self.rows.get(table, []):
                    kept = {name: value for name, value in row.items() if name in held}
                    marks = ", ".join("?" * len(kept))
                    base.execute(f"INSERT INTO {table} ({', '.join(kept)}) VALUES ({marks})", [*kept.values()])  # noqa: S608
            for statement in extra:
                base.execute(statement)
            base.commit()
        return self.path

    def read(self, extra: Sequence[str] = ()) -> Trace:
        return read_nsight("report.sqlite", self.write(extra))


def steps(path: Path, schema: dict[str, str], count: int = 4) -> ExportWriter:
    """Some steps of a millisecond: a copy, a kernel, a collective, and a wait for them."""
    made = ExportWriter(path, dict(schema))
    made.gpu()
    made.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=START_NS)
    for number in range(count):
        at = 1_000_000 * number
        made.range(f"step {number}", at, at + 950_000)
        made.range("forward", at + 10_000, at + 300_000, known="textId" in made.schema["NVTX_EVENTS"])
        made.range("aten::mm, seq = 3, op_id = 7", at + 40_000, at + 60_000)
        made.launched += 1
        made.call("cudaMemcpyAsync_v3020", at + 15_000, at + 17_000, made.launched)
        copied = {"bytes": 4_096, "copyKind": 1, "srcKind": 0, "dstKind": 2}
        made.work("CUPTI_ACTIVITY_KIND_MEMCPY", at + 20_000, at + 50_000, made.launched, **copied)
        made.kernel(GEMM, at + 100_000, at + 500_000, launch=at + 50_000)
        made.kernel(NCCL, at + 500_000, at + 700_000, launch=at + 60_000)
        made.call("cudaStreamSynchronize_v3020", at + 80_000, at + 900_000, 0)
        made.work("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", at + 80_000, at + 900_000, 0, syncType=3)
    return made
