"""The sampler's side of what training processes hand over: files to objects, each under its key."""

import gzip
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Optional
from urllib.parse import unquote

from trainguard_collector.hangs.stacks import runs
from trainguard_collector.layout import timeline_key
from trainguard_collector.objects import (
    ASK,
    DRAFT,
    PAUSE,
    SHARED,
    STACKS,
    STREAM,
    TIMELINE,
    WRITER,
    object_name,
    withdraw,
)
from trainguard_collector.spool import LEVEL, OBJECT, PLAIN, TENSORS, Budget
from trainguard_collector.tensor_files import encode_step

ROTATE_S, ROTATE_BYTES = 60.0, 4 * 1024 * 1024

_STALE_DRAFT_S = 3_600.0
_STREAMS = {"framework", "training"}
_TIMES = re.compile(rb'"ts":(\d+),"dur":(\d+)')
_PROCESS = re.compile(r"[A-Za-z0-9]{1,20}")


class Outgoing:
    """Makes objects of what the processes of a node hand over.

    ``streams`` were written, ``framework`` and ``training``, also by a sampler before this one. ``faults`` has the
    newest of each kind.
    """

    def __init__(self, folder: Path, job: str, node: str, budget: Optional[Budget] = None) -> None:
        self._budget = budget
        self._folder, self._job, self._node = folder, job, node
        self._lock = threading.Lock()
        self._ends_us: dict[str, int] = {}
        self.streams = {path.stem for path in folder.glob(f"*{STREAM}")} & _STREAMS
        self.faults: dict[str, str] = {}

    def is_awaited(self, but: int) -> bool:
        """Whether a process that still runs may write; ``but`` names the one that is known to have ended."""
        pids = [_number(path.stem) for path in self._folder.glob(f"*{WRITER}")]
        return any(pid != but and runs(pid) for pid in pids)

    def prepare(self, *, final: bool) -> None:
        """Take timelines that are due, all of them when ``final``, and encode tensors."""
        if self._budget is not None:
            self._budget.forget()
        with self._lock:
            timelines: dict[str, list[Path]] = {}
            for path in sorted(self._folder.glob(f"*{TIMELINE}")):
                process = path.name.split(".")[1]
                timelines.setdefault(process if process.endswith(SHARED) else path.name, []).append(path)
            for process, together in timelines.items():
                self._take(together, final, shared=process.endswith(SHARED))
            for kind in (TENSORS, PLAIN):
                for path in sorted(self._folder.glob(f"*{kind}")):
                    with self._noted(path):
                        self._make_object(path)
            for path in self._folder.glob(f"*{DRAFT}"):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > _STALE_DRAFT_S:
                        path.unlink()

    @property
    def is_used(self) -> bool:
        return any(self._folder.glob(f"*{WRITER}"))

    def ready(self) -> "list[tuple[str, Path]]":
        """Return keys and files of the objects, in the order in which they were made."""
        found = sorted(self._folder.glob(f"*{OBJECT}"), key=lambda path: _number(path.name.split(".", 1)[0]))
        return [(f"{self._job}/{unquote(path.name.split('.', 1)[1][: -len(OBJECT)])}", path) for path in found]

    def close(self) -> None:
        with suppress(OSError):
            for kind in (WRITER, STREAM, PAUSE, STACKS, ASK):
                for path in self._folder.glob(f"*{kind}"):
                    path.unlink()
            self._folder.rmdir()

    @contextmanager
    def _noted(self, path: Path) -> Iterator[None]:
        """Note what fails with a file; one that cannot be read is deleted, so that it holds up no other."""
        try:
            yield
        except FileNotFoundError:
            return  # its writer, or another sampler, made room
        except Exception as fault:
            self.faults[path.suffix[1:]] = f"{type(fault).__name__}: {fault}"[:300]
            if not isinstance(fault, OSError):
                path.unlink(missing_ok=True)

    def _make_object(self, path: Path) -> None:
        if not self._has_room(path.stat().st_size):
            self._drop(path)
        elif path.suffix == PLAIN:
            _compress(path)
        else:
            encode_step(path)
            self._note("training")

    def _take(self, paths: "list[Path]", final: bool, *, shared: bool) -> None:
        """Take one timeline, or those of several processes of one name as one object: workers come and go."""
        with self._noted(paths[0]):
            if not (final or _is_due(paths, shared=shared)):
                return
            by_origin: dict[int, list[tuple[Path, bytes]]] = {}
            for path in paths:
                with self._noted(path):
                    process = _process_of(path)
                    with path.open("rb") as file:
                        if withdraw(file.fileno()):
                            body = file.read()
                            by_origin.setdefault(_origin_us(body) if shared else 0, []).append((path, body))
            for taken in by_origin.values():
                together = together_in_order([body for _, body in taken]) if shared else taken[0][1]
                if self._put_timeline(process, together, [path for path, _ in taken]):
                    self._note("framework")

    def _put_timeline(self, process: str, body: bytes, paths: "list[Path]") -> bool:
        """Make an object of lines and delete their files; False where there is no room."""
        found = timeline_object(body)
        if found is not None:
            content, end_us = gzip.compress(found[0], LEVEL, mtime=0), found[1]
            if not self._has_room(len(content) - len(body)):
                for path in paths:
                    self._drop(path)
                return False
            # The name is the order of a process's objects.
            end_us = self._ends_us[process] = max(end_us, self._ends_us.get(process, 0) + 1)
            self._write(timeline_key(process, self._node, end_us), content)
        for path in paths:
            path.unlink()
        return True

    def _has_room(self, more: int) -> bool:
        return self._budget is None or self._budget.make_room(max(more, 0))

    def _drop(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.faults["spool"] = f"no room for {path.suffix[1:]} in the spool"
        if self._budget is not None:
            self._budget.dropped_objects += 1

    def _note(self, stream: str) -> None:
        if stream not in self.streams:
            self.streams.add(stream)
            with suppress(OSError):
                (self._folder / f"{stream}{STREAM}").touch()

    def _write(self, key: str, body: bytes) -> None:
        target = self._folder / object_name(key)
        draft = target.with_suffix(DRAFT)
        draft.write_bytes(body)
        draft.replace(target)


def _is_due(paths: "list[Path]", *, shared: bool) -> bool:
    """Whether timelines are a minute old or large together; one of a single process also when that has ended."""
    began_s = min(_number(path.name.split(".")[0]) for path in paths) / 1e9
    if time.time() - began_s >= ROTATE_S or sum(path.stat().st_size for path in paths) >= ROTATE_BYTES:
        return True
    return not shared and not runs(_number(paths[0].name.split(".")[2]))


def _compress(path: Path) -> None:
    target = path.with_suffix(OBJECT)
    draft = path.with_suffix(DRAFT)
    with path.open("rb") as source, gzip.open(draft, "wb", compresslevel=LEVEL) as out:
        shutil.copyfileobj(source, out, 1024 * 1024)
    draft.replace(target)
    path.unlink()


def together_in_order(bodies: "list[bytes]") -> bytes:
    """Return the whole lines of timelines of one origin: names first, then events as they ended."""
    names: dict[bytes, None] = dict.fromkeys(bodies[0].splitlines()[:1])
    events = []
    for body in bodies:
        for line in body[: body.rfind(b",\n") + 1].splitlines()[1:]:
            times = _TIMES.search(line)
            if times is None:
                names[line] = None
            else:
                events.append((int(times[1]) + int(times[2]), line))
    events.sort(key=lambda event: event[0])
    return b"\n".join([*names, *(line for _, line in events), b""])


def _process_of(path: Path) -> str:
    process = path.name.split(".")[1]
    if not _PROCESS.fullmatch(process):
        raise ValueError(f"{process!r} names no process")
    return process


def timeline_object(body: bytes) -> "Optional[tuple[bytes, int]]":
    """Return a timeline as an object, and the end of its last event in epoch microseconds; None without events.

    The first line names the time that all others are relative to. A last line that is not whole is left out.
    """
    whole = body[: body.rfind(b",\n") + 1]
    ends = [int(begin) + int(duration) for begin, duration in _TIMES.findall(whole)]
    if not ends:
        return None
    return b"[\n" + whole.rstrip(b",") + b"\n]", _origin_us(body) + max(ends)


def _origin_us(body: bytes) -> int:
    first = body[: body.find(b"\n")].rstrip(b",")
    return int(json.loads(first)["args"]["start_time_since_epoch_in_micros"])


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1
