"""A trace as columns: one row an event, times in whole nanoseconds, names as numbers; hostile ones end in an error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from trainguard.kernels.entries import Collective, CounterEntry

# Rows of all sorts together: about 3 GB of columns.
MOST_ROWS = 40_000_000

MOST_NAME_BYTES = 256 * 1024 * 1024

# Sorts of collectives: operation, group and type.
MOST_COLLECTIVES = 10_000

MOST_COLLECTIVE_CALLS = 1_000_000

LONGEST_NAME = 16 * 1024

# A gzip stream of a trace grows 12 to 40 times; one that grows more often than that is a bomb.
MOST_GROWTH = 400

GROWTH_FROM_BYTES = 64 * 1024 * 1024

# A longer event is a broken one: HTA, too, drops it.
LONGEST_NS = 7 * 24 * 3600 * 1_000_000_000

# A later time, in 2116, is a broken one.
LATEST_NS = 1 << 62


Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


CUTS = ("cut_off", "truncated_gzip", "broken_gzip")


class WorkKind(IntEnum):
    COMPUTE = 0
    COMMUNICATION = 1
    MEMCPY = 2
    MEMSET = 3


# The name of JAX's call that waits for the GPU: among the calls of the runtime, whatever its thread.
BLOCK_UNTIL_READY = "block_until_ready"


class Framework(StrEnum):
    """The program's framework; ``xla`` is JAX or TensorFlow, where the profile does not say which."""

    PYTORCH = "pytorch"
    JAX = "jax"
    TENSORFLOW = "tensorflow"
    XLA = "xla"
    UNKNOWN = "unknown"


class _Known(dict[Any, int]):
    def __init__(self, number: Callable[[Any], int]) -> None:
        self._number = number

    def __missing__(self, value: Any) -> int:
        self[value] = made = self._number(value)
        return made


class Names:
    """Texts as numbers, in the order of their first appearance; ``size`` is that of all, uncut, in characters."""

    def __init__(self) -> None:
        self.size = 0
        self._numbers: dict[str, int] = {}
        self._known = _Known(self.number)

    def number(self, text: Any) -> int:
        """Return the number of a text, which is cut where it is too long; what is no text is shown as one."""
        if type(text) is not str:
            text = "" if text is None else str(text)
        found = self._numbers.get(text)
        if found is None:
            self.size += len(text)
            found = self._numbers.setdefault(text[:LONGEST_NAME], len(self._numbers))
        return found

    def of(self, values: Sequence[Any]) -> Numbers:
        try:
            return np.fromiter(map(self._known.__getitem__, values), dtype=np.int32, count=len(values))
        except TypeError:  # a value that cannot be looked up
            return np.array([self.number(value) for value in values], dtype=np.int32)

    def texts(self) -> list[str]:
        return list(self._numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """N rows of one sort: ``start`` and ``end`` in nanoseconds of the trace's clock, int64[N].

    ``name`` and ``lane``, a stream or thread, are indexes into `Trace.names`, int32[N]. ``correlation`` joins a launch
    and its work, ``operator`` (the external id) a kernel and an operator, int64[N]; -1 where unknown.
    """

    start: Ints
    end: Ints
    name: Numbers
    lane: Numbers
    correlation: Ints
    operator: Ints

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRows(Rows):
    """N rows of GPUs; -1 and NaN where the trace does not say it.

    ``kind``, ``device``, ``size`` and ``collective`` are int64[N]: the `WorkKind`, the GPU's number, bytes (of a
    collective the larger of input and output), and an index into `Trace.collectives`. ``blocks_per_sm`` and
    ``occupancy``, float64[N], are thread blocks per multiprocessor, and the estimated percentage of the warps that fit.
    """

    kind: Ints
    device: Ints
    size: Ints
    blocks_per_sm: Floats
    occupancy: Floats
    collective: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRows:
    """N events of allocators: ``at`` in nanoseconds of the trace's clock, ``size`` in bytes, negative of what is freed.

    ``device`` is -1 of the host. ``address``, and ``allocated`` and ``reserved`` after the event, are -1 where the
    trace does not say them. All int64[N] but ``lane``, the thread, an index into `Trace.names`.
    """

    at: Ints
    device: Ints
    address: Ints
    size: Ints
    allocated: Ints
    reserved: Ints
    lane: Numbers

    def __len__(self) -> int:
        return len(self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as the trace describes it; ``capability`` is major and minor, (0, 0) where unknown."""

    name: str
    memory: int
    capability: tuple[int, int]
    sms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One rank's trace.

    base_ns: Added to a time, the epoch in nanoseconds; 0 where the clock has another origin that is not said.
    launches, waits: Calls of the CUDA or HIP runtime and driver, and synchronization as the GPU's side records it.
    annotations, gpu_annotations: Named stretches on the host, ``ProfilerStep#n`` among them, and on the GPU.
    operators: ``correlation`` holds the number of the first input type.
    operator_inputs: int32, of each operator the index into ``names`` of its `inputs_text`; -1 without.
    operator_sequences: int32, of each operator the number of the node that autograd makes of it, or that it computes
        the gradient of; -1 without.
    overhead: The profiler's own work.
    modules: Calls of PyTorch's modules, in their forward pass.
    functions: Python's functions, of a trace with events of memory: their stacks say who allocates.
    memory: Events of allocators.
    operator_collectives: By external id of the calling operator: index into ``collectives``, and bytes; -1 where
        unknown.
    reserved, reserved_at: Most bytes that were reserved, by GPU, and when that was first so.
    tally: What could not be read, and what was repaired.
    software: Versions, and options of the profiler, by name.
    """

    name: str
    rank: int | None
    world_size: int | None
    base_ns: int
    names: list[str]
    gpus: list[Gpu]
    gpu: GpuRows
    launches: Rows
    waits: Rows
    annotations: Rows
    gpu_annotations: Rows
    operators: Rows
    operator_inputs: Numbers
    operator_sequences: Numbers
    overhead: Rows
    modules: Rows
    functions: Rows
    memory: MemoryRows
    collectives: list[Collective]
    operator_collectives: dict[int, tuple[int, int]]
    reserved: dict[int, int]
    tally: dict[str, int]
    counters: list[CounterEntry] = field(default_factory=list)
    reserved_at: dict[int, int] = field(default_factory=dict)
    framework: Framework = Framework.UNKNOWN
    backend: str = ""
    software: dict[str, str] = field(default_factory=dict)

    def numbers_of(self, says: Callable[[str], object]) -> Ints:
        """Return the numbers of the names for which ``says`` is true."""
        return np.array([place for place, name in enumerate(self.names) if says(name)], dtype=np.int64)

    @property
    def is_cut(self) -> bool:
        """Whether the file ends early, so that rows of any sort may be missing behind what was read."""
        return is_cut(self.tally)

    @property
    def is_mixed(self) -> bool:
        """Whether processes without labels of their ranks launched the work."""
        return bool(self.tally.get("mixed_processes"))


def is_cut(tally: Mapping[str, int]) -> bool:
    return any(tally.get(what) for what in CUTS)
