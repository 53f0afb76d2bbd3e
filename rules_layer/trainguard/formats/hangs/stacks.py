"""Python stacks of a process that stands still, as py-spy and ``faulthandler`` write them.

Formats: ``py-spy dump`` as text and with ``--json``; ``faulthandler.dump_traceback`` of Python 3.11 to 3.14.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from trainguard.core.errors import UnusableError

# Threads of one file.
MOST_THREADS = 10_000

# Frames of a thread that are kept, innermost first.
MOST_FRAMES = 500

# Characters of a line; longer ones are no frames.
LONGEST_LINE = 4_000

_MAIN = "MainThread"
_SPY_THREAD = re.compile(r'^Thread (?:0x[0-9a-fA-F]+|\d+) \([^)]*\)(?:: "(?P<name>[^"]*)")?')
_SPY_FRAME = re.compile(r"^    (?P<name>\S.*?) \((?P<file>[^()]+):(?P<line>\d+)\)$")
_FAULT_THREAD = re.compile(
    r"^(?:Current thread|Thread) 0x[0-9a-fA-F]+(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):"
)
_FAULT_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$')


class StackError(UnusableError):
    sentence = "stacks {place!r} cannot be read: {reason}"


@dataclass(frozen=True, slots=True)
class StackFrame:
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """A thread and its frames, innermost first."""

    name: str
    frames: tuple[StackFrame, ...]


def _lines(text: str) -> list[str]:
    """Divide a text at line feeds alone: a name of the job may hold other characters that end a line."""
    return text.replace("\r\n", "\n").split("\n")


def is_stacks(begin: bytes) -> bool:
    """Say whether a file may hold stacks, by its first bytes."""
    text = begin.decode("utf-8", "replace")
    if text.lstrip().startswith("["):
        return '"frames"' in text or '"thread_id"' in text
    return any(_SPY_THREAD.match(line) or _FAULT_THREAD.match(line) for line in _lines(text))


def main_thread(data: bytes, name: str) -> ThreadStack:
    """Return the main thread of the process, where it is named; else the last, as faulthandler orders them.

    Raises StackError where the file has no frame of a thread.
    """
    threads = [each for each in _threads(data, name) if each.frames]
    if not threads:
        raise StackError(name, "it holds no frame, expected the text or JSON of py-spy dump, or that of faulthandler")
    return next((each for each in threads if each.name == _MAIN), threads[-1])


def _threads(data: bytes, name: str) -> Sequence[ThreadStack]:
    text = data.decode("utf-8", "replace")
    if text.lstrip().startswith("["):
        return list(_of_json(text, name))
    return list(_of_text(text))


def _of_json(text: str, name: str) -> Iterator[ThreadStack]:
    try:
        held = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise StackError(name, str(fault)) from fault
    for thread in held[:MOST_THREADS] if isinstance(held, list) else ():
        frames = thread.get("frames") if isinstance(thread, dict) else None
        if isinstance(frames, list):
            read = (_json_frame(each) for each in frames[:MOST_FRAMES])
            yield ThreadStack(str(thread.get("thread_name"))[:200], tuple(each for each in read if each is not None))


def _json_frame(frame: Any) -> StackFrame | None:
    if not isinstance(frame, dict) or not isinstance(frame.get("line"), int):
        return None
    file = frame.get("filename") or frame.get("short_filename")
    return StackFrame(str(file)[:400], frame["line"], str(frame.get("name"))[:200])


def _of_text(text: str) -> Iterator[ThreadStack]:
    name: str | None = None
    frames: list[StackFrame] = []
    threads = 0
    for line in _lines(text):
        begins = _SPY_THREAD.match(line) or _FAULT_THREAD.match(line) if len(line) < LONGEST_LINE else None
        if begins is not None:
            if name is not None:
                yield ThreadStack(name, tuple(frames))
            threads += 1
            if threads > MOST_THREADS:
                return
            name, frames = begins["name"] or "", []
        elif name is not None and len(line) < LONGEST_LINE and len(frames) < MOST_FRAMES:
            found = _SPY_FRAME.match(line) or _FAULT_FRAME.match(line)
            if found is not None:
                frames.append(StackFrame(found["file"][:400], int(found["line"][:9]), found["name"][:200]))
    if name is not None:
        yield ThreadStack(name, tuple(frames))
