"""A profile of XLA to columns, streamed."""

from collections import Counter
from collections.abc import Callable, Iterable

from trainguard.core.errors import KernelTraceError
from trainguard.core.ports import ByteStream
from trainguard.formats.protobuf import LENGTH, Wire
from trainguard.kernels.columns import Framework, Gpu, Trace
from trainguard.kernels.readers.builder import MOST_GPUS, TraceBuilder, by_number, whole
from trainguard.kernels.readers.unpacking import text_chunks
from trainguard.kernels.readers.xplane.planes import GPU, PLANE_LINE, TASK, Plane, each_plane, read_planes
from trainguard.kernels.readers.xplane.rows import GpuPlane, HostPlane, batches

_EPOCH_LEAST_NS = 10**18
_MARKS = (
    ("PjitFunction", Framework.JAX),
    ("EagerExecute", Framework.TENSORFLOW),
    ("FunctionRun", Framework.TENSORFLOW),
)
"""Calls on the host that only one framework makes."""


def read_xplane(name: str, open_stream: Callable[[], ByteStream]) -> Trace:
    """Read a profile twice, plain or gzip: names, then events; KernelTraceError when nothing can be read."""
    with open_stream() as stream:
        planes = read_planes(name, Wire(text_chunks(name, stream, Counter())), Counter())
    if not any(plane.name for plane in planes):
        raise KernelTraceError(name, "it has no plane with a name, expected a profile of XLA (xplane.pb)")
    tally: Counter[str] = Counter()
    builder = TraceBuilder(name, tally)
    gpus: dict[int, Gpu] = {}
    latest_ns = 0
    left = iter(planes)
    with open_stream() as stream:
        wire = Wire(text_chunks(name, stream, tally))

        def take(end: float) -> None:
            nonlocal latest_ns
            plane = next(left, Plane())
            if not plane.has_events:
                return
            rows = GpuPlane(plane, builder) if plane.name.startswith(GPU) else HostPlane(plane, builder)
            if isinstance(rows, GpuPlane) and 0 <= rows.device < MOST_GPUS:
                gpus[rows.device] = rows.gpu
            for number, kind, length in wire.fields(end):
                if number == PLANE_LINE and kind == LENGTH:
                    for batch in batches(wire, wire.position + length, plane, tally):
                        latest_ns = max(latest_ns, int(batch[2].max(initial=0)))
                        rows.add(batch)

        each_plane(wire, tally, take)
    if not tally["events"] and (tally["cut_off"] or tally["unreadable_parts"] or tally["unreadable_events"]):
        raise KernelTraceError(name, "not one of its events is whole, expected a profile of XLA (xplane.pb)")
    framework = framework_of(builder.names.texts())
    return builder.build(base_ns=_base_ns(planes, latest_ns), gpus=by_number(gpus), framework=framework)


def framework_of(names: Iterable[str]) -> Framework:
    """Return the framework that made one of the calls; XLA where its calls identify none, or several."""
    found = {framework for name in names for mark, framework in _MARKS if name.startswith(mark)}
    return found.pop() if len(found) == 1 else Framework.XLA


def _base_ns(planes: list[Plane], latest_ns: int) -> int:
    """Return what makes a time one of the epoch; 0 where it is one, as in old profiles, or none can be made."""
    if latest_ns >= _EPOCH_LEAST_NS:
        return 0
    return max([0, *(whole(plane.stats.get("profile_start_time")) for plane in planes if plane.name == TASK)])
