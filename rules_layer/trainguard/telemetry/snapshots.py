"""System metrics of a node as a matrix: one row a snapshot, one column a series."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

FULL_CORE = 90.0
"""A core above it, percent, is full."""


@dataclass(frozen=True, slots=True)
class Snapshots:
    """T snapshots of one node with G GPUs, oldest first.

    A snapshot is what the node's samplers saw within half a sampling interval. Every value but the network's is a
    percentage in [0, 100]; NaN says that the snapshot has no sample of the series.

    Attributes
    ----------
    times : float64[T]
        Event time of the snapshot's first sample, epoch seconds.
    gpu_names : tuple of str, length G
    gpu_utilization, gpu_memory : float64[T, G]
        GPUUtilization, and GPUMemoryUtilization (memory-controller activity, not memory in use).
    cpu_mean, cpu_max : float64[T]
        Mean and maximum of CPUUtilization over the cores.
    cores_full : float64[T]
        How many cores are above FULL_CORE percent.
    io_wait_mean, io_wait_max : float64[T]
        Mean and maximum of I/OWaitPercentage over the cores.
    host_memory : float64[T]
        Host memory in use.
    network : float64[T]
        Bytes per second of the algorithm's network traffic, received and sent together.
    """

    times: FloatArray
    gpu_names: tuple[str, ...]
    gpu_utilization: FloatArray
    gpu_memory: FloatArray
    cpu_mean: FloatArray
    cpu_max: FloatArray
    cores_full: FloatArray
    io_wait_mean: FloatArray
    io_wait_max: FloatArray
    host_memory: FloatArray
    network: FloatArray

    def __len__(self) -> int:
        return int(self.times.size)
