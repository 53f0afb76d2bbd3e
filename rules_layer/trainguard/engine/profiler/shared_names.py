"""Names of a job's framework objects, listed once for the nodes of the job that one evaluator has in hand.

S3 lists those of all nodes together: listed node by node, a job of a thousand nodes would list a thousand times what it
writes. A listing that has an object was made after S3 got it, and lacks nothing older.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ProfileObjects
from trainguard.engine.profiler.listing import framework_names
from trainguard.formats.profile.keys import FrameworkKey, FrameworkName, parse_key

UPLOAD_US = 60_000_000
"""S3 gets an object at most so much later than any other of the node that ends when it does, or it is late."""

MARGIN_US = 60_000_000
"""How much further back than asked is listed: other nodes stand there."""

MOST_NAMES = 200_000
"""Of all jobs together: some 50 MB. A job of 4,000 nodes of 8 processes has so many in 6 min."""


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
    """Holds the newest listings of jobs."""

    def __init__(self, objects: ProfileObjects) -> None:
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
