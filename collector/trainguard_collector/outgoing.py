"""The sampler's side of what training processes hand over: files to objects, each under its key."""

import gzip
import json
import os
import re
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Optional
from urllib.parse import unquote

from trainguard_collector.layout import timeline_key
from trainguard_collector.objects import (
    DRAFT,
    SHARED,
    STREAM,
    TIMELINE,
    WRITER,
    object_name,
    withdraw,
)
from trainguard_collector.spool import OBJECT, PLAIN, TENSORS, Budget
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
        return any(pid != but and _runs(pid) for pid in pids)

    def prepare(self, *, final: bool) -> None:
        """Take timelines that are due, all of them when ``final``, and encode tensors."""
        if self._budget is not None:
            self._budget.forget()
        with self._lock:
            shared: dict[str, list[Path]] = {}
            for kind in (TIMELINE, TENSORS, PLAIN):
                for path in sorted(self._folder.glob(f"*{kind}")):
                    process = path.name.split(".")[1]
                    if kind == TIMELINE and process.endswith(SHARED):
                        shared.setdefault(process, []).append(path)
                    else:
                        self._guarded(path, final)
            for paths in shared.values():
                self._take_together(paths, final)
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
            for kind in (WRITER, STREAM):
                for path in self._folder.glob(f"*{kind}"):
                    path.unlink()
            self._folder.rmdir()

    def _guarded(self, path: Path, final: bool) -> None:
        """Make an object of a file; one that cannot be read is deleted, so that it holds up no other."""
        kind = path.suffix
        try:
            if kind == TIMELINE:
                self._take(path, final)
            elif not self._has_room(path.stat().st_size):
                self._drop(path)
            elif kind == PLAIN:
                _compress(path)
            else:
                encode_step(path)
                self._note("training")
        except FileNotFoundError:
            return  # the writer made room
        except OSError as fault:
            self.faults[kind[1:]] = f"{type(fault).__name__}: {fault}"[:300]
        except Exception as fault:
            self.faults[kind[1:]] = f"{type(fault).__name__}: {fault}"[:300]
            path.unlink(missing_ok=True)

    def _take_together(self, paths: "list[Path]", final: bool) -> None:
        """Take the timelines of several processes of one name as one object, each minute: workers come and go."""
        try:
            sizes = [path.stat().st_size for path in paths]
            ages_s = [time.time() - _number(path.name.split(".")[0]) / 1e9 for path in paths]
            if not final and max(ages_s) < ROTATE_S and sum(sizes) < ROTATE_BYTES:
                return
            by_origin: dict[int, list[tuple[Path, bytes]]] = {}
            for path in paths:
                self._withdraw(path, by_origin)
            for taken in by_origin.values():
                process, together = _process_of(taken[0][0]), together_in_order([body for _, body in taken])
                if self._put_timeline(process, together, [path for path, _ in taken]):
                    self._note("framework")
        except FileNotFoundError:
            return  # another sampler made room
        except OSError as fault:
            self.faults[TIMELINE[1:]] = f"{type(fault).__name__}: {fault}"[:300]

    def _withdraw(self, path: Path, by_origin: "dict[int, list[tuple[Path, bytes]]]") -> None:
        """Take one of several timelines; one that cannot be read is deleted, so that it holds up no other."""
        try:
            _process_of(path)
            with path.open("rb") as file:
                if withdraw(file.fileno()):
                    body = file.read()
                    by_origin.setdefault(_origin_us(body), []).append((path, body))
        except OSError:
            raise
        except Exception as fault:
            self.faults[TIMELINE[1:]] = f"{type(fault).__name__}: {fault}"[:300]
            path.unlink(missing_ok=True)

    def _put_timeline(self, process: str, body: bytes, paths: "list[Path]") -> bool:
        """Make an object of lines and delete their files; False where there is no room."""
        found = timeline_object(body)
        if found is not None:
            content, end_us = found
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

    def _take(self, path: Path, final: bool) -> None:
        began, _, pid = path.name[: -len(TIMELINE)].split(".")
        process = _process_of(path)
        due = final or time.time() - int(began) / 1e9 >= ROTATE_S or not _runs(_number(pid))
        with path.open("rb") as file:
            if not due and os.fstat(file.fileno()).st_size < ROTATE_BYTES:
                return
            if not withdraw(file.fileno()):
                return
            if self._put_timeline(process, file.read(), [path]):
                self._note("framework")

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


def _compress(path: Path) -> None:
    target = path.with_suffix(OBJECT)
    draft = path.with_suffix(DRAFT)
    with path.open("rb") as source, gzip.open(draft, "wb", compresslevel=5) as out:
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


def _runs(pid: int) -> bool:
    """Return False for a process that has ended and was not waited for."""
    if pid <= 0:
        return False
    with suppress(OSError):
        status = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return status.rpartition(")")[2].split()[0] not in ("Z", "X")
    return False
