"""Makes recordings, and single minutes of any size, from a workload and a seed."""

import numpy as np

from demo.hook import run_process
from demo.minute_lines import MinuteWriter
from demo.recording import Recording
from demo.sampler import sample_node
from demo.samples import MICROSECONDS, MINUTE_S
from demo.workload import PHASES, Activity, Level, Stretch, Workload

_END_MARKS_AFTER_US = 4 * MICROSECONDS
_BUSY = Activity(core=Level(35, 8, high=88), gpu=Level(93, 3, low=60))


def record(workload: Workload, *, seed: int, start: int) -> Recording:
    """Return the recording of a workload that starts at epoch second ``start``, a minute; one process a node."""
    nodes = range(workload.nodes)
    return Recording(
        instance_type=workload.instance_type,
        interval_ms=workload.interval_ms,
        start=start,
        ended_us=round(workload.ends_s * MICROSECONDS) + _END_MARKS_AFTER_US,
        phases=PHASES,
        nodes=tuple(sample_node(workload, node, np.random.default_rng([seed, 0, node])) for node in nodes),
        processes=tuple(run_process(workload, node, np.random.default_rng([seed, 1, node])) for node in nodes),
    )


def minute_of_node(
    *,
    cores: int = 96,
    gpus: int = 8,
    interval_ms: int = 500,
    minute: int = 1_784_021_040,
    node: str = "algo-1",
    seed: int = 0,
    every_counter: bool = False,
) -> bytes:
    """Return one whole minute of a busy node, as one object of system metrics: 25,320 lines by default.

    ``interval_ms`` divides a minute, ``minute`` is the epoch second of its start; ``every_counter`` as in
    `MinuteWriter`.
    """
    workload = Workload(
        instance_type="",
        nodes=1,
        cores=cores,
        gpus=gpus,
        stretches=(Stretch(0, _BUSY),),
        ends_s=2 * MINUTE_S + 1,
        loading=(),
        first_snapshot_s=MINUTE_S - 0.9 * interval_ms / 1_000,
        interval_ms=interval_ms,
    )
    samples = sample_node(workload, 0, np.random.default_rng(seed))
    writer = MinuteWriter(node=node, cores=cores, gpus=gpus, every_counter=every_counter)
    return writer.body(samples, samples.rows(1), start=minute - MINUTE_S)
