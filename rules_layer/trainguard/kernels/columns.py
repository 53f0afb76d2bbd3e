"""A trace as columns: one row an event, times in whole nanoseconds, names as numbers."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trainguard.kernels.limits import LONGEST_NAME

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


CUTS = ("cut_off", "truncated_gzip", "broken_gzip")
"""Counted by readers where a file ends within a trace."""


class Kind(IntEnum):
    """What a row of the GPU is."""

    COMPUTE = 0
    COMMUNICATION = 1
    MEMCPY = 2
    MEMSET = 3


class Framework(StrEnum):
    """What wrote the program that was traced; ``xla`` is JAX or TensorFlow, where the profile does not say which."""

    PYTORCH = "pytorch"
    JAX = "jax"
    TENSORFLOW = "tensorflow"
    XLA = "xla"
    UNKNOWN = "unknown"


class _Known(dict[Any, int]):
    """Numbers by values, made when one is first asked for."""

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

    def of(self, values: Sequence[Any]) -> Ints:
        """Return the numbers of texts, or of what is shown as one."""
        try:
            return np.fromiter(map(self._known.__getitem__, values), dtype=np.int64, count=len(values))
        except TypeError:  # a value that cannot be looked up
            return np.array([self.number(value) for value in values], dtype=np.int64)

    def texts(self) -> list[str]:
        """Return the texts by their numbers."""
        return list(self._numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of one sort; every array has their length.

    Attributes
    ----------
    start, end : ndarray of int64
        Nanoseconds of the trace's own clock.
    name, lane : ndarray of int32
        Index into `Trace.names`; the lane is a stream or thread.
    correlation : ndarray of int64
        Joins a launch and what it started; -1 where unknown.
    operator : ndarray of int64
        The external id, which joins a kernel and an operator; -1 where unknown.
    """

    start: Ints
    end: Ints
    name: Numbers
    lane: Numbers
    correlation: Ints
    operator: Ints

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.start)

    def where(self, mask: Bools) -> "Rows":
        """Return the rows of a mask."""
        return Rows(
            start=self.start[mask],
            end=self.end[mask],
            name=self.name[mask],
            lane=self.lane[mask],
            correlation=self.correlation[mask],
            operator=self.operator[mask],
        )


@dataclass(frozen=True, slots=True)
class Collective:
    """What a kernel that communicates does; empty and None where the trace does not say it."""

    name: str
    group: str = ""
    group_size: int | None = None
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRows:
    """What ran on GPUs: rows, and of each what it is; -1 and NaN where the trace does not say it.

    Attributes
    ----------
    kind, device : ndarray of int64
        The `Kind`, and the GPU's number.
    size : ndarray of int64
        Bytes: of a copy, of a set, or of a collective (the larger one of its input and its output).
    blocks_per_sm, occupancy : ndarray of float64
        Thread blocks per multiprocessor; estimated percentage of the warps that fit.
    collective : ndarray of int64
        Index into `Trace.collectives`.
    """

    rows: Rows
    kind: Ints
    device: Ints
    size: Ints
    blocks_per_sm: Floats
    occupancy: Floats
    collective: Ints

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)


class RowBuilder:
    """Collects rows; 40 bytes each."""

    _TYPES: ClassVar = {"start": "q", "end": "q", "name": "i", "lane": "i", "correlation": "q", "operator": "q"}

    def __init__(self) -> None:
        self._columns = {field: array(code) for field, code in self._TYPES.items()}

    def extend(self, columns: Iterable[Ints]) -> None:
        """Add rows, column by column in the order of the fields of `Rows`."""
        for mine, values in zip(self._columns.values(), columns, strict=True):
            mine.frombytes(values.astype(mine.typecode, copy=False).tobytes())

    def build(self) -> Rows:
        """Return the rows."""
        return Rows(
            start=as_ints(self._columns["start"]),
            end=as_ints(self._columns["end"]),
            name=as_numbers(self._columns["name"]),
            lane=as_numbers(self._columns["lane"]),
            correlation=as_ints(self._columns["correlation"]),
            operator=as_ints(self._columns["operator"]),
        )


def as_ints(values: "array[int]") -> Ints:
    """Return an array of 64-bit numbers without a copy."""
    return np.frombuffer(values, dtype=np.int64) if values else np.empty(0, dtype=np.int64)


def as_numbers(values: "array[int]") -> Numbers:
    """Return an array of 32-bit numbers without a copy."""
    return np.frombuffer(values, dtype=np.int32) if values else np.empty(0, dtype=np.int32)


def as_floats(values: "array[float]") -> Floats:
    """Return an array of doubles without a copy."""
    return np.frombuffer(values, dtype=np.float64) if values else np.empty(0, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as the trace describes it; ``capability`` is major and minor, (0, 0) where unknown."""

    name: str
    memory: int
    capability: tuple[int, int]
    sms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterTrack:
    """Samples of one hardware counter of one GPU over the whole trace, in the counter's own unit."""

    gpu: int
    name: str
    samples: int
    mean: float
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One rank's trace.

    Attributes
    ----------
    base_ns : int
        Added to a time, the epoch in nanoseconds; 0 where the clock has another origin that is not said.
    launches : Rows
        Calls of the CUDA or HIP runtime and driver on the host.
    waits : Rows
        Synchronization as the GPU's side records it.
    annotations, gpu_annotations : Rows
        Named stretches on the host, ``ProfilerStep#n`` among them, and on the GPU.
    operators : Rows
        Operators on the host; ``correlation`` holds the number of the first input type.
    operator_inputs : ndarray of int32
        For each operator the index into ``names`` of its recorded inputs, as `inputs.inputs_text` writes them; -1 where
        the trace records none.
    overhead : Rows
        The profiler's own work.
    framework : Framework
    backend : str
        The library of the collectives, as the trace names it; empty where it does not.
    collectives : list of Collective
        The sorts of collectives.
    operator_collectives : dict of int to (int, int)
        By external id of the operator that calls it: index into ``collectives``, and bytes; -1 where unknown.
    reserved : dict of int to int
        Most bytes that were reserved, by GPU; ``reserved_at`` is when that was first so.
    tally : dict of str to int
        What could not be read, and what was repaired.
    counters : list of CounterTrack
        What the GPUs' hardware counted, where it was sampled.
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
    overhead: Rows
    collectives: list[Collective]
    operator_collectives: dict[int, tuple[int, int]]
    reserved: dict[int, int]
    tally: dict[str, int]
    counters: list[CounterTrack] = field(default_factory=list)
    reserved_at: dict[int, int] = field(default_factory=dict)
    framework: Framework = Framework.UNKNOWN
    backend: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the file ends early, so that rows of any sort may be missing behind what was read."""
        return is_cut(self.tally)


def is_cut(tally: Mapping[str, int]) -> bool:
    """Whether what was counted says that a trace's file ends early."""
    return any(tally.get(what) for what in CUTS)
