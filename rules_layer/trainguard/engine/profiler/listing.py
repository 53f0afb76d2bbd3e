"""Listings of a profile's objects, in order of the keys that the grammar knows."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from trainguard.core.errors import TelemetryFormatError, UnreadableKeyError
from trainguard.core.layout import EndKey, ProfileRoot, hour_folder, is_future
from trainguard.core.ports import ReadableObjects
from trainguard.engine.family import ObjectSource
from trainguard.formats.profile.keys import (
    TF_TRACE,
    FrameworkKey,
    FrameworkName,
    SystemKey,
    TraceKey,
    parse_key,
    parse_trace_key,
)

# S3 gets an object at most so much later than any other of the node that ends when it does, or it is late.
UPLOAD_US = 60_000_000

# How much further back than asked is listed: other nodes stand there.
MARGIN_US = 60_000_000

# Of all jobs together: some 50 MB. A job of 4,000 nodes of 8 processes has so many in 6 min.
MOST_NAMES = 200_000


@dataclass(slots=True)
class _Held:
    """A listing of a job from a time on (None: all): by node, keys and when S3 got them (epoch seconds)."""

    from_us: int | None
    nodes: defaultdict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    count: int = 0

    def of(self, node: str) -> list[FrameworkName]:
        names = ((key, parse_key(key), last_modified) for key, last_modified in self.nodes[node].items())
        return [
            (key, parsed, last_modified) for key, parsed, last_modified in names if isinstance(parsed, FrameworkKey)
        ]

    def serves(self, node: str, from_us: int | None, to_us: int, having: Collection[str]) -> bool:
        """Whether it goes back far enough, has the objects ``having``, and one UPLOAD_US beyond ``to_us``."""
        if self.from_us is not None and (from_us is None or from_us < self.from_us):
            return False
        if not self.nodes[node].keys() >= set(having):
            return False
        return any(parsed.end_us >= to_us + UPLOAD_US for _, parsed, _ in self.of(node))


class SharedNames:
    """Names of a job's framework objects, listed once for the nodes of the job that one evaluator has in hand.

    S3 lists those of all nodes together: listed node by node, a job of a thousand nodes would list a thousand times
    what it writes. A listing that has an object was made after S3 got it, and lacks nothing older.
    """

    def __init__(self, objects: ReadableObjects) -> None:
        self._objects = objects
        self._held: dict[tuple[str, ProfileRoot], _Held] = {}

    def of_node(
        self,
        bucket: str,
        root: ProfileRoot,
        node: str,
        from_us: int | None,
        to_us: int | None,
        having: Collection[str] | None,
    ) -> Iterable[FrameworkName]:
        """Return a node's framework objects between two times, maybe others, from a listing with ``having``."""
        if having is None or to_us is None:
            names = framework_names(self._objects, bucket, root, from_us)
            return (name for name in names if name[1].node == node)
        held = self._held.get((bucket, root))
        if held is None or not held.serves(node, from_us, to_us, having):
            held = self._list(bucket, root, node, from_us)
        return held.of(node)

    def _list(self, bucket: str, root: ProfileRoot, node: str, from_us: int | None) -> _Held:
        """List a job again; where it has too many names, only the node's are kept, and it is not held."""
        self._held.pop((bucket, root), None)
        held = _Held(None if from_us is None else max(from_us - MARGIN_US, 0))
        for key, parsed, last_modified in framework_names(self._objects, bucket, root, held.from_us):
            held.count += 1
            if held.count == MOST_NAMES:
                held.nodes = defaultdict(dict, {node: held.nodes[node]})
            if held.count < MOST_NAMES or parsed.node == node:
                held.nodes[parsed.node][key] = last_modified
        if held.count < MOST_NAMES:
            while self._held and held.count + sum(each.count for each in self._held.values()) > MOST_NAMES:
                del self._held[next(iter(self._held))]
            self._held[bucket, root] = held
        return held


_MICROSECONDS = 1_000_000
# The hour folders of TensorFlow's traces are in local time, which is less than a day from UTC.
_DAY_S = 86_400

# Objects of a step's folder; a host and process puts a handful there.
_MOST_IN_A_STEP = 10_000


def system_minutes(source: ObjectSource, node: str, cursor: int | None) -> Iterator[tuple[str, int, float]]:
    """Yield a node's minutes after a cursor: key, minute and when S3 got the object (epoch seconds)."""
    after = "" if cursor is None else f"{source.root.system}{hour_folder(cursor)}/{cursor:010d}."
    for key, parsed, last_modified in _listed(source.objects, source.bucket, source.root.system, after):
        if isinstance(parsed, SystemKey) and parsed.node == node:
            yield key, parsed.minute, last_modified


def trace_of(source: ObjectSource, key: str, parsed: FrameworkKey) -> str:
    """Return the key of the TensorFlow trace of the metadata ``key``; raises TelemetryFormatError where unclear.

    Every host and process puts both into the folder of its step; a host's belong together in order of time. Where no
    trace bears the name of a host that left metadata, a single one belongs to the single metadata.
    """
    metadata, traces = _step_folder(source, f"{key.rpartition('/')[0]}/")
    hosts = {other.node for other, _ in metadata}
    if any(trace.host in hosts for trace in traces):
        metadata = [(other, name) for other, name in metadata if other.node == parsed.node]
        traces = [trace for trace in traces if trace.host == parsed.node]
    elif len(metadata) != 1:
        traces = []
    names = [name for _, name in metadata]
    if key not in names or len(traces) != len(names):
        found = f"{len(traces)} traces for {len(names)} metadata of {parsed.node}"
        raise TelemetryFormatError(key, f"{found}, expected one TensorFlow trace for each")
    return sorted(traces)[names.index(key)].key


def traces_without_metadata(source: ObjectSource, host: str) -> int:
    """Count a host's TensorFlow traces without metadata in their step's folder: their times are not known."""
    described: set[str] = set()
    own: list[TraceKey] = []
    for listed in source.objects.list(source.bucket, source.root.tensorflow, ""):
        if listed.key.endswith(".metadata"):
            described.add(f"{listed.key.rpartition('/')[0]}/")
        elif (trace := parse_trace_key(listed.key)) and trace.host == host:
            own.append(trace)
    return sum(trace.folder not in described for trace in own)


def _step_folder(source: ObjectSource, folder: str) -> tuple[list[tuple[FrameworkKey, str]], Sequence[TraceKey]]:
    metadata: list[tuple[FrameworkKey, str]] = []
    traces: list[TraceKey] = []
    for listed in islice(source.objects.list(source.bucket, folder, ""), _MOST_IN_A_STEP):
        if trace := parse_trace_key(listed.key):
            traces.append(trace)
            continue
        try:
            parsed = parse_key(listed.key)
        except UnreadableKeyError:
            continue
        if isinstance(parsed, FrameworkKey) and parsed.kind == TF_TRACE:
            metadata.append((parsed, listed.key))
    return sorted(metadata, key=lambda each: (each[0].end_us, each[1])), traces


def framework_names(
    objects: ReadableObjects, bucket: str, root: ProfileRoot, from_us: int | None = None
) -> Iterator[FrameworkName]:
    """Yield the framework objects of all nodes of a job from a time on.

    First the timelines in order, then the TensorFlow traces by their metadata, of which some may lie before: their keys
    are in the order of steps. Both in one listing, unless there are traces that are much too old.
    """
    timelines, traces = "", root.tensorflow
    if from_us is not None:
        from_s = from_us // _MICROSECONDS
        timelines = f"{root.framework}{hour_folder(from_s)}/{from_us:016d}"
        traces = f"{root.tensorflow}{hour_folder(max(from_s - _DAY_S, 0))}/"
    for key, parsed, last_modified in _listed(objects, bucket, root.framework_all, timelines):
        if root.tensorflow < key < traces:
            break
        if isinstance(parsed, FrameworkKey):
            yield key, parsed, last_modified
    else:
        return
    for key, parsed, last_modified in _listed(objects, bucket, root.tensorflow, traces):
        if isinstance(parsed, FrameworkKey):
            yield key, parsed, last_modified


def _listed(
    objects: ReadableObjects, bucket: str, prefix: str, after: str
) -> Iterator[tuple[str, SystemKey | FrameworkKey, float]]:
    for listed in objects.list(bucket, prefix, after):
        try:
            parsed = parse_key(listed.key)
        except UnreadableKeyError:
            continue  # its own message counts and names it
        if not isinstance(parsed, EndKey) and not is_future(parsed.named_at, listed.last_modified):
            yield listed.key, parsed, listed.last_modified
