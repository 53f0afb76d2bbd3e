"""Sends finished minutes from the spool, in a thread, and then what earlier samplers of the same user could not."""

import fcntl
import json
import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional, Union

from trainguard_collector.layout import system_key
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.places import Place, send_file
from trainguard_collector.spool import ABOUT, LOCK, Spool, finish_parts, pack_minutes, ready_minutes

# A spool that cannot be sent is deleted when nothing was written for so long.
KEPT_S = 7 * 86_400.0

MOST_AT_ONCE = 20

_OBJECTS = ".objects"


class Leftovers:
    """Sends the spools beside ``folder`` that no sampler holds."""

    def __init__(self, folder: Path, open_place: Callable[[str], Place]) -> None:
        self._folder, self._open_place = folder, open_place

    def send(self) -> int:
        """Send up to MOST_AT_ONCE files; return how many were. Raises what the place raises."""
        sent = 0
        for folder in self._folders():
            if sent >= MOST_AT_ONCE:
                break
            about = _released(folder)
            if about is None:
                _delete_if_old(folder)
                continue
            try:
                sent += self._send(folder, about, MOST_AT_ONCE - sent)
            except OSError:
                _delete_if_old(folder)
                raise
        return sent

    def _folders(self) -> "list[Path]":
        own = {self._folder.name, f"{self._folder.name}{_OBJECTS}"}
        found = [each for each in self._folder.parent.iterdir() if "." in each.name and each.name not in own]
        return sorted(each for each in found if each.is_dir())

    def _send(self, folder: Path, about: "dict[str, str]", most: int) -> int:
        sent = 0
        outgoing = Outgoing(folder.with_name(f"{folder.name}{_OBJECTS}"), about["job"], about["node"])
        is_written = outgoing.is_awaited(-1)
        if not is_written:
            outgoing.prepare(final=True)
        objects = [] if is_written else outgoing.ready()
        named = [(system_key(about["job"], about["node"], int(path.stem)), path) for path in ready_minutes(folder)]
        if named or objects:
            pack_minutes(folder)
            place = self._open_place(about["output"])
            for key, path in [*named, *objects][:most]:
                sent += send_file(place, key, path)
        if not (is_written or ready_minutes(folder) or outgoing.ready()):
            outgoing.close()
            _delete(folder)
        return sent


def _released(folder: Path) -> "Optional[dict[str, str]]":
    """Return where a spool belongs, with its minutes finished; None where a sampler holds it, or it does not say."""
    try:
        found = json.loads((folder / ABOUT).read_bytes())
        about = {name: found[name] for name in ("output", "job", "node")}
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finish_parts(folder)
    except OSError:
        return None
    finally:
        os.close(lock)
    return about


def _delete_if_old(folder: Path) -> None:
    """Delete what nobody can send: it was not touched for KEPT_S, and no process holds it."""
    with suppress(OSError):
        newest = max((each.stat().st_mtime for each in (folder, *folder.iterdir())), default=0.0)
        if time.time() - newest > KEPT_S:
            _delete(folder)


def _delete(folder: Path) -> None:
    with suppress(OSError):
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()


Note = Union[bytes, Callable[[Place], bytes]]
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_NOTE_TRIES = 3
_LOOK_EVERY_S = 600.0


class Sender:
    """Sends one object after another, the oldest first; waits longer after each failure, by a random part of that."""

    def __init__(
        self,
        spool: Spool,
        open_place: Callable[[], Place],
        job: str,
        node: str,
        outgoing: Optional[Outgoing] = None,
        orphan_spools: Optional[Leftovers] = None,
    ) -> None:
        self._spool, self._open_place, self._job, self._node = spool, open_place, job, node
        self._outgoing, self._orphan_spools = outgoing, orphan_spools
        self._looked_at = float("-inf")
        self.sent_orphan_spools = 0
        self._place: Optional[Place] = None
        self._wake = threading.Event()
        self._finish_by: Optional[float] = None
        self._notes: dict[str, Note] = {}
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self.sent_minutes = 0
        self.sent_objects = 0
        self.failures = 0
        self.faults: dict[str, str] = {}

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def note(self, key: str, body: Note) -> None:
        """Send a small object after the minutes, or what a function returns for the place; a later one replaces it."""
        self._notes[key] = body
        self._wake.set()

    def finish(self, within_s: float) -> Optional[Place]:
        """Send what is left, for so long at most; return the place when all of it was sent."""
        self._finish_by = time.monotonic() + within_s
        self._wake.set()
        self._thread.join(within_s + 1.0)
        done = (
            not self._thread.is_alive() and not self._spool.ready() and not (self._outgoing and self._outgoing.ready())
        )
        return self._place if done else None

    def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while True:
            self._wake.clear()
            is_last = self._finish_by is not None  # asked before: what is noted while it sends is sent the next time
            if self._send():
                wait_s = _FIRST_WAIT_S
                if is_last:
                    return
                self._wake.wait(0.0 if self._send_orphan_spools() else None)
                continue
            pause_s = random.uniform(0.5, 1.0) * wait_s  # noqa: S311 - spreads retries, keeps no secret
            wait_s = min(wait_s * 2.0, _LONGEST_WAIT_S)
            if self._finish_by is None:
                until = time.monotonic() + pause_s
                while self._finish_by is None and time.monotonic() < until:
                    time.sleep(min(0.5, max(until - time.monotonic(), 0.0)))
                continue
            if time.monotonic() + 0.2 >= self._finish_by:
                return
            time.sleep(min(pause_s, 1.0, max(self._finish_by - time.monotonic(), 0.0)))

    def _send(self) -> bool:
        try:
            pack_minutes(self._spool.folder)
            if self._place is None:
                self._place = self._open_place()
            for path in self._spool.ready():
                self.sent_minutes += send_file(self._place, system_key(self._job, self._node, int(path.stem)), path)
            if self._outgoing is not None:
                self._outgoing.prepare(final=self._finish_by is not None)
                for key, path in self._outgoing.ready():
                    self.sent_objects += send_file(self._place, key, path)
            for key, body in list(self._notes.items()):
                self._send_note(self._place, key, body)
        except Exception as fault:
            self.failures += 1
            self.faults["upload"] = f"{type(fault).__name__}: {fault}"[:300]
            return False
        return True

    def _send_orphan_spools(self) -> bool:
        """Send some of what other samplers have left, each ten minutes; whether there may be more of it."""
        if self._orphan_spools is None or time.monotonic() - self._looked_at < _LOOK_EVERY_S:
            return False
        sent = 0
        try:
            sent = self._orphan_spools.send()
        except Exception as fault:
            self.faults["orphan_spools"] = f"{type(fault).__name__}: {fault}"[:300]
        self.sent_orphan_spools += sent
        if not sent:
            self._looked_at = time.monotonic()
        return sent > 0

    def _send_note(self, place: Place, key: str, body: Note) -> None:
        """Send a note, or keep it: a role that may not write one still writes the profile."""
        for number in range(_NOTE_TRIES):
            time.sleep(random.uniform(0.0, 0.5) * number)  # noqa: S311 - spreads retries, keeps no secret
            try:
                place.put(key, body if isinstance(body, bytes) else body(place))
            except Exception as fault:
                self.failures += 1
                self.faults["note"] = f"{type(fault).__name__}: {fault}"[:300]
            else:
                if self._notes.get(key) is body:
                    del self._notes[key]
                return
