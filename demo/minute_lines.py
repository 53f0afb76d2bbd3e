"""The objects of system metrics: one node's minute as JSON lines, in the form of the sampling agent.

A minute of a large node has 25,000 lines: orders of lines are templates, with one substitution a group.
"""

import numpy as np

from demo.samples import GROUPS, MICROSECONDS, Integers, NodeSamples

_ORDERS = 16
_TIME = "\0"
_PERCENT_TEXTS = np.array([repr(hundredths / 100) for hundredths in range(10_001)], dtype=object)
_PAGE_BYTES = 4_096
_KIB_BYTES = 1_024


class MinuteWriter:
    """Writes the minutes of one node, with ``every_counter`` also disk and platform network counters."""

    def __init__(self, *, node: str, cores: int, gpus: int, every_counter: bool = True) -> None:
        orders = np.random.default_rng([cores, gpus])
        cores_in_order = [orders.permutation(cores) for _ in range(_ORDERS)]
        gpus_in_order = [orders.permutation(gpus) for _ in range(_ORDERS)]
        self._node = node
        self._every_counter = every_counter
        self._core_columns = np.stack([_columns(order) for order in cores_in_order])
        self._gpu_columns = np.stack([_columns(order) for order in gpus_in_order])
        self._cpu_templates = [
            self._template("cpu", "cpu", order, ("CPUUtilization", "I/OWaitPercentage")) for order in cores_in_order
        ]
        self._gpu_templates = [
            self._template("gpu", "gpu", order, ("GPUUtilization", "GPUMemoryUtilization")) for order in gpus_in_order
        ]
        self._memory_template = self._line("memory", "MemoryUsedPercent", "")
        self._disk_template = "".join(
            self._line("i/o", name, "")
            for name in ("IOPS", "ReadThroughputInBytesPerSecond", "WriteThroughputInBytesPerSecond")
        )
        self._network_template = "".join(
            self._line("network", name, dimension)
            for dimension in (("Algorithm", "Platform") if every_counter else ("Algorithm",))
            for name in ("ReceiveBytesPerSecond", "TransmitBytesPerSecond")
        )

    def body(self, samples: NodeSamples, rows: slice, *, start: int) -> bytes:
        """Return the lines of some snapshots of this node; ``start`` is an epoch second that its times count from.

        The very first snapshot has only GPUs and memory: nothing is known yet of what is counted between snapshots.
        """
        columns = self._columns_of_text(samples, rows)
        times = _times(samples, rows, start=start)
        order = np.argsort(samples.lags_us[rows], axis=1, kind="stable").tolist()
        parts: list[str] = []
        for row in range(len(times)):
            begun = row + rows.start > 0
            for group in order[row]:
                if begun or GROUPS[group] in {"gpu", "memory"}:
                    template, texts = columns[group]
                    parts.append(template[row % len(template)].replace(_TIME, times[row][group]) % tuple(texts[row]))
        return "".join(parts).encode()

    def _columns_of_text(self, samples: NodeSamples, rows: slice) -> list[tuple[list[str], list[list[str]]]]:
        """Return templates by group, which snapshots take in turn, and each snapshot's values as text."""
        per_core = np.concatenate([samples.busy[rows], samples.io_wait[rows]], axis=1)
        cpu = np.rint(per_core * 10_000.0 / samples.jiffies[rows, None]).astype(np.int64)
        gpu = np.concatenate([samples.gpu[rows], samples.gpu_memory[rows]], axis=1).astype(np.int64) * 100
        memory = samples.host_memory[rows, None].astype(np.int64)
        return [
            (self._cpu_templates, _percent_texts(_in_turn(cpu, self._core_columns))),
            (self._gpu_templates, _percent_texts(_in_turn(gpu, self._gpu_columns))),
            ([self._memory_template], _percent_texts(memory)),
            ([self._disk_template], _rate_texts(samples, rows, "disk"))
            if self._every_counter
            else ([""], [[]] * len(cpu)),
            ([self._network_template], self._network_texts(samples, rows)),
        ]

    def _network_texts(self, samples: NodeSamples, rows: slice) -> list[list[str]]:
        platform = _rate_texts(samples, rows, "network")
        return [["0.0", "0.0", *texts] if self._every_counter else ["0.0", "0.0"] for texts in platform]

    def _template(self, kind: str, device: str, order: Integers, dimensions: tuple[str, str]) -> str:
        return "".join(self._line(kind, f"{device}{index}", dimension) for dimension in dimensions for index in order)

    def _line(self, kind: str, name: str, dimension: str) -> str:
        return (
            f'{{"Type":"{kind}","Name":"{name}","Dimension":"{dimension}","Value":%s,'
            f'"NodeId":"{self._node}","Timestamp":{_TIME}}}\n'
        )


def _columns(order: Integers) -> Integers:
    """Return where the values of both dimensions stand in a row of one after the other."""
    return np.concatenate([order, order + len(order)])


def _in_turn(values: Integers, orders: Integers) -> Integers:
    return np.take_along_axis(values, orders[np.arange(len(values)) % len(orders)], axis=1)


def _percent_texts(hundredths: Integers) -> list[list[str]]:
    texts: list[list[str]] = _PERCENT_TEXTS[hundredths].tolist()
    return texts


def _rate_texts(samples: NodeSamples, rows: slice, counter: str) -> list[list[str]]:
    counts: Integers = getattr(samples, counter)[rows]
    units = np.array([1, _PAGE_BYTES, _PAGE_BYTES] if counter == "disk" else [_KIB_BYTES, _KIB_BYTES])
    elapsed_us = np.diff(samples.ticks_us, prepend=samples.ticks_us[0] - MICROSECONDS)[rows, None]
    per_second = np.round(counts * units * (MICROSECONDS / elapsed_us), 2)
    return [[repr(value) for value in row] for row in per_second.tolist()]


def _times(samples: NodeSamples, rows: slice, *, start: int) -> list[list[str]]:
    read_us = samples.ticks_us[rows, None] + samples.lags_us[rows] + start * MICROSECONDS
    return [[repr(us / MICROSECONDS) for us in row] for row in read_us.tolist()]
