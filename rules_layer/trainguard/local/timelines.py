"""Time lines of a local profile: on the rules' read and parse, or in a pass of their own."""

from statistics import median

from trainguard.core.errors import PortUnavailableError
from trainguard.formats.profile.assemble import SAMPLING_INTERVALS_S, estimate_interval_s
from trainguard.formats.profile.keys import MINUTE_S
from trainguard.formats.profile.system import MINUTE_AFTER_S, MINUTE_BEFORE_S
from trainguard.local.engine import Watcher, by_stream, schedule
from trainguard.local.pool import BodiesAhead, SamplesAhead, Unreadable, WorkerPool
from trainguard.local.profile import Profile, node_listing
from trainguard.report.timeline.axis import axis_for
from trainguard.report.timeline.digest import NodeDigest, read_framework
from trainguard.report.timeline.series import TimeAxis

_MICROSECONDS = 1_000_000
_FIRST_OBJECT_S = 10 * MINUTE_S
"""How long before its end the first framework object of a job without system metrics is taken to begin."""

_LOOKED_AT = 2
"""The first object of a node may hold a few seconds."""


class NodeDigests(dict[str, NodeDigest]):
    """One digest of each node that was met."""

    def __init__(self, axis: TimeAxis) -> None:
        super().__init__()
        self._axis = axis

    def __missing__(self, node: str) -> NodeDigest:
        digest = self[node] = NodeDigest(node, self._axis)
        return digest

    def in_order(self) -> list[NodeDigest]:
        return [self[node] for node in sorted(self)]


def digest_profile(
    profile: Profile, pool: WorkerPool, watch: Watcher | None = None, *, axis: TimeAxis | None = None
) -> list[NodeDigest]:
    """Digest a profile without judging it; unreadable objects are left out: the rules' pass counts them.

    ``axis`` is `profile_axis` by default. Raises PortUnavailableError; WorkerDiedError.
    """
    digests = NodeDigests(profile_axis(profile) if axis is None else axis)
    minutes, framework = by_stream(schedule(profile))
    ahead = SamplesAhead(profile, minutes, pool)
    for key, minute in minutes:
        samples = ahead.take(key)
        if not isinstance(samples, Unreadable):
            digests[minute.node].add_samples(samples)
        if watch is not None:
            watch(profile.size_of(key), float(minute.minute))
    bodies = BodiesAhead(profile.source, [profile.files[key] for key, _ in framework])
    listings = {node: node_listing(profile, node, bodies.read) for node in profile.nodes}
    for key, parsed in framework:
        try:
            events = read_framework(listings[parsed.node], key, parsed)
        except PortUnavailableError:
            raise
        except Exception:
            # As in the rules' pass, which counts and names it, an object costs itself and no other.
            events = None
        if events is not None:
            digests[parsed.node].add_events(events)
        if watch is not None:
            watch(profile.size_of(key), parsed.end_us / _MICROSECONDS)
    return digests.in_order()


def profile_axis(profile: Profile, *, started_at: float | None = None, ended_at: float | None = None) -> TimeAxis:
    """Return the axis from the first object, or the job's start, to the last, or the job's end, epoch seconds.

    How many GPUs a node has, and how often they are sampled, is taken from the first objects of three nodes.
    """
    minutes = [key.minute for node in profile.nodes.values() for key in node.minutes.values()]
    ends = [key.end_us / _MICROSECONDS for node in profile.nodes.values() for key in node.framework.values()]
    starts = [minute - MINUTE_BEFORE_S for minute in minutes] or [end - _FIRST_OBJECT_S for end in ends]
    stops = [*(minute + MINUTE_AFTER_S for minute in minutes), *ends]
    start = min([*starts, *([] if started_at is None else [started_at])])
    stop = max([*stops, *([] if ended_at is None else [ended_at])])
    nodes = len(profile.nodes)
    gpus, interval_s = _sampling(profile)
    return axis_for(start, stop, gpus * nodes, nodes, interval_s=interval_s)


def _sampling(profile: Profile) -> tuple[int, float]:
    """Return how many GPUs a node has, and the seconds between their samples."""
    names = list(profile.nodes)
    order = [
        (key, parsed)
        for name in sorted({names[0], names[len(names) // 2], names[-1]})
        for key, parsed in list(profile.nodes[name].minutes.items())[:_LOOKED_AT]
    ]
    ahead = SamplesAhead(profile, order, WorkerPool(0))
    taken = [ahead.take(key) for key, _ in order]
    read = [samples for samples in taken if not isinstance(samples, Unreadable) and samples.table]
    gpus = [sum(series.kind == "gpu" for series in samples.table) for samples in read]
    estimates = (estimate_interval_s(samples, None, None) for samples in read)
    known = [interval_s for interval_s in estimates if interval_s is not None]
    return max(gpus, default=0), median(known) if known else SAMPLING_INTERVALS_S[-1 if read else 0]
