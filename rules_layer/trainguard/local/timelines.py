"""Time lines of a local profile: on the rules' read and parse, or in a pass of their own."""

from collections.abc import Iterator
from statistics import median

from trainguard.core.errors import PortUnavailableError
from trainguard.engine.profiler.listing import ProfileListing
from trainguard.formats.profile.assemble import SAMPLING_INTERVALS_S, estimate_interval_s
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.keys import MINUTE_S, FrameworkKey
from trainguard.formats.profile.system import MINUTE_AFTER_S, MINUTE_BEFORE_S, Samples
from trainguard.local.engine import Watcher, schedule
from trainguard.local.pool import BodiesAhead, SamplesAhead, Unreadable, WorkerPool
from trainguard.local.profile import Profile, node_objects
from trainguard.report.timeline.digest import NodeDigest, read_framework
from trainguard.report.timeline.series import TimeAxis, axis_for

_MICROSECONDS = 1_000_000
_FIRST_OBJECT_S = 10 * MINUTE_S
"""How long before its end the first framework object of a job without system metrics is taken to begin."""

_LOOKED_AT = 2
"""The first object of a node may hold a few seconds."""


class TimelineListener:
    """Folds what it is shown into one digest a node; `trainguard.local.engine` shows it."""

    def __init__(self, axis: TimeAxis) -> None:
        self._axis = axis
        self._digests: dict[str, NodeDigest] = {}

    @property
    def digests(self) -> list[NodeDigest]:
        """One of each node that was met, in order of their names."""
        return [self._digests[node] for node in sorted(self._digests)]

    def samples(self, node: str, samples: Samples) -> None:
        self._of(node).add_samples(samples)

    def events(self, node: str, events: FrameworkEvents) -> None:
        self._of(node).add_events(events)

    def _of(self, node: str) -> NodeDigest:
        if node not in self._digests:
            self._digests[node] = NodeDigest(node, self._axis)
        return self._digests[node]


def digest_profile(
    profile: Profile, pool: WorkerPool, watch: Watcher | None = None, *, axis: TimeAxis | None = None
) -> list[NodeDigest]:
    """Digest a profile without judging it; unreadable objects are left out: the rules' pass counts them.

    ``axis`` is `profile_axis` by default. Raises PortUnavailableError; WorkerDiedError.
    """
    tap = TimelineListener(profile_axis(profile) if axis is None else axis)
    planned = schedule(profile)
    minutes = planned.minutes(profile)
    parsed = SamplesAhead(profile, minutes, pool)
    for key, minute in minutes:
        samples = parsed.take(key)
        if not isinstance(samples, Unreadable):
            tap.samples(minute.node, samples)
        if watch is not None:
            watch(profile.size_of(key), float(minute.minute))
    for key, framework, events in _framework(profile, planned.framework()):
        if events is not None:
            tap.events(framework.node, events)
        if watch is not None:
            watch(profile.size_of(key), framework.end_us / _MICROSECONDS)
    return tap.digests


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


def _framework(profile: Profile, keys: list[str]) -> Iterator[tuple[str, FrameworkKey, FrameworkEvents | None]]:
    """Yield the framework objects in order, None where nothing can be read of one."""
    bodies = BodiesAhead(profile.source, [profile.files[key] for key in keys])
    listings = {
        node: ProfileListing(
            objects=node_objects(profile, node, bodies.read), bucket=profile.source.place, root=profile.root, node=node
        )
        for node in profile.nodes
    }
    parsed = {key: each for node in profile.nodes.values() for key, each in node.framework.items()}
    for key in keys:
        yield key, parsed[key], _read(listings[parsed[key].node], key, parsed[key])


def _read(listing: ProfileListing, key: str, parsed: FrameworkKey) -> FrameworkEvents | None:
    try:
        return read_framework(listing, key, parsed)
    except PortUnavailableError:
        raise
    except Exception:
        # As in the rules' pass, which counts and names it, an object costs itself and no other.
        return None
