"""A profile's files sorted out by their names.

The hour folder does not matter, and a copy may be compressed (``.json.gz``). Each object gets the key that the grammar
of the deployed stack knows.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from trainguard.core.errors import NoProfileError, ObjectMissingError, UnreadableKeyError
from trainguard.core.layout import EndKey, ProfileRoot, hour_folder
from trainguard.core.ports import ByteStream, ListedObject, ReadableObjects
from trainguard.core.units import counted
from trainguard.engine.family import ObjectSource
from trainguard.engine.streams.session import HARMLESS_COUNTERS, Applied
from trainguard.formats.profile.keys import (
    FrameworkKey,
    ProfileKey,
    SystemKey,
    TraceKey,
    parse_key,
    parse_trace_key,
    system_key,
)
from trainguard.formats.profile.system import MAX_OBJECT_BYTES
from trainguard.local.sources import FilesAsBucket, ProfileSource, safe_name

if TYPE_CHECKING:
    from trainguard.local.hangs import ReadDumps
    from trainguard.local.kernels import KernelFiles


@dataclass(frozen=True, slots=True)
class TrainingFiles:
    """A job's files of training in a bucket; ``ended`` says whether the mark of the end is there."""

    objects: ReadableObjects
    bucket: str
    root: ProfileRoot
    tensors: bool
    ended: bool
    scalars: tuple[str, ...] = ()


_MICROSECONDS = 1_000_000
# A file's own time says when it was copied: none is too early for the time in its name.
_COPIED_AT = float("inf")


@dataclass(frozen=True, slots=True)
class Node:
    """Files of one node by key: its minutes, in order, and its framework objects."""

    minutes: dict[str, SystemKey] = field(default_factory=dict)
    framework: dict[str, FrameworkKey] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """A profile's objects.

    ``files`` are names in the source by key. ``shared`` are keys of TensorFlow's traces, which may be of any node.
    ``training``, ``kernels`` and ``hang`` are None where nobody looked for them. ``unread`` counts by the reason what
    could not be read before there were objects, ``not_judged`` devices whose metrics are not read. ``link`` is a page
    of the tool that recorded the job.
    """

    source: ProfileSource
    root: ProfileRoot
    files: Mapping[str, str]
    nodes: Mapping[str, Node]
    shared: tuple[str, ...]
    foreign: tuple[str, ...]
    ended: bool
    training: TrainingFiles | None = None
    kernels: "KernelFiles | None" = None
    hang: "ReadDumps | None" = None
    notes: tuple[str, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    not_judged: int = 0
    link: str | None = None

    @cached_property
    def size(self) -> int:
        """Bytes of all objects of nodes."""
        return sum(self.size_of(key) for node in self.nodes.values() for key in (*node.minutes, *node.framework))

    @property
    def instances(self) -> int | None:
        """How many instances the job had, if its nodes are called as SageMaker calls them; None says unknown."""
        count = len(self.nodes)
        return count if set(self.nodes) == {f"algo-{number}" for number in range(1, count + 1)} else None

    @property
    def objects(self) -> int:
        return sum(len(node.minutes) + len(node.framework) for node in self.nodes.values())

    def size_of(self, key: str) -> int:
        return self.source.sizes[self.files[key]]


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run that was found; ``open`` raises ProfileSourceError. ``size`` is that of its file, if it is one.

    ``changed_at`` is when the newest of its files was saved, epoch seconds.
    """

    place: str
    open: Callable[[], Profile]
    size: int = 0
    changed_at: float = 0.0


class ReadFaults:
    """What could not be read of some objects: the first of them with the reason, and how many there are."""

    _MOST = 3

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._more = 0

    def note(self, applied: Applied) -> None:
        if applied.fault is None or all(name in HARMLESS_COUNTERS for name in applied.tally):
            return
        if len(self._shown) < self._MOST:
            self._shown.append(applied.fault)
        else:
            self._more += 1

    @property
    def notes(self) -> list[str]:
        more = [f"{counted(self._more, 'more object')} could not be read in full."] if self._more else []
        return [*(f"Not read in full: {each}." for each in self._shown), *more]


@dataclass(frozen=True)
class NodeFiles:
    """The objects of one node by key; ``read`` returns a file's content by its name in the source."""

    profile: Profile
    node: str
    read: Callable[[str], bytes]

    @cached_property
    def _keys(self) -> list[str]:
        own = self.profile.nodes.get(self.node, Node())
        return sorted({*own.minutes, *own.framework, *self.profile.shared})

    def get(self, name: str, max_bytes: int) -> bytes:
        return self.read(self._file(name))[: max_bytes + 1]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.profile.source.files.get_range(self._file(name), start, length)

    def open_stream(self, name: str) -> ByteStream:
        return self.profile.source.files.open_stream(self._file(name))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for key in self._keys[max(bisect_left(self._keys, prefix), bisect_right(self._keys, start_after)) :]:
            if not key.startswith(prefix):
                return
            yield ListedObject(key, _COPIED_AT, self.profile.size_of(key))

    def _file(self, key: str) -> str:
        if key not in self.profile.files:
            raise ObjectMissingError(self.profile.source.place, key)
        return self.profile.files[key]


def node_source(profile: Profile, node: str, read: Callable[[str], bytes]) -> ObjectSource:
    objects = FilesAsBucket(NodeFiles(profile, node, read))
    return ObjectSource(objects, profile.source.place, profile.root, MAX_OBJECT_BYTES)


def read_profile(source: ProfileSource) -> Profile:
    """Sort out the files of a source; raises NoProfileError when none of them is a profile object."""
    root = ProfileRoot("", safe_name(source.job))
    files: dict[str, str] = {}
    nodes: defaultdict[str, Node] = defaultdict(Node)
    shared, foreign = [], []
    ended = False
    for name in source.sizes:
        key, parsed = _identify(root, name)
        if isinstance(parsed, EndKey):
            ended = True
        elif parsed is None or key in files:
            foreign.append(name)
        else:
            files[key] = name
            if isinstance(parsed, SystemKey):
                nodes[parsed.node].minutes[key] = parsed
            elif isinstance(parsed, FrameworkKey):
                nodes[parsed.node].framework[key] = parsed
            if not isinstance(parsed, SystemKey) and not key.startswith(root.framework):
                shared.append(key)
    if not nodes:
        raise NoProfileError(source.place)
    return Profile(source, root, files, dict(sorted(nodes.items())), tuple(shared), tuple(foreign), ended)


def empty_profile(source: ProfileSource, training: TrainingFiles) -> Profile:
    """Return the profile of a job that has none, with what it saved of its training."""
    return Profile(source, training.root, {}, {}, (), (), ended=True, training=training)


def _identify(root: ProfileRoot, name: str) -> tuple[str, ProfileKey | TraceKey | None]:
    """Return the key of a file and what it says; None for a file that is no profile object."""
    file = name.rpartition("/")[2]
    plain = file.removesuffix(".gz") if file.endswith(".json.gz") else file
    folder = {"system": root.system, "framework": root.framework}.get(name.partition("/")[0])
    if folder is not None and (parsed := _parsed(f"{folder}{hour_folder(0)}/{plain}")):
        if isinstance(parsed, SystemKey):
            return system_key(root, parsed.node, parsed.minute), parsed
        if isinstance(parsed, FrameworkKey):
            return f"{folder}{hour_folder(parsed.end_us // _MICROSECONDS)}/{plain}", parsed
    key = f"{root.prefix}{root.job}/profiler-output/{name}"
    return key, _parsed(key) or parse_trace_key(key)


def _parsed(key: str) -> ProfileKey | None:
    try:
        return parse_key(key)
    except UnreadableKeyError:
        return None
