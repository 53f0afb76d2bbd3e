"""Writes a rank's events as the PyTorch profiler, Nsight Systems and the profiler of XLA and JAX do."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.claims.kernel_files import CALL, COPY, HOST, KERNEL, SET, Event
from tests.claims.kernel_memory import memory_rows
from tests.support.nsight_exports import ExportWriter
from tests.support.xplanes import PlaneWriter, ProfileWriter

if TYPE_CHECKING:
    from tests.claims.random_kernels import KernelJob

BASE_NS = 1_780_272_017_000_000_000
_WRITTEN = {HOST: "user_annotation", CALL: "cuda_runtime", KERNEL: "kernel", COPY: "gpu_memcpy", SET: "gpu_memset"}
_TABLES = {
    KERNEL: "CUPTI_ACTIVITY_KIND_KERNEL",
    COPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    SET: "CUPTI_ACTIVITY_KIND_MEMSET",
}
# What XLA calls in the place of the runtime.
_DRIVER = {
    "cudaLaunchKernel": "cuLaunchKernel",
    "cudaMemcpyAsync": "cuMemcpyHtoDAsync_v2",
    "cudaMemsetAsync": "cuMemsetD8Async",
    "cudaStreamSynchronize": "cuStreamSynchronize",
    "cudaDeviceSynchronize": "cuCtxSynchronize",
}


def write_pytorch(job: "KernelJob", rank: int, events: list[Event], folder: Path) -> None:
    """Write ``host_rank0.1780272017000.pt.trace.json``."""
    rows = [_row(event) for event in events]
    for gpu, share in enumerate(job.reserved):
        for part in (0.5, 1.0, 0.8):
            said = {"Device Type": 1, "Device Id": gpu, "Total Reserved": int(part * share * job.card.memory)}
            rows.append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1_500, "args": said})
    rows += memory_rows(job, rank, events)
    card = {
        "name": job.card.name,
        "totalGlobalMem": job.card.memory,
        "computeMajor": job.card.capability[0],
        "computeMinor": job.card.capability[1],
        "numSms": job.card.sms,
    }
    about = {"rank": rank, "world_size": job.ranks, "backend": "gloo" if job.parallel == "gloo" else "nccl"}
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": gpu, **card} for gpu in range(_gpus(job))],
        "distributedInfo": about,
        "traceEvents": rows,
        "traceName": "trace.json",
        "baseTimeNanoseconds": BASE_NS,
    }
    (folder / f"host_rank{rank}.1780272017000.pt.trace.json").write_text(json.dumps(document))


def _gpus(job: "KernelJob") -> int:
    """Return how many GPUs a trace describes: behind several there is one that is used by the way."""
    return job.gpus + (job.gpus > 1)


def _row(event: Event) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if event.category != HOST:
        args["correlation"] = event.correlation
    if event.category in {KERNEL, COPY, SET}:
        args |= {"device": event.device, "stream": 20 if event.sends else 7}
        args |= {"bytes": event.bytes} if event.copies else {"blocks per SM": event.blocks}
    if event.is_operator:
        args = {"Input Dims": event.dims, "Input type": event.types, "Concrete Inputs": ["" for _ in event.dims]}
        args |= {"Input Strides": event.strides} if event.strides else {}
    if event.collective[0]:
        name, group, ranks = event.collective
        args |= {"Collective name": name, "Process Group Name": group, "Group size": ranks}
        if event.bytes >= 0:
            args |= {"In msg nelems": 1_000, "Out msg nelems": event.bytes // 2, "dtype": "BFloat16"}
    category = "cpu_op" if event.is_operator else _WRITTEN[event.category]
    return {
        "ph": "X", "cat": category, "name": event.name, "pid": 1, "tid": 1,
        "ts": event.start / 1_000, "dur": event.lasts / 1_000, "args": args,
    }  # fmt: skip


def write_nsight(job: "KernelJob", rank: int, events: list[Event], folder: Path) -> None:
    """Write ``report_rank0.sqlite``; steps are ranges called ``step 0``."""
    export = ExportWriter(folder / f"report_rank{rank}.sqlite")
    for gpu in range(_gpus(job)):
        export.add(
            "TARGET_INFO_GPU", vmId=0, id=gpu, name=job.card.name, totalMemory=job.card.memory, smCount=job.card.sms,
            computeMajor=job.card.capability[0], computeMinor=job.card.capability[1],
        )  # fmt: skip
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=BASE_NS)
    for event in events:
        if event.category == HOST:
            export.range(event.name.replace("ProfilerStep#", "step "), event.start, event.end)
        elif event.category == CALL:
            export.call(f"{event.name}_v7000", event.start, event.end, event.correlation)
        else:
            export.work(
                _TABLES[event.category], event.start, event.end, event.correlation, **_columns(job, export, event)
            )
    export.write()


def _columns(job: "KernelJob", export: ExportWriter, event: Event) -> dict[str, Any]:
    place = {"deviceId": event.device, "streamId": 20 if event.sends else 7}
    if event.category == KERNEL:
        name = export.string(event.name)
        grid = {"gridX": round(event.blocks * job.card.sms), "gridY": 1, "gridZ": 1, "blockX": 256}
        return {**place, "demangledName": name, "shortName": name, **grid}
    if event.category == SET:
        return {**place, "bytes": event.bytes, "memKind": 2, "value": 0}
    if "DtoH" in event.name:
        return {**place, "bytes": event.bytes, "copyKind": 2, "srcKind": 2, "dstKind": 0}
    return {**place, "bytes": event.bytes, "copyKind": 1, "srcKind": int("Pinned" in event.name), "dstKind": 2}


def write_xla(job: "KernelJob", rank: int, events: list[Event], folder: Path) -> None:
    """Write ``host_rank0.xplane.pb``; of a job with an even seed it is one of JAX."""
    profile = ProfileWriter(_gpus(job))
    for plane in profile.gpus:
        major, minor = job.card.capability
        plane.stats = {
            "device_vendor": job.card.name, "core_count": job.card.sms, "memory_size": job.card.memory,
            "compute_cap_major": major, "compute_cap_minor": minor,
        }  # fmt: skip
    for event in sorted(events, key=lambda each: each.start):
        place = (event.start, event.lasts)
        if event.name.startswith("ProfilerStep#"):
            profile.host.event("python", "train", *place, step_num=int(event.name.removeprefix("ProfilerStep#")), _r=1)
        elif event.category == HOST:
            profile.host.event("python", event.name, *place)
        elif event.category == CALL:
            numbered = {"correlation_id": event.correlation} if event.correlation else {}
            profile.host.event("Host Threads/1", _DRIVER[event.name], *place, **numbered)
        else:
            _add_work(job, profile.gpus[event.device], event)
    for gpu, share in enumerate(job.reserved):
        of_memory = {"allocator_name": f"GPU_{gpu}_bfc", "peak_bytes_in_use": int(share * job.card.memory)}
        profile.host.event("python", "MemoryAllocation", 1_500_000, 0, **of_memory)
    if not job.seed % 2:
        profile.host.event("python", "PjitFunction(train)", events[0].start, 1_000)
    (folder / f"host_rank{rank}.xplane.pb").write_bytes(profile.text())


def _add_work(job: "KernelJob", plane: PlaneWriter, event: Event) -> None:
    number, place = {"correlation_id": event.correlation}, (event.start, event.lasts)
    if event.category == KERNEL:
        details = f"regs:32 grid:{round(event.blocks * job.card.sms)},1,1 block:256,1,1 occ_pct:50"
        line = "Stream #20(Compute)" if event.sends else "Stream #7(Compute)"
        plane.event(line, event.name, *place, kernel_details=details, **number)
    elif event.category == COPY:
        ends, way = ("pinned" if "Pinned" in event.name else "pageable", "device"), "H2D"
        if "DtoH" in event.name:
            ends, way = ("device", "pageable"), "D2H"
        details = f"kind_src:{ends[0]} kind_dst:{ends[1]} size:{event.bytes} dest:0 async:1"
        plane.event(f"Stream #7(Memcpy{way})", f"Memcpy{way}", *place, memcpy_details=details, **number)
    else:
        plane.event(
            "Stream #7(Compute)", "Memset", *place, memset_details=f"kind:device num_bytes:{event.bytes}", **number
        )
