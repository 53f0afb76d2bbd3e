"""The kernel profiles below a place: each ``kernels.json``, and folders of traces that none of those names."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trainguard.core.errors import KernelTraceError, ObjectMissingError, PortUnavailableError
from trainguard.core.text import one_line
from trainguard.core.timestamps import iso_time
from trainguard.kernels.listing import (
    KernelList,
    Listed,
    ListedProfile,
    Wanted,
    listed,
    newest_first,
    read_document,
    traces_of,
)
from trainguard.local.sources import S3
from trainguard.local.traces import DOCUMENT, FilesBelow, files_below

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients

PAGE = "kernels.html"
MOST_BYTES = 256 * 1024 * 1024
"""A larger document is listed and not read."""

MOST_PROFILES = 2_000
_FRAMEWORKS = {".pt.trace.json": "pytorch", ".pt.trace.json.gz": "pytorch", ".xplane.pb": "xla", ".xplane.pb.gz": "xla"}
"""A trace of another name is found by its document alone."""


def list_kernels(place: str, wanted: Wanted, clients: "Clients | None" = None) -> KernelList:
    """Return the kernel profiles below a folder or ``s3://bucket/prefix``, the newest first.

    ``clients`` are by default those of the environment. Raises KernelTraceError when the place cannot be listed.
    """
    found = list(profiles_below(files_below(place, clients, _counts)))
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


def _counts(name: str) -> bool:
    return name.rpartition("/")[2] in (DOCUMENT, PAGE) or name.endswith(tuple(_FRAMEWORKS))
