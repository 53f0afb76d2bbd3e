"""The contexts that a script uses: of a step, and of a phase. What the script raises passes through them."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Optional

from trainguard_collector.recorder.gpu_times import Mark
from trainguard_collector.recorder.timeline import EVALUATION, label_of

_EVALUATIONS = frozenset({EVALUATION, "validation", "eval"})
_clock = time.monotonic_ns

if TYPE_CHECKING:
    from trainguard_collector.recorder.recorder import Recorder


class StepContext:
    """The context of steps; one of a recorder is enough, as steps do not nest."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder

    def __enter__(self) -> "Recorder":
        self._recorder.begin_step(self._recorder.next_mode)
        return self._recorder

    def __exit__(
        self, kind: Optional[type], value: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        self._recorder.end_step()


class PhaseContext:
    """The context of a phase."""

    __slots__ = ("_recorder", "began_ns", "mark", "mode_before", "name")

    def __init__(self, recorder: "Recorder", name: str) -> None:
        self._recorder, self.name = recorder, str(name)
        self.began_ns = 0
        self.mark: Optional[Mark] = None
        self.mode_before: Optional[str] = None

    def __enter__(self) -> None:
        recorder = self._recorder
        if not recorder.is_on:
            return
        try:
            if self.name in _EVALUATIONS:
                self.mode_before, recorder.mode = recorder.mode, "EVAL"
            recorder.open_phases.append(self)
            self.began_ns = _clock()
            if recorder.gpu is not None:
                self.mark = recorder.gpu.mark(self.began_ns)
        except Exception as fault:
            recorder.faults.add("phase", fault)

    def __exit__(
        self, kind: Optional[type], value: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        recorder, began_ns = self._recorder, self.began_ns
        if not began_ns or not recorder.is_on:
            return
        try:
            ended_ns = _clock()
            if self.mark is not None and recorder.gpu is not None:
                recorder.gpu.span(self.name, self.mark, recorder.gpu.mark(ended_ns))
            if self.mode_before is not None:
                recorder.mode = self.mode_before
            if recorder.open_phases[-1] is self:
                recorder.open_phases.pop()
            else:
                recorder.open_phases.remove(self)
            recorder.log.record((label_of(self.name), self.name, began_ns, ended_ns, "", 0))
        except Exception as fault:
            recorder.faults.add("phase", fault)
