"""Steps and phases of one training process. What the script raises passes through."""

import atexit
import json
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Optional

from trainguard_collector.layout import recorder_key
from trainguard_collector.objects import Handover, TimelineFile, objects_folder
from trainguard_collector.recorder.gpu_times import GpuTimes, Mark, gpu_times
from trainguard_collector.recorder.harmless import Faults, harmless
from trainguard_collector.recorder.process import Rank, find_rank, recording_settings
from trainguard_collector.recorder.timeline import CHECKPOINT, EVALUATION, MODES, STEP, EventLog, label_of
from trainguard_collector.settings import Settings

if TYPE_CHECKING:
    from trainguard_collector.recorder.profiles import DataloaderProfilingConfig

FORMAT_VERSION = 1
GPU_POLL_NS = 50_000_000
_STEP_LABELS = {mode: f"{STEP}.{mode}" for mode in MODES}
_EVALUATIONS = frozenset({EVALUATION, "validation", "eval"})
_PAUSES = _EVALUATIONS | {CHECKPOINT}
_clock = time.monotonic_ns

# Nanoseconds of the monotonic clock, and an event of the GPU that was asked for then.
Moment = tuple[int, Optional[Mark]]


class StepNumbers:
    """Where the training is: ``step`` counts the steps of all modes, ``mode_step`` those of the mode."""

    __slots__ = ("by_mode", "mode", "mode_step", "step")

    def __init__(self) -> None:
        self.step, self.mode, self.mode_step = -1, "TRAIN", -1
        self.by_mode = dict.fromkeys(MODES, -1)

    def advance(self, mode: str) -> None:
        self.step += 1
        self.mode = mode
        self.mode_step = self.by_mode[mode] = self.by_mode[mode] + 1


class StepContext:
    """The context of steps; one of a recorder is enough, as steps do not nest."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: "StepRecorder") -> None:
        self._recorder = recorder

    def __enter__(self) -> "StepRecorder":
        self._recorder.begin_step(self._recorder.next_mode)
        return self._recorder

    def __exit__(self, *_: object) -> None:
        self._recorder.end_step()


class PhaseContext:
    __slots__ = ("_recorder", "began", "mode_before", "name")

    def __init__(self, recorder: "StepRecorder", name: str) -> None:
        self._recorder, self.name = recorder, str(name)
        self.began: Optional[Moment] = None
        self.mode_before: Optional[str] = None

    def __enter__(self) -> None:
        recorder = self._recorder
        if not recorder.is_on:
            return
        try:
            if self.name in _EVALUATIONS:
                self.mode_before, recorder.mode = recorder.mode, "EVAL"
            recorder.open_phases.append(self)
            self.began = _clock(), None  # where the GPU takes no mark
            self.began = recorder.moment()
            if self.name in _PAUSES:
                recorder.handover.pause(is_open=True)
        except Exception as fault:
            recorder.faults.add("phase", fault)

    def __exit__(self, *_: object) -> None:
        recorder, began = self._recorder, self.began
        if began is None or not recorder.is_on:
            return
        try:
            ended_ns = recorder.add_phase(self.name, began)
            if self.mode_before is not None:
                recorder.mode = self.mode_before
            if recorder.open_phases[-1] is self:
                recorder.open_phases.pop()
            else:
                recorder.open_phases.remove(self)
            recorder.log.flush_if_due(ended_ns)
            if self.name in _PAUSES:
                recorder.handover.pause(is_open=any(each.name in _PAUSES for each in recorder.open_phases))
        except Exception as fault:
            recorder.faults.add("phase", fault)


class StepRecorder:
    """Records the steps and phases of a training process; without an output it does nothing.

    Parts that record more take part by ``at_begin``, ``at_end`` and ``at_close``.
    """

    def __init__(
        self, output: Optional[str], *, job: Optional[str], mode: str, first_step: int, with_sampler: bool
    ) -> None:
        self.faults = Faults()
        self.numbers = StepNumbers()
        self.is_on = False
        self.at_begin: list[Callable[[StepNumbers], None]] = []
        self.at_end: list[Callable[[StepNumbers, int, int], None]] = []
        self.at_close: list[Callable[[], None]] = []
        self.notes: dict[str, Any] = {}
        self.mode = "TRAIN"
        self.with_gpu_times = True
        self.gpu: Optional[GpuTimes] = None
        self._gpu_polled_ns = 0
        self._began_ns: Optional[int] = None
        self.open_phases: list[PhaseContext] = []
        self._rank: Optional[Rank] = None
        self.next_mode: Optional[str] = None
        self._step = StepContext(self)
        self.log = EventLog(self._open_file, self.faults)
        self.wants_waits = True
        self.loader_config: Optional[DataloaderProfilingConfig] = None
        self._set_up(output, job, mode, first_step, with_sampler)

    @harmless("set-up")
    def _set_up(
        self, output: Optional[str], job: Optional[str], mode: str, first_step: int, with_sampler: bool
    ) -> None:
        self.mode = _checked(mode)
        self.numbers.step = self.numbers.by_mode["TRAIN"] = int(first_step) - 1
        settings = recording_settings(output, job, with_sampler=with_sampler)
        if settings is None:
            return
        self.settings: Settings = settings
        identity = settings.identity
        self.folder = objects_folder(settings.spool, identity.job, identity.node)
        self.handover = Handover(self.folder, settings.spool_mb * 1024 * 1024)
        self.handover.register()
        self.is_on = True
        global _newest  # noqa: PLW0603 - annotations find the process's recorder
        _newest = weakref.ref(self)
        self._owner = os.getpid()
        atexit.register(self._close_at_exit)
        owner = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _switch_off(owner))

    @property
    def rank(self) -> Rank:
        """The rank of this process; it is looked up when it is first asked for, and stays."""
        if self._rank is None:
            self._rank = find_rank(os.environ)
        return self._rank

    def step(self, mode: Optional[str] = None) -> StepContext:
        """Return the context of one step: ``with recorder.step():``."""
        self.next_mode = mode
        return self._step

    def begin_step(self, mode: Optional[str] = None) -> None:
        """Begin a step; one that is open ends here."""
        if not self.is_on:
            return
        try:
            if self._began_ns is not None:
                self.end_step()
            self.numbers.advance(self.mode if mode is None else _checked(mode))
            if self.at_begin:
                self._act(self.at_begin, self.numbers)
        except Exception as fault:
            self.faults.add("step", fault)
        self._began_ns = _clock()

    def end_step(self) -> None:
        began_ns, self._began_ns = self._began_ns, None
        if began_ns is None or not self.is_on:
            return
        try:
            ended_ns, numbers = _clock(), self.numbers
            label = _STEP_LABELS[numbers.mode]
            arguments = f'{{"step_num":"{numbers.mode_step}","pid":{self._owner}}}'
            self.log.add((label, label, began_ns, ended_ns, arguments, 0))
            if self.at_end:
                self._act(self.at_end, numbers, began_ns, ended_ns)
            if self.with_gpu_times and ended_ns - self._gpu_polled_ns > GPU_POLL_NS:
                self._poll_gpu(ended_ns)
            self.log.flush_if_due(ended_ns)
        except Exception as fault:
            self.faults.add("step", fault)

    def phase(self, name: str) -> PhaseContext:
        """Return the context of a part of the work: ``with recorder.phase("checkpoint"):``.

        Readers know ``data_wait``, ``forward``, ``backward``, ``optimizer``, ``checkpoint`` and ``evaluation`` (its
        steps are of mode EVAL).
        """
        return PhaseContext(self, name)

    def begin_phase(self, name: str) -> None:
        """Begin a phase, for code that cannot use a context."""
        self.phase(name).__enter__()

    def end_phase(self, name: str) -> None:
        """End the innermost open phase of that name; phases within it that are still open end with it."""
        try:
            if self.is_on and self.is_in(name):
                for phase in reversed(self.open_phases[:]):
                    phase.__exit__(None, None, None)
                    if phase.name == name:
                        break
        except Exception as fault:
            self.faults.add("phase", fault)

    @property
    def is_in_step(self) -> bool:
        return self._began_ns is not None

    @harmless("resume")
    def resume(self, step: int) -> None:
        """Give the next training step a number, for a run that goes on from a checkpoint; never a smaller one."""
        self.numbers.step = max(self.numbers.step, int(step) - 1)
        self.numbers.by_mode["TRAIN"] = max(self.numbers.by_mode["TRAIN"], int(step) - 1)

    def is_in(self, phase: str) -> bool:
        """Whether a phase of that name is open."""
        return any(each.name == phase for each in self.open_phases)

    @harmless("close")
    def close(self) -> None:
        """Write what is left; nothing is recorded from here on."""
        if not self.is_on:
            return
        self.end_step()
        for phase in reversed(self.open_phases[:]):
            phase.__exit__(None, None, None)
        self._act(self.at_close)
        if self.gpu is not None:
            self.gpu.poll()
        self.is_on = False
        self.log.close()
        self.hand_over_status()
        self.handover.unregister()
        atexit.unregister(self._close_at_exit)

    @harmless("status")
    def hand_over_status(self) -> None:
        """Hand over what the recorder did and could not do."""
        rank = self.rank
        status = {
            "format_version": FORMAT_VERSION,
            "job": self.settings.identity.job,
            "node": self.settings.identity.node,
            "process": rank.process,
            "rank": rank.rank,
            "world": rank.world,
            "pid": os.getpid(),
            "updated_at": round(time.time(), 3),
            "steps": {mode: last + 1 for mode, last in self.numbers.by_mode.items() if last >= 0},
            "dropped_events": self.log.dropped,
            "dropped_objects": self.handover.dropped,
            "errors": dict(self.faults.newest),
            "error_counts": dict(self.faults.counts),
            **self.notes,
        }
        key = recorder_key(self.settings.identity.node, rank.process)
        self.handover.put(key, json.dumps(status).encode())

    def wants_wait(self, event: str) -> bool:
        """Whether an event of a loader is wanted that belongs to the next training step."""
        config = self.loader_config
        if config is None:
            return True
        return config.range.covers(self.numbers.by_mode["TRAIN"] + 1) and bool(config.metrics_regex.search(event))

    @property
    def records_workers(self) -> bool:
        """Whether workers of loaders record: they do not know steps, so not where a range of these is chosen."""
        return self.is_on and self.wants_waits and self.loader_config is None

    def moment(self) -> Moment:
        """Return the time now, and its mark on the GPU where phases are timed there."""
        at_ns = _clock()
        return at_ns, None if self.gpu is None else self.gpu.mark(at_ns)

    def add_phase(self, name: str, began: Moment) -> int:
        """Add what began then and ends now, on the GPU as well; return the end in nanoseconds."""
        ended_ns = _clock()
        if self.gpu is not None and began[1] is not None:
            self.gpu.span(name, began[1], self.gpu.mark(ended_ns))
        self.log.add((label_of(name), name, began[0], ended_ns, "", 0))
        return ended_ns

    def _act(self, acts: "list[Any]", *arguments: Any) -> None:
        """Call what takes part in steps; what one of them raises is its own."""
        for act in tuple(acts):
            try:
                act(*arguments)
            except Exception as fault:
                self.faults.add(type(getattr(act, "__self__", act)).__name__, fault)

    def _close_at_exit(self) -> None:
        if os.getpid() == self._owner:
            self.close()

    def _poll_gpu(self, now_ns: int) -> None:
        self._gpu_polled_ns = now_ns
        if self.gpu is None:
            self.gpu = gpu_times(self.log)
        if self.gpu is not None:
            try:
                self.gpu.poll()
            except Exception as fault:  # the driver's; asking again would cost time in each step
                self.with_gpu_times, self.gpu = False, None
                self.faults.add("gpu times", fault)

    def _open_file(self, header: Callable[[], bytes]) -> TimelineFile:
        return TimelineFile(self.handover, self.rank.process, header)


_newest: "Optional[weakref.ref[StepRecorder]]" = None


def newest_recorder() -> Optional[StepRecorder]:
    """Return the recorder of this process that was made last and still records; None without one."""
    found = _newest() if _newest is not None else None
    return found if found is not None and found.is_on else None


def _checked(mode: str) -> str:
    found = str(mode).upper()
    if found not in MODES:
        raise ValueError(f"mode is {mode!r}, expected one of {', '.join(MODES)}")
    return found


def _switch_off(owner: "weakref.ref[StepRecorder]") -> None:
    """Record nothing in a forked process, such as a data loader's worker."""
    recorder = owner()
    if recorder is not None:
        recorder.is_on = recorder.log.is_on = False
