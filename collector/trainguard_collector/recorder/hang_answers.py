"""What a training process does for the sampler when steps stop; it costs nothing while they do not.

``faulthandler`` writes its stacks at a real-time signal, without the interpreter. A thread sleeps in the read of a pipe
until the sampler asks for a dump of the flight recorder.
"""

import faulthandler
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Optional

from trainguard_collector.hangs.dumps import MOST_BYTES
from trainguard_collector.hangs.stacks import handled_signals
from trainguard_collector.layout import hang_key
from trainguard_collector.objects import ASK, DUMP, STACKS
from trainguard_collector.recorder.harmless import module

if TYPE_CHECKING:
    from trainguard_collector.recorder.steps import StepRecorder

_MOST_NUMBERS = 12


class _Registered:
    """The signal of this process: its handler stays for good, as the signal would end a process without one."""

    number: Optional[int] = None
    file: Optional[IO[str]] = None


def register_stacks(folder: Path) -> Optional[Path]:
    """Have ``faulthandler`` write stacks into a file that its name gives the signal of; None without a free signal."""
    number = _Registered.number or free_signal()
    if number is None:
        return None
    path = folder / f"{os.getpid()}.{number}{STACKS}"
    file = path.open("w", encoding="utf-8")
    faulthandler.register(number, file=file, all_threads=True, chain=False)
    _Registered.number, _Registered.file = number, file
    return path


def free_signal() -> Optional[int]:
    """Return a real-time signal that nothing in this process handles, ignores or blocks."""
    taken = handled_signals(os.getpid(), "SigIgn", "SigBlk")
    numbers = range(signal.SIGRTMAX - 2, signal.SIGRTMIN, -1)[:_MOST_NUMBERS]
    return next((each for each in numbers if each not in taken and signal.getsignal(each) == signal.SIG_DFL), None)


class HangAnswers:
    """Registers the stacks of a process, and after its first step, where it has peers, listens for requests."""

    def __init__(self, recorder: "StepRecorder") -> None:
        self._recorder = recorder
        self._stacks = register_stacks(recorder.folder)
        self._pipe = recorder.folder / f"{os.getpid()}{ASK}"
        self._is_closed = False
        recorder.at_end.append(self._after_first_step)
        recorder.at_close.append(self._close)

    def _after_first_step(self, *_: Any) -> None:
        self._recorder.at_end.remove(self._after_first_step)
        if _is_distributed():
            with suppress(FileNotFoundError):
                self._pipe.unlink()
            os.mkfifo(self._pipe, 0o600)
            # Open for both, so that a read waits while nobody writes.
            file = os.open(self._pipe, os.O_RDWR | os.O_CLOEXEC)
            threading.Thread(target=self._listen, args=(file,), name="trainguard-hangs", daemon=True).start()

    def _listen(self, file: int) -> None:
        while not self._is_closed:
            words = os.read(file, 256).split()
            if words and words[-1].isdigit() and not self._is_closed:
                self._answer(int(words[-1]))
        os.close(file)

    def _answer(self, at: int) -> None:
        recorder = self._recorder
        try:
            name, body = flight_recorder_dump(recorder.rank.rank)
            if len(body) > MOST_BYTES:
                raise ValueError(f"a dump has {len(body):,} bytes, expected at most {MOST_BYTES:,}")
            draft = recorder.handover.draft("dump")
            draft.write_bytes(body)
            key = hang_key(recorder.settings.identity.node, at, f"{name}.gz")
            recorder.handover.put_to_compress(key, draft)
        except Exception as fault:
            recorder.faults.add("hang dump", fault)

    def _close(self) -> None:
        self._is_closed = True
        for path in (self._stacks, self._pipe):
            if path is not None:
                path.unlink(missing_ok=True)


def _is_distributed() -> bool:
    distributed = getattr(module("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return False
    return bool(distributed.get_world_size() > 1)


def flight_recorder_dump(rank: int) -> "tuple[str, bytes]":
    """Return the name and the content of this process's dump: NCCL's as torch writes it, else gloo's as JSON.

    Raises RuntimeError where this torch has none, and what torch raises.
    """
    torch: Any = module("torch")
    c10d = torch._C._distributed_c10d
    if "nccl" in str(torch.distributed.get_backend_config()) and hasattr(c10d, "_dump_nccl_trace"):
        return f"{DUMP}{rank}", c10d._dump_nccl_trace()
    if not hasattr(c10d, "_dump_fr_trace_json"):
        raise RuntimeError(f"torch {torch.__version__} has no dump of gloo, expected 2.7 or newer")
    found = c10d._dump_fr_trace_json()
    return f"{DUMP}{rank}.json", found.encode() if isinstance(found, str) else found
