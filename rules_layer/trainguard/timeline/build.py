"""Digests of all nodes to the time lines of a report."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from trainguard.errors import TimelinePartError
from trainguard.timeline.axis import shown_axis
from trainguard.timeline.detail import details_of
from trainguard.timeline.device_series import device_forms
from trainguard.timeline.digest import NodeDigest
from trainguard.timeline.node_series import node_timeline
from trainguard.timeline.phases import phases_of
from trainguard.timeline.series import Mark, TimeAxis, Timelines
from trainguard.timeline.series_builder import Shown, overall_means, used_buckets
from trainguard.timeline.step_series import step_timelines

GPUS_WITH_BANDS = 32
_NAMED = 5
_NUMBER = re.compile(r"(\d+)")


def build_timelines(
    digests: Sequence[NodeDigest], *, marks: Sequence[Mark], started_at: float | None, ended_at: float | None
) -> Timelines:
    """Return what a report shows over time.

    Empty buckets at both ends are left out, but for those between the job's start and end. What the digests hold in
    finer buckets than the whole job is shown in goes into ``detail``, as far as there is room.

    Parameters
    ----------
    digests : sequence of NodeDigest
        At least one, on one axis; several of a node are merged.
    marks : sequence of Mark
        Shown as they are; where the job is too large to be shown finely, what is around them is.
    started_at, ended_at : float or None
        The job's, epoch seconds.

    Raises
    ------
    TimelinePartError
        When there is no digest, or their axes differ.
    """
    fine = merged(digests)
    gpus = sum(len(node.tables["gpu"].keys) for node in fine)
    whole = shown_axis(fine[0].axis, gpus, len(fine))
    nodes = [node.joined(whole) for node in fine]
    shown = _shown(nodes, [time for time in (started_at, ended_at) if time is not None])
    banded = _least_busy(nodes)
    steps, steps_left_out = step_timelines(nodes, shown)
    phases, phase_s = phases_of([node.steps for node in nodes], whole, started_at=started_at, ended_at=ended_at)
    forms, devices_left_out = device_forms(nodes, shown.stop - shown.first)
    left_out = [*_thinned(nodes, banded), *devices_left_out, *steps_left_out, *_not_shown(nodes)]
    if phase_s > whole.bucket_s:
        left_out.append(f"Phases are shown in steps of {phase_s:.0f} s: there are more than can be shown.")
    built = Timelines(
        axis=shown.axis(whole),
        nodes=[node_timeline(node, shown, banded, forms=forms) for node in nodes],
        steps=steps,
        phases=phases,
        marks=list(marks),
        left_out=left_out,
    )
    return msgspec.structs.replace(built, detail=details_of(fine, built, banded, forms))


def merged(digests: Iterable[NodeDigest]) -> list[NodeDigest]:
    """Return one digest a node, algo-2 before algo-10; raises TimelinePartError when there is none or axes differ."""
    nodes: dict[str, NodeDigest] = {}
    axis: TimeAxis | None = None
    for digest in digests:
        if axis is not None and digest.axis != axis:
            raise TimelinePartError(digest.node, f"its axis is {digest.axis}, expected {axis}")
        axis = digest.axis
        nodes.setdefault(digest.node, NodeDigest(digest.node, axis)).merge(digest)
    if not nodes:
        raise TimelinePartError("", "there is none, expected at least one")
    return [nodes[name] for name in sorted(nodes, key=_natural)]


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(name)], name


def _shown(nodes: Sequence[NodeDigest], times: Sequence[float]) -> Shown:
    """Return the buckets that hold something, or lie between it and ``times``; all when nothing does."""
    axis = nodes[0].axis
    ranges = [used_buckets([*node.tables.values(), node.steps.table]) for node in nodes]
    buckets = [bucket for used in ranges if used is not None for bucket in used]
    if not buckets:
        return Shown(0, axis.buckets)
    inside = [min(max(int((time - axis.start) // axis.bucket_s), 0), axis.buckets - 1) for time in times]
    return Shown(min([*buckets, *inside]), max([*buckets, *inside]) + 1)


def _least_busy(nodes: Sequence[NodeDigest]) -> set[tuple[str, str]]:
    """Return the GPUs whose lowest and highest values are shown, as (node, GPU): those of the lowest mean."""
    means = []
    for node in nodes:
        table = node.tables["gpu"]
        overall = overall_means(table, range(len(table.keys))).tolist()
        means += [
            (mean, _natural(node.node), number, node.node, gpu)
            for mean, (number, gpu, _) in zip(overall, table.keys, strict=True)
        ]
    return {(node, gpu) for *_, node, gpu in sorted(means)[:GPUS_WITH_BANDS]}


def _thinned(nodes: Sequence[NodeDigest], banded: set[tuple[str, str]]) -> list[str]:
    gpus = sum(len(node.tables["gpu"].keys) for node in nodes)
    if gpus <= len(banded):
        return []
    return [f"Lowest and highest values are shown for the {len(banded)} least busy of {gpus:,} GPUs, means for all."]


def _not_shown(nodes: Sequence[NodeDigest]) -> list[str]:
    """Say what has no place on the axis or among the series of its node."""
    sentences = []
    outside = {node.node: node.outside + node.steps.outside for node in nodes}
    if any(outside.values()):
        sentences.append(f"{_on_nodes(outside)} lie outside the time shown.")
    refused = {node.node: sum(table.refused for table in (*node.tables.values(), node.steps.table)) for node in nodes}
    if any(refused.values()):
        sentences.append(f"{_on_nodes(refused)} are of more devices or processes than a node is shown with.")
    return sentences


def _on_nodes(counts: dict[str, int]) -> str:
    found = [node for node, count in counts.items() if count]
    names = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    return f"{sum(counts.values()):,} samples or steps on {names}"
