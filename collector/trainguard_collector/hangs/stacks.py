"""The Python stacks of a process that stands still, by py-spy where it is installed, else by ``faulthandler``."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from trainguard_collector.objects import STACKS, Handover

PY_SPY_S, FAULTHANDLER_S = 10.0, 3.0
MOST_BYTES = 4 * 1024 * 1024
MOST_THREADS, MOST_FRAMES = 1_000, 500
_LONGEST_TEXT = 400
_FIELDS = ("name", "filename", "line")
_BETWEEN_S = 0.05
_QUIET_LOOKS = 4


class StackTaker:
    """Takes the stacks of one process after another; ``faults`` says why py-spy did not."""

    def __init__(self, handover: Handover) -> None:
        self._handover = handover
        self.faults: dict[str, str] = {}

    def stack(self, pid: int, *, as_text: bool = False) -> "Optional[tuple[str, bytes]]":
        """Return a process's stacks, behind the end of the file's name that says who wrote them.

        ``as_text`` is by faulthandler alone; None is of a process that is gone, or where neither way works.
        """
        program = None if as_text else _py_spy()
        body = None if program is None else self._by_py_spy(program, pid)
        if body is not None:
            return ".json", body
        body = by_faulthandler(self._handover.folder, pid)
        if body is not None:
            return ".txt", body
        if program is None and process_state(pid):
            asked = "asked" if as_text else "installed"
            self.faults["stacks"] = f"{pid} does not answer faulthandler, and py-spy is not {asked}"
        return None

    def _by_py_spy(self, program: str, pid: int) -> Optional[bytes]:
        draft = self._handover.draft("stacks")
        try:
            with draft.open("wb") as file:
                # A process that is stopped cannot be paused.
                pausing = ["--nonblocking"] if process_state(pid) in ("T", "t") else []
                done = subprocess.run(
                    [program, "dump", "--json", "--pid", str(pid), *pausing],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.PIPE,
                    timeout=PY_SPY_S,
                    check=False,
                )
            if done.returncode == 0 and draft.stat().st_size <= MOST_BYTES:
                return without_values(draft.read_bytes())
            self.faults["stacks"] = f"py-spy of {pid}: {_reason(done.stderr)}"
        except (OSError, ValueError, TypeError, LookupError, AttributeError, subprocess.SubprocessError) as fault:
            self.faults["stacks"] = f"py-spy of {pid}: {type(fault).__name__}: {fault}"[:300]
        finally:
            draft.unlink(missing_ok=True)
        return None


def without_values(body: bytes) -> bytes:
    """Return what py-spy wrote with names, files and lines alone: no values of variables, no command line."""
    threads = []
    for thread in json.loads(body)[:MOST_THREADS]:
        frames = [_short({name: frame.get(name) for name in _FIELDS}) for frame in thread["frames"][:MOST_FRAMES]]
        named = {name: thread.get(name) for name in ("thread_id", "thread_name", "active", "owns_gil")}
        threads.append({**_short(named), "frames": frames})
    return json.dumps(threads).encode()


def by_faulthandler(folder: Path, pid: int) -> Optional[bytes]:
    """Return what ``faulthandler`` writes of a process that has registered it; None without, and without an answer.

    The signal goes to a process alone that holds the file named after it and handles the signal.
    """
    for path in folder.glob(f"{pid}.*{STACKS}"):
        number = path.name.split(".")[1]
        with suppress(OSError, ValueError):
            before = path.stat().st_size
            if _holds(pid, path) and int(number) in handled_signals(pid):
                os.kill(pid, int(number))
                return _written(path, before)
    return None


def handled_signals(pid: int, *fields: str) -> "frozenset[int]":
    """Return the numbers of the signals that a process has handlers for; ``fields`` adds others of its status."""
    masks = 0
    for line in Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name in ("SigCgt", *fields):
            masks |= int(value, 16)
    return frozenset(number + 1 for number in range(64) if masks >> number & 1)


def process_state(pid: int) -> str:
    """Return the letter of a process's state; empty where there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    return ""


def runs(pid: int) -> bool:
    """Return False for a process that has ended and was not waited for."""
    return pid > 0 and process_state(pid) not in ("", "Z", "X")


def _py_spy() -> Optional[str]:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def _reason(error: bytes) -> str:
    """Return the innermost cause that py-spy tells."""
    lines = error.decode("utf-8", "replace").split("Stack backtrace:")[0].strip().splitlines()
    return lines[-1].strip()[:200] if lines else "no output"


def _short(fields: "dict[str, Any]") -> "dict[str, Any]":
    return {name: value[:_LONGEST_TEXT] if isinstance(value, str) else value for name, value in fields.items()}


def _holds(pid: int, path: Path) -> bool:
    """Whether a process has a file open."""
    wanted = path.stat()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if os.path.samestat(each.stat(), wanted):
                return True
    return False


def _written(path: Path, before: int) -> Optional[bytes]:
    """Return what comes behind ``before``, once it grows no more."""
    until, size, same = time.monotonic() + FAULTHANDLER_S, before, 0
    while same < _QUIET_LOOKS and time.monotonic() < until:
        time.sleep(_BETWEEN_S)
        now = path.stat().st_size
        same = same + 1 if now == size > before else 0
        size = now
    with path.open("rb") as file:
        file.seek(before)
        return file.read(MOST_BYTES) or None
