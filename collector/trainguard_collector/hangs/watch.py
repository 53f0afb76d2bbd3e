"""The sampler's watch over standstills: it takes what a node's training processes leave, once a standstill."""

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional

import psutil

from trainguard_collector.hangs.dumps import Dumps
from trainguard_collector.hangs.stacks import StackTaker, runs
from trainguard_collector.hangs.standstill import LEAST_STEPS, Standstill
from trainguard_collector.layout import hang_key
from trainguard_collector.names import RANKS
from trainguard_collector.objects import ASK, PAUSE, SHARED, TIMELINE, WRITER, Handover

LOOK_S = 5.0
# No stack is begun later.
STACKS_S = 60.0

# Dumps of a job without steps belong to one standstill for so long.
TOGETHER_S = 600.0

MOST_PROCESSES = 128
_FINISH_S = 5.0
_TAIL = 16_384
_STEP = re.compile(rb'"name":"Step:ModeKeys\.([A-Z]+)"[^\n]*?"step_num":"(\d+)"')
_LOCAL_RANK = "LOCAL_RANK"


class Timelines:
    """What the timelines of a folder say about progress: their sizes, the processes' ranks and first steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sizes: dict[str, int] = {}
        self.ranks: dict[int, int] = {}
        self._steps: dict[int, set[bytes]] = {}

    def read(self) -> None:
        before, self.sizes = self.sizes, {}
        for path in self._folder.glob(f"*{TIMELINE}"):
            parts = path.name.split(".")
            if len(parts) != 4 or parts[1].endswith(SHARED) or not parts[2].isdecimal():
                continue
            with suppress(OSError):
                self.sizes[path.name] = size = path.stat().st_size
                pid = int(parts[2])
                if parts[1].startswith("rank") and parts[1][4:].isdecimal():
                    self.ranks[pid] = int(parts[1][4:])
                if size > before.get(path.name, 0) and len(self._steps.setdefault(pid, set())) < LEAST_STEPS:
                    self._count(path, size, self._steps[pid])

    def has_begun(self, pids: "list[int]") -> bool:
        return any(len(self._steps.get(pid, ())) >= LEAST_STEPS for pid in pids)

    def _count(self, path: Path, size: int, steps: "set[bytes]") -> None:
        with path.open("rb") as file:
            file.seek(max(size - _TAIL, 0))
            steps.update(b".".join(found) for found in _STEP.findall(file.read(_TAIL)))


class HangWatch:
    """Looks each LOOK_S; ``wake`` is called when there is something to be sent. ``faults`` has the newest of a kind."""

    def __init__(
        self, handover: Handover, node: str, wake: "Callable[[], None]", observed: Optional[int] = None
    ) -> None:
        """``observed`` is the parent, where it may be a training process itself."""
        self._handover, self._folder = handover, handover.folder
        self._node, self._wake, self._observed = node, wake, observed
        self._timelines = Timelines(self._folder)
        self._standstill = Standstill()
        self._dumps = Dumps(self._folder, handover)
        self._stacks = StackTaker(handover)
        self._next = float("-inf")
        self._at: Optional[int] = None
        self._dumped_at = float("-inf")
        self._thread: Optional[threading.Thread] = None
        self._own: dict[str, str] = {}

    @property
    def faults(self) -> "dict[str, str]":
        return {**self._dumps.faults, **self._stacks.faults, **self._own}

    def look(self, at: float, now: float) -> None:
        """Look, if it is time: ``at`` in monotonic, ``now`` in epoch seconds. Raises nothing."""
        if at < self._next:
            return
        self._next = at + LOOK_S
        try:
            self._look(at, now)
        except Exception as fault:
            self._own["hangs"] = f"{type(fault).__name__}: {fault}"[:300]

    def finish(self, now: float) -> None:
        """Take the last dumps, and let stacks that are being taken be finished."""
        with suppress(Exception):
            if self._dumps.take(self._key_of(now), final=True):
                self._wake()
        if self._thread is not None:
            self._thread.join(_FINISH_S)

    def _look(self, at: float, now: float) -> None:
        self._timelines.read()
        pids = self._marked(WRITER)
        if not self._standstill.is_open and at - self._dumped_at >= TOGETHER_S:
            self._at = None
        was_open = self._standstill.is_open
        if self._standstill.look(
            at,
            self._timelines.sizes,
            has_begun=self._timelines.has_begun(pids),
            is_excused=bool(self._marked(PAUSE)),
        ):
            self._begin(now, pids, asks=True)
        elif was_open and not self._standstill.is_open:
            self._at = None
        is_first = self._at is None
        if self._dumps.take(self._key_of(now), final=False):
            self._dumped_at = at
            self._wake()
            if is_first:
                self._begin(now, pids, asks=False)

    def _key_of(self, now: float) -> "Callable[[str], str]":
        at = int(now) if self._at is None else self._at
        return lambda name: hang_key(self._node, at, name)

    def _begin(self, now: float, pids: "list[int]", *, asks: bool) -> None:
        """Ask for dumps, and take the stacks, unless those of an earlier standstill are still being taken."""
        self._at = int(now)
        for pid in pids if asks else ():
            ask(self._folder / f"{pid}{ASK}", self._at)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._take, args=(self._at, pids), name="stacks", daemon=True)
            self._thread.start()

    def _take(self, at: int, pids: "list[int]") -> None:
        try:
            until = time.monotonic() + STACKS_S
            for pid, rank in training_processes(self._observed, pids, self._timelines.ranks)[:MOST_PROCESSES]:
                if time.monotonic() >= until:
                    break
                found = self._stacks.stack(pid, as_text=rank is None)
                if found is not None:
                    self._handover.put(hang_key(self._node, at, stem_of(pid, rank) + found[0]), found[1])
        except Exception as fault:
            self._own["stacks"] = f"{type(fault).__name__}: {fault}"[:300]
        self._wake()

    def _marked(self, kind: str) -> "list[int]":
        """Return the processes that have a mark of the kind and run."""
        stems = (path.stem for path in self._folder.glob(f"*{kind}"))
        return sorted(int(stem) for stem in stems if stem.isdecimal() and runs(int(stem)))


def ask(pipe: Path, at: int) -> None:
    """Ask a training process for a dump of its flight recorder, if it listens."""
    with suppress(OSError):
        file = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.write(file, b"%d\n" % at)
        finally:
            os.close(file)


def stem_of(pid: int, rank: Optional[int]) -> str:
    return f"stack_process_{pid}" if rank is None else f"stack_rank_{rank}"


def training_processes(
    observed: Optional[int], pids: "list[int]", ranks: "dict[int, int]"
) -> "list[tuple[int, Optional[int]]]":
    """Return ids and ranks: of processes that record, and at and below ``observed`` of the first of each rank."""
    found = {pid: ranks.get(pid, _rank(_environment(pid))) for pid in pids}
    known = set(found.values())
    for pid, environment in _ranked(observed):
        rank = _rank(environment)
        if pid not in found and rank not in known:
            found[pid] = rank
            known.add(rank)
    return sorted(found.items(), key=lambda each: (each[1] is None, each[1], each[0]))


def _ranked(observed: Optional[int]) -> "Iterator[tuple[int, dict[str, str]]]":
    """Yield processes of Python that have a rank, and their environment, parents first; no launcher of ranks."""
    if psutil.PROCFS_PATH != "/proc":
        return  # another machine's view: its process ids are not ours
    with suppress(psutil.Error):
        first = psutil.Process(os.getppid())
        below = {each.pid: each for each in first.children(recursive=True) if each.pid != os.getpid()}
        if observed is not None:
            below = {observed: psutil.Process(observed), **below}
        environments = {pid: _environment(pid) for pid, each in below.items() if _is_python(each)}
        launchers = {_parent(below[pid]) for pid, each in environments.items() if _LOCAL_RANK in each} - {
            pid for pid, each in environments.items() if _LOCAL_RANK in each
        }
        for pid, environment in environments.items():
            if pid not in launchers and _rank(environment) is not None:
                yield pid, environment


def _environment(pid: int) -> "dict[str, str]":
    """Return the variables of ranks that a process was started with."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
        pairs = (word.partition("=") for word in words)
        return {name: value for name, _, value in pairs if name in RANKS or name == _LOCAL_RANK}
    return {}


def _rank(environment: "Mapping[str, str]") -> Optional[int]:
    values = (environment.get(name, "") for name in RANKS)
    return next((int(value) for value in values if value.isdecimal() and len(value) < 8), None)


def _is_python(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "python" in str(process.name())
    return False


def _parent(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.ppid())
    return -1
