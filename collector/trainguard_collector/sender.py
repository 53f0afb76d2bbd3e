"""Sends finished minutes from the spool, in a thread of the sampler's process: what is slow never delays a sample."""

import random
import threading
import time
from contextlib import suppress
from typing import Callable, Optional, Union

from trainguard_collector.layout import system_key
from trainguard_collector.leftovers import Leftovers
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.places import Place
from trainguard_collector.spool import Spool

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
        leftovers: Optional[Leftovers] = None,
    ) -> None:
        self._spool, self._open_place, self._job, self._node = spool, open_place, job, node
        self._outgoing, self._leftovers = outgoing, leftovers
        self._looked_at = float("-inf")
        self.sent_leftovers = 0
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
        """Begin to send."""
        self._thread.start()

    def wake(self) -> None:
        """Say that a minute is finished."""
        self._wake.set()

    def note(self, key: str, body: Note) -> None:
        """Send a small object after the minutes; a later one of the same key replaces it.

        A function is given the place when the object is sent, and returns its bytes.
        """
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
                self._wake.wait(0.0 if self._send_leftovers() else None)
                continue
            pause_s = random.uniform(0.5, 1.0) * wait_s  # noqa: S311 - spreads retries, keeps no secret
            wait_s = min(wait_s * 2.0, _LONGEST_WAIT_S)
            if self._finish_by is None:
                _wait_unless(lambda: self._finish_by is not None, pause_s)
                continue
            if time.monotonic() + 0.2 >= self._finish_by:
                return
            time.sleep(min(pause_s, 1.0, max(self._finish_by - time.monotonic(), 0.0)))

    def _send(self) -> bool:
        """Send all that is there; whether it went well."""
        try:
            if self._place is None:
                self._place = self._open_place()
            for path in self._spool.ready():
                try:
                    minute = path.open("rb")
                except FileNotFoundError:
                    continue
                with minute:
                    self._place.put(system_key(self._job, self._node, int(path.stem)), minute)
                path.unlink(missing_ok=True)
                self.sent_minutes += 1
            self._send_objects(self._place)
            for key, body in list(self._notes.items()):
                self._send_note(self._place, key, body)
        except Exception as fault:
            self.failures += 1
            self.faults["upload"] = f"{type(fault).__name__}: {fault}"[:300]
            return False
        return True

    def _send_leftovers(self) -> bool:
        """Send some of what other samplers have left, each ten minutes; whether there may be more of it."""
        if self._leftovers is None or time.monotonic() - self._looked_at < _LOOK_EVERY_S:
            return False
        sent = 0
        try:
            sent = self._leftovers.send()
        except Exception as fault:
            self.faults["leftovers"] = f"{type(fault).__name__}: {fault}"[:300]
        self.sent_leftovers += sent
        if not sent:
            self._looked_at = time.monotonic()
        return sent > 0

    def _send_objects(self, place: Place) -> None:
        """Send what training processes handed over, in its order."""
        if self._outgoing is None:
            return
        self._outgoing.prepare(final=self._finish_by is not None)
        for key, path in self._outgoing.ready():
            with suppress(FileNotFoundError):  # its writer made room
                place.put_file(key, path)
                path.unlink()
                self.sent_objects += 1

    def _send_note(self, place: Place, key: str, body: Note) -> None:
        """Send a note, or keep it for the next time: a role that may not write one still writes the profile."""
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


def _wait_unless(is_over: Callable[[], bool], for_s: float) -> None:
    until = time.monotonic() + for_s
    while not is_over() and time.monotonic() < until:
        time.sleep(min(0.5, max(until - time.monotonic(), 0.0)))
