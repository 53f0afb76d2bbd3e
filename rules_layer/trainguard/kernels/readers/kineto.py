"""A PyTorch (Kineto) trace, old or new, CUDA or ROCm, to columns: streamed, and as far as it can be read."""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainguard.core.errors import KernelTraceError
from trainguard.kernels.columns import Framework, Trace
from trainguard.kernels.readers.builder import TraceBuilder, text_chunks, whole
from trainguard.kernels.readers.kineto_rows import MOST_GROUP, KinetoRows, gpus_of
from trainguard.kernels.readers.splitter import EventSplitter, Metadata

if TYPE_CHECKING:
    from trainguard.core.ports import ByteStream


def read_trace(name: str, stream: "ByteStream") -> Trace:
    """Read a trace, plain or gzip; a rank is looked for in ``name`` last. KernelTraceError when nothing can be read."""
    tally: Counter[str] = Counter()
    builder = TraceBuilder(name, tally)
    splitter = EventSplitter(name, tally)
    rows = KinetoRows(builder, splitter.metadata, tally)
    with _without_collector():
        for events in splitter.batches(text_chunks(name, stream, tally)):
            rows.add(events)
            events.clear()  # else they are held until the next batch is decoded
    if not tally["events"] and (tally["truncated_gzip"] or tally["unreadable_events"] or tally["cut_off"]):
        raise KernelTraceError(name, "not one of its events is whole, expected a Chrome trace")
    rows.ranks.count_mixed()
    metadata = splitter.metadata
    distributed = metadata.distributedInfo if isinstance(metadata.distributedInfo, dict) else {}
    backend = distributed.get("backend")
    return builder.build(
        rank=_known(distributed.get("rank")),
        world_size=_known(distributed.get("world_size")),
        base_ns=max(whole(metadata.baseTimeNanoseconds), 0),
        gpus=gpus_of(metadata.deviceProperties),
        framework=Framework.PYTORCH,
        backend=backend[:MOST_GROUP] if isinstance(backend, str) else "",
        software=_software(metadata) | {"nccl": distributed.get("nccl_version")},
    )


_VERSIONS = {
    "CUDA runtime": "cuda_runtime_version",
    "CUDA driver": "cuda_driver_version",
    "HIP runtime": "hip_runtime_version",
    "HIP driver": "hip_driver_version",
}
# Of the profiler, which slow the host down. Kineto writes 1 and true, and the default not at all.
OPTIONS = ("record_shapes", "with_stack", "profile_memory")


def _software(metadata: Metadata) -> dict[str, Any]:
    """Return the versions as CUDA and HIP count them, 12040 for 12.4, and the options as on and off."""
    versions = {name: _version(getattr(metadata, field)) for name, field in _VERSIONS.items()}
    options = {each: "off" if getattr(metadata, each) in (0, None, "0", "false") else "on" for each in OPTIONS}
    return versions | options


def _version(value: Any) -> str:
    found = whole(value)
    if found <= 0:
        return ""
    # HIP counts 60032830 for 6.0.32830.
    return (
        f"{found // 1_000}.{found % 1_000 // 10}" if found < 1_000_000 else f"{found // 10**7}.{found // 10**5 % 100}"
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the cyclic collector from walking over events: none of them is in a cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _known(value: Any) -> int | None:
    known = whole(value)
    return known if known >= 0 else None
