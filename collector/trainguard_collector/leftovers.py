"""What samplers before this one could not send: other jobs' spools of the same user, sent to where they belong."""

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from trainguard_collector.layout import system_key
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.places import Place
from trainguard_collector.spool import ABOUT, LOCK, finish_parts, ready_minutes

KEPT_S = 7 * 86_400.0
"""A spool that does not say where it belongs, or cannot be sent, is deleted when nothing was written for so long."""

MOST_AT_ONCE = 20
"""Files that are sent before the sampler's own turn comes again."""

_OBJECTS = ".objects"


class _About(NamedTuple):
    output: str
    job: str
    node: str


class Leftovers:
    """Sends the spools beside ``folder`` that no sampler holds.

    Parameters
    ----------
    folder : Path
        The spool of this sampler.
    open_place : callable
        Returns the place of an output.
    """

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

    def _send(self, folder: Path, about: _About, most: int) -> int:
        sent = 0
        minutes = ready_minutes(folder)
        outgoing = Outgoing(folder.with_name(f"{folder.name}{_OBJECTS}"), about.job, about.node)
        is_written = outgoing.is_awaited(-1)
        if not is_written:
            outgoing.prepare(final=True)
        objects = [] if is_written else outgoing.ready()
        if minutes or objects:
            place = self._open_place(about.output)
            for path in minutes[:most]:
                with suppress(FileNotFoundError):
                    place.put_file(system_key(about.job, about.node, int(path.stem)), path)
                    path.unlink()
                    sent += 1
            for key, path in objects[: most - sent]:
                with suppress(FileNotFoundError):
                    place.put_file(key, path)
                    path.unlink()
                    sent += 1
        if not (is_written or ready_minutes(folder) or outgoing.ready()):
            outgoing.close()
            _delete(folder)
        return sent


def _released(folder: Path) -> Optional[_About]:
    """Return where a spool belongs, with its minutes finished; None where a sampler holds it, or it does not say."""
    try:
        about = _About(**json.loads((folder / ABOUT).read_bytes()))
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except (OSError, ValueError, TypeError):
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
