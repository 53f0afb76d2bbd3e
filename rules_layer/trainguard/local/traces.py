"""Kernel traces below a place: where they lie, and the profiles of them, each ``kernels.json``, that are there."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trainguard.core.errors import KernelTraceError, ObjectMissingError, PortUnavailableError
from trainguard.core.layout import RESULTS_FOLDER, S3
from trainguard.core.text import one_line
from trainguard.core.timestamps import iso_time
from trainguard.kernels.columns import Trace
from trainguard.kernels.listing import (
    KernelList,
    Listed,
    ListedProfile,
    ListingRequest,
    listed,
    newest_first,
    read_document,
    traces_of,
)
from trainguard.kernels.memory.snapshot import MemorySnapshot
from trainguard.kernels.readers.reading import REPORT_ENDINGS, begins_as_trace, read_recording

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients
    from trainguard.core.ports import ByteStream

NAMED_TRACES = (
    ".pt.trace.json",
    ".pt.trace.json.gz",
    ".xplane.pb",
    ".xplane.pb.gz",
    ".sqlite",
    ".sqlite.gz",
    ".pickle",
    ".pickle.gz",
)
_XLA_TRACES = (".xplane.pb", ".xplane.pb.gz")
# How people name snapshots of the allocator; alone, a file of any name is read.
_NAMED_SNAPSHOT = re.compile(r"(?:.*[._-])?(?:memory|snapshot)[^/]*\.(?:pickle|pkl|json)(?:\.gz)?", re.IGNORECASE)

_PERHAPS_TRACES = (".json", ".json.gz")
# Beside files that are named as traces, those of these names are traces that begin as one.
_OTHER_TRACES = (*_PERHAPS_TRACES, ".pb", ".pb.gz", ".db", ".sqlite3", *REPORT_ENDINGS)

MOST_LOOKED_AT = 200
DOCUMENT = "kernels.json"
_NOT_TRACES = {NAMED_TRACES: {RESULTS_FOLDER}, _PERHAPS_TRACES: {RESULTS_FOLDER, "profiler-output", "debug-output"}}


@dataclass(frozen=True, slots=True)
class FilesBelow:
    """Files at or below a place with their times in epoch seconds; ``folder`` is where they lie on a disk, if they do.

    ``names`` are those of traces, in order; ``left_out`` have a name that a trace may have, and do not begin as one.
    """

    place: str
    changed: Mapping[str, float]
    open: Callable[[str], "ByteStream"]
    folder: Path | None = None
    names: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def read(self, name: str) -> Trace | MemorySnapshot:
        """Read a trace of any format, or a snapshot; raises as `read_recording` and the opening do."""
        return read_recording(name, lambda: self._opened(name), self.folder / name if self.folder else None)

    def begins_as_trace(self, name: str) -> bool:
        try:
            return begins_as_trace(name, lambda: self._opened(name))
        except (KernelTraceError, ObjectMissingError, PortUnavailableError, OSError):
            return False

    def _opened(self, name: str) -> "ByteStream":
        try:
            return self.open(name)
        except OSError as fault:
            raise KernelTraceError(name, fault.strerror or str(fault)) from fault


def open_traces(place: str, clients: "Clients | None" = None) -> FilesBelow:
    """Find the traces at a file, a folder, or ``s3://bucket/key-or-prefix``.

    Files of PyTorch (``.pt.trace.json``), XLA (``.xplane.pb``) and Nsight Systems (``.sqlite``) count, with or without
    ``.gz``, snapshots of the allocator (``.pickle``, and others with ``memory`` or ``snapshot`` in their names), and
    beside them others that begin as a trace does; where there is none, all ``.json`` and ``.json.gz``. Results,
    profiles and tensors are left out. Raises KernelTraceError when the place cannot be read, or holds no file that may
    be a trace.
    """
    found = files_below(place, clients, alone=True)
    if found.names:
        return found
    names = _traces(place, list(found.changed))
    others = _beside(found, names) if any(name.endswith(NAMED_TRACES) for name in names) else []
    begun = [name for name in others[:MOST_LOOKED_AT] if name.endswith(REPORT_ENDINGS) or found.begins_as_trace(name)]
    left_out = [name for name in others if name not in begun]
    return replace(found, names=sorted([*names, *begun]), left_out=left_out)


def _beside(found: FilesBelow, names: Sequence[str]) -> list[str]:
    """Return other files that may be traces, without copies: XLA and Nsight Systems write one trace in two forms."""
    others = _ending(list(found.changed), _OTHER_TRACES, _NOT_TRACES[_PERHAPS_TRACES])
    of_xla = {_folder(name) for name in names if name.endswith(_XLA_TRACES)}
    exported = {name.removesuffix(".gz").removesuffix(".sqlite") for name in names}

    def is_copy(name: str) -> bool:
        if name.endswith(REPORT_ENDINGS):
            return name.rpartition(".")[0] in exported
        return _folder(name) in of_xla and name.endswith(_PERHAPS_TRACES)

    return [name for name in others if name not in names and not is_copy(name)]


def files_below(
    place: str, clients: "Clients | None", wanted: Callable[[str], bool] = bool, *, alone: bool = False
) -> FilesBelow:
    """Return the files below a folder or prefix whose names are ``wanted``; ``alone``: or the one at a file or key."""
    if place.startswith(S3):
        return _in_bucket(place, clients, wanted, alone=alone)
    path = Path(place)
    if alone and path.is_file():
        return FilesBelow(
            place, {path.name: 0.0}, lambda name: (path.parent / name).open("rb"), path.parent, [path.name]
        )
    if not path.is_dir():
        missing = (
            "does not exist, expected a trace, a folder of traces," if alone else "is no folder, expected a folder"
        )
        raise KernelTraceError(place, f"it {missing} or s3://bucket/prefix")
    try:
        found = {
            each.relative_to(path).as_posix(): each.stat().st_mtime
            for each in path.rglob("*")
            if wanted(each.name) and each.is_file()
        }
    except OSError as fault:
        raise KernelTraceError(place, fault.strerror or str(fault)) from fault
    return FilesBelow(place, found, lambda name: (path / name).open("rb"), path)


def _in_bucket(place: str, clients: "Clients | None", wanted: Callable[[str], bool], *, alone: bool) -> FilesBelow:
    from trainguard.aws.aws_errors import translated
    from trainguard.aws.clients import Clients
    from trainguard.aws.s3_objects import S3ProfileObjects

    bucket, _, path = place.removeprefix(S3).partition("/")
    if not bucket:
        raise KernelTraceError(place, "it names no bucket, expected s3://bucket/key or s3://bucket/prefix")
    try:
        with translated("S3", "client"):
            objects = S3ProfileObjects(client=(clients or Clients()).s3)
        changed = {each.key: each.last_modified for each in objects.list(bucket, path, "") if wanted(each.key)}
    except PortUnavailableError as fault:
        raise KernelTraceError(place, f"it cannot be listed: {fault}") from fault
    found = alone and path in changed
    above = path.rpartition("/")[0] if found else path.rstrip("/")
    prefix = f"{above}/" if above else ""
    mine = {
        key.removeprefix(prefix): at
        for key, at in changed.items()
        if (key == path if found else key.startswith(prefix))
    }
    return FilesBelow(
        place, mine, lambda name: objects.open_stream(bucket, prefix + name), names=list(mine) if found else ()
    )


def _traces(place: str, names: Sequence[str]) -> list[str]:
    """Return the files that are named as traces; without one, those that might be."""
    named, perhaps = (_ending(names, endings, others) for endings, others in _NOT_TRACES.items())
    chosen = sorted({*(named or perhaps), *(name for name in names if is_snapshot_name(name))})
    if chosen:
        return chosen
    reports = any(name.endswith(REPORT_ENDINGS) for name in names)
    expected = ", ".join((*NAMED_TRACES, *_PERHAPS_TRACES))
    hint = "; a report of Nsight Systems is exported with nsys export --type sqlite" if reports else ""
    raise KernelTraceError(place, f"it holds no file that ends in {expected}{hint}")


def _ending(names: Sequence[str], endings: tuple[str, ...], others: Set[str]) -> list[str]:
    found = [name for name in names if name.endswith(endings) and name.rpartition("/")[2] != DOCUMENT]
    return sorted(name for name in found if others.isdisjoint(name.split("/")[:-1]))


def is_snapshot_name(name: str) -> bool:
    """Whether a path is named as a snapshot of the allocator, and is no result."""
    *folders, file = name.split("/")
    return RESULTS_FOLDER not in folders and _NAMED_SNAPSHOT.fullmatch(file) is not None


PAGE = "kernels.html"
# A larger document is listed and not read.
MOST_BYTES = 256 * 1024 * 1024

MOST_PROFILES = 2_000
# A trace of another name is found by its document alone.
_FRAMEWORKS = {".pt.trace.json": "pytorch", ".pt.trace.json.gz": "pytorch", ".xplane.pb": "xla", ".xplane.pb.gz": "xla"}


def list_kernels(place: str, wanted: ListingRequest) -> KernelList:
    """Return the kernel profiles below a folder or ``s3://bucket/prefix``, the newest first.

    Raises KernelTraceError when the place cannot be listed.
    """

    def counts(name: str) -> bool:
        return name.rpartition("/")[2] in (DOCUMENT, PAGE) or name.endswith(tuple(_FRAMEWORKS))

    found = list(profiles_below(files_below(place, None, counts)))
    chosen = newest_first(each for each in found if wanted.has(each))
    return KernelList(
        source=place.encode("utf-8", "replace").decode(),
        found=len(found),
        profiles=chosen[:MOST_PROFILES],
        left_out=max(len(chosen) - MOST_PROFILES, 0),
    )


def profiles_below(files: FilesBelow) -> Iterator[ListedProfile]:
    """Yield the profiles of some files: the documents, each content once, then the traces that none of them names."""
    judged = _Judged()
    seen: set[bytes] = set()
    documents = (name for name in files.changed if name.rpartition("/")[2] == DOCUMENT)
    for name in sorted(documents, key=lambda each: (each.count("/"), each)):
        text = _read(files, name)
        if isinstance(text, str):
            yield _unreadable(files, name, text)
            continue
        content = hashlib.blake2b(text, digest_size=16).digest()
        if content in seen:
            continue
        seen.add(content)
        try:
            found = read_document(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as fault:
            yield _unreadable(files, name, f"it is no kernels.json: {fault}")
            continue
        judged.add(found)
        folder = _folder(name)
        page = f"{folder}/{PAGE}".removeprefix("./")
        yield listed(
            found,
            place=folder,
            document=name,
            page=page if page in files.changed else None,
            changed_s=files.changed[name],
        )
    yield from _unjudged(files, judged)


class _Judged:
    """Where traces lie that a document names: in full, or below any folder where its place is relative."""

    def __init__(self) -> None:
        self._full: set[str] = set()
        self._ends: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, found: Listed) -> None:
        source = found.source.rstrip("/")
        for trace in traces_of(found):
            # A document of one trace has the trace's own path as its place.
            path = source if source.rpartition("/")[2] == trace else f"{source}/{trace}"
            if path.startswith((S3, "/")):
                self._full.add(path if path.startswith(S3) else _resolved(path))
            else:
                kept = [part for part in path.split("/") if part not in ("", ".", "..")]
                self._ends[kept[-1] if kept else ""].add("/" + "/".join(kept))

    def has(self, place: str, name: str) -> bool:
        full = f"{place}/{name}"
        ends = self._ends.get(full.rpartition("/")[2], ())
        return full in self._full or any(full.endswith(end) for end in ends)


def _unjudged(files: FilesBelow, judged: _Judged) -> Iterator[ListedProfile]:
    place = files.place.rstrip("/") if files.place.startswith(S3) else _resolved(files.place)
    folders: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name in files.changed:
        framework = next((word for ending, word in _FRAMEWORKS.items() if name.endswith(ending)), None)
        if framework is not None and not judged.has(place, name):
            folders[_folder(name), framework].append(name)
    for (folder, framework), names in folders.items():
        last = folder.rpartition("/")[2]
        yield ListedProfile(
            name=one_line(names[0].rpartition("/")[2] if folder == "." and len(names) == 1 else last, 200),
            place=one_line(folder, 200),
            status="not judged",
            why="no kernels.json below this place names these traces",
            framework=framework,
            changed_at=iso_time(max(files.changed[name] for name in names)),
            traces=len(names),
        )


def _unreadable(files: FilesBelow, name: str, why: str) -> ListedProfile:
    folder = _folder(name)
    return ListedProfile(
        name=one_line(folder.rpartition("/")[2], 200),
        place=one_line(folder, 200),
        status="unreadable",
        why=one_line(why, 500),
        changed_at=iso_time(files.changed[name]),
        document=one_line(name, 200),
    )


def _read(files: FilesBelow, name: str) -> bytes | str:
    try:
        with files.open(name) as stream:
            text = stream.read(MOST_BYTES + 1)
    except (KernelTraceError, ObjectMissingError, PortUnavailableError, OSError) as fault:
        return str(fault)
    return f"it has over {MOST_BYTES:,} bytes" if len(text) > MOST_BYTES else text


def _resolved(path: str) -> str:
    return Path(path).resolve().as_posix()


def _folder(name: str) -> str:
    return name.rpartition("/")[0] or "."
