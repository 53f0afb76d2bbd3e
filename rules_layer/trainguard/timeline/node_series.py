"""A node's digest as the series that a report shows, over the part of the axis that is shown."""

from collections.abc import Collection

from trainguard.timeline.device_series import DeviceForms, device_timelines
from trainguard.timeline.digest import NodeDigest
from trainguard.timeline.series import Band, GpuTimeline, NodeTimeline
from trainguard.timeline.series_builder import Shown, one_or_none, percents, rate_of_all


def node_timeline(
    digest: NodeDigest,
    shown: Shown,
    banded: Collection[tuple[str, str]],
    *,
    brief: bool = False,
    forms: DeviceForms | None = None,
) -> NodeTimeline:
    """Return a node's series.

    Parameters
    ----------
    digest : NodeDigest
    shown : Shown
        The part of the digest's axis.
    banded : collection of (str, str)
        The GPUs, as (node, GPU), of which the lowest and the highest utilization is told.
    brief : bool
        Whether memory, of the GPUs and of the node, is told as means alone.
    forms : mapping of str to bool, optional
        Which further series are shown, and how; none by default.
    """
    tables = digest.tables

    def cores(kind: str) -> Band | None:
        return one_or_none(tables[kind], lambda row: percents(tables[kind], row, shown, low=False, high=True))

    memory = tables["host_memory"]
    return NodeTimeline(
        node=digest.node,
        gpus=_gpus(digest, shown, banded, brief=brief),
        cpu=cores("cpu"),
        io_wait=cores("io_wait"),
        host_memory=one_or_none(memory, lambda row: percents(memory, row, shown, low=not brief, high=not brief)),
        network=rate_of_all(tables["network"], shown),
        devices=device_timelines(digest, shown, forms or {}),
    )


def _gpus(digest: NodeDigest, shown: Shown, banded: Collection[tuple[str, str]], *, brief: bool) -> list[GpuTimeline]:
    utilization, memory = digest.tables["gpu"], digest.tables["gpu_memory"]
    gpus = []
    for row, key in enumerate(utilization.keys):
        has_band = (digest.node, key[1]) in banded
        both = has_band and not brief
        memory_row = memory.row_of(key)
        gpus.append(
            GpuTimeline(
                gpu=key[1],
                utilization=percents(utilization, row, shown, low=has_band, high=has_band),
                memory=None if memory_row is None else percents(memory, memory_row, shown, low=both, high=both),
            )
        )
    return gpus
