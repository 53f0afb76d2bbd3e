"""Snapshots of one node for tests: what a test does not say is an ordinary node's."""

from collections.abc import Sequence

import numpy as np

from trainguard.formats.profile.snapshots import FULL_CORE, FloatArray, Snapshots

Column = float | Sequence[float] | FloatArray


def node_snapshots(
    times: FloatArray,
    gpu: FloatArray,
    *,
    gpu_names: tuple[str, ...] | None = None,
    gpu_memory: FloatArray | None = None,
    cpu_mean: Column = 20.0,
    cpu_max: Column = 40.0,
    cores_full: Column | None = None,
    io_wait_mean: Column = 0.5,
    io_wait_max: Column = 1.0,
    host_memory: Column = 23.0,
    network: Column = 400_000.0,
) -> Snapshots:
    """Build T snapshots of G GPUs: ``gpu`` is float64[T, G], a number a column.

    Memory is half of the utilization unless given; one core is full where the busiest is.
    """

    def column(values: Column) -> FloatArray:
        return np.full(times.size, values, dtype=np.float64)

    busiest = column(cpu_max)
    return Snapshots(
        times=times,
        gpu_names=tuple(f"gpu{index}" for index in range(gpu.shape[1])) if gpu_names is None else gpu_names,
        gpu_utilization=gpu,
        gpu_memory=gpu / 2.0 if gpu_memory is None else gpu_memory,
        cpu_mean=column(cpu_mean),
        cpu_max=busiest,
        cores_full=np.where(busiest > FULL_CORE, 1.0, 0.0) if cores_full is None else column(cores_full),
        io_wait_mean=column(io_wait_mean),
        io_wait_max=column(io_wait_max),
        host_memory=column(host_memory),
        network=column(network),
    )
