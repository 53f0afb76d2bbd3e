"""Further series of GPUs as a report shows them: as many as there is room for."""

from collections.abc import Mapping, Sequence

from trainguard.timeline.buckets import BucketTable
from trainguard.timeline.device_kinds import DEVICE_KINDS, DeviceKind
from trainguard.timeline.digest import NodeDigest
from trainguard.timeline.series import DeviceTimeline
from trainguard.timeline.series_builder import Shown, mean_of_rows, rate_of_rows

ROOM_BYTES = 500_000
"""What these series of the whole job may take on a page of 3 MB."""

PERCENT_BYTES, FLOAT_BYTES = 4 / 3, 16 / 3
"""A value as base64 on the page: of a percentage one byte, of anything else four."""

NAME_BYTES = 70
"""What a line takes beside its values, in each part that is shown."""

DeviceForms = Mapping[str, bool]
"""The kinds that are shown, and whether by GPU or as one line a node."""


def device_forms(digests: Sequence[NodeDigest], buckets: int) -> tuple[DeviceForms, list[str]]:
    """Return what is shown over so many buckets, and sentences on what is not.

    A kind has a line for each GPU. Where that has no room it has the mean of each node's GPUs, and else no line.
    """
    forms: dict[str, bool] = {}
    left_out, room = [], float(ROOM_BYTES)
    for kind in DEVICE_KINDS:
        gpus = sum(len(_rows_by_gpu(digest.tables[kind.name])) for digest in digests)
        nodes = sum(bool(digest.tables[kind.name].keys) for digest in digests)
        if not nodes:
            continue
        each = buckets * bytes_of(kind) + NAME_BYTES
        for by_gpu, lines in ((True, gpus), (False, nodes)):
            if lines * each <= room:
                forms[kind.name] = by_gpu
                room -= lines * each
                break
        else:
            left_out.append(f"{_TITLES[kind.name]} is left out: a report of so many nodes has no room for it.")
        if forms.get(kind.name) is False:
            left_out.append(f"{_TITLES[kind.name]} is shown as the mean of each node's GPUs.")
    return forms, left_out


def device_timelines(digest: NodeDigest, shown: Shown, forms: DeviceForms) -> list[DeviceTimeline]:
    """Return a node's further series over a part of the axis."""
    found = []
    for kind in DEVICE_KINDS:
        table = digest.tables[kind.name]
        by_gpu = _rows_by_gpu(table)
        if kind.name not in forms or not by_gpu:
            continue
        make = rate_of_rows if kind.is_rate else mean_of_rows
        if forms[kind.name]:
            found += [
                DeviceTimeline(kind=kind.name, gpu=gpu, band=make(table, rows, shown)) for gpu, rows in by_gpu.items()
            ]
        else:
            rows = [row for own in by_gpu.values() for row in own]
            found.append(DeviceTimeline(kind=kind.name, gpu=None, band=make(table, rows, shown, len(by_gpu))))
    return found


def bytes_of(kind: DeviceKind) -> float:
    """Return what a value of a kind takes on the page."""
    return PERCENT_BYTES if kind.is_percent else FLOAT_BYTES


def bytes_a_bucket(digests: Sequence[NodeDigest], forms: DeviceForms) -> tuple[float, int]:
    """Return what these series take on the page in each bucket, and beside that in each part that is shown."""
    taken, lines = 0.0, 0
    for kind in DEVICE_KINDS:
        tables = [digest.tables[kind.name] for digest in digests] if kind.name in forms else []
        own = sum(len(_rows_by_gpu(table)) if forms[kind.name] else bool(table.keys) for table in tables)
        taken, lines = taken + own * bytes_of(kind), lines + own
    return taken, NAME_BYTES * lines


def bytes_taken(shown: Sequence[DeviceTimeline]) -> float:
    """Return what series take on the page."""
    sizes = {kind.name: bytes_of(kind) for kind in DEVICE_KINDS}
    return sum(sizes[each.kind] * len(each.band.mean) + NAME_BYTES for each in shown)


def _rows_by_gpu(table: BucketTable) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, (_, gpu, _) in enumerate(table.keys):
        rows.setdefault(gpu, []).append(row)
    return rows


_TITLES = {
    "sm_activity": "SM activity",
    "memory_used": "GPU memory in use",
    "tensor_activity": "Tensor core activity",
    "dram_activity": "Use of GPU memory's bandwidth",
    "sm_occupancy": "SM occupancy",
    "power": "GPU power",
    "sm_clock": "SM clock",
    "temperature": "GPU temperature",
    "nvlink": "NVLink traffic",
    "pcie": "PCIe traffic",
}
