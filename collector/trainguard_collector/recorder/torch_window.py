"""torch's profiler over some training steps; one profile at a time, and never beside one that the script runs."""

import time
from typing import Any, Callable, Optional

from trainguard_collector.recorder.harmless import imported_torch
from trainguard_collector.recorder.profiles import Range
from trainguard_collector.recorder.recorder import Recorder, StepNumbers


class TorchWindow:
    """Profiles the training steps of a range, once; then calls ``done`` with the profile and its first step.

    The profiler is prepared a step ahead where the range is one of steps: preparing takes long.
    """

    def __init__(
        self, recorder: Recorder, span: Range, done: Callable[[Any, int], None], *, record_shapes: bool
    ) -> None:
        self._recorder, self._range, self._done, self._shapes = recorder, span, done, record_shapes
        self._profile: Optional[Any] = None
        self._is_tracing = self._is_over = False
        self._first = 0
        self._step_mark: Optional[Any] = None
        recorder.at_begin.append(self._begin)
        recorder.at_end.append(self._end)
        recorder.at_close.append(self._close)

    def _begin(self, numbers: StepNumbers) -> None:
        if self._is_over or numbers.mode != "TRAIN":
            return
        if self._range.covers(numbers.mode_step):
            if not self._is_tracing:
                self._start(numbers.mode_step)
            mark = imported_torch().profiler.record_function(f"ProfilerStep#{numbers.mode_step}")
            mark.__enter__()
            self._step_mark = mark
        elif self._profile is None and self._range.covers(numbers.mode_step + 1, time.time()):
            self._prepare()

    def _end(self, numbers: StepNumbers, *_: int) -> None:
        if self._step_mark is not None:
            mark, self._step_mark = self._step_mark, None
            mark.__exit__(None, None, None)
        if self._is_tracing and numbers.mode == "TRAIN" and not self._range.covers(numbers.mode_step + 1):
            self._stop()

    def _close(self) -> None:
        if self._is_tracing:
            self._stop()

    def _prepare(self) -> None:
        torch = imported_torch()
        if torch.autograd._profiler_enabled():
            self._is_over = True
            raise RuntimeError("a profiler of torch is running already; these steps are not profiled")
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile = torch.profiler.profile(activities=activities, record_shapes=self._shapes)
        try:
            self._profile.prepare_trace()
        except Exception:
            self._is_over, self._profile = True, None
            raise

    def _start(self, step: int) -> None:
        if self._profile is None:
            self._prepare()
        assert self._profile is not None  # noqa: S101 - _prepare raises where it sets none
        try:
            self._profile.start_trace()
        except Exception:
            self._is_over, self._profile = True, None
            raise
        self._is_tracing, self._first = True, step

    def _stop(self) -> None:
        profile, self._profile = self._profile, None
        self._is_tracing, self._is_over = False, True
        if profile is not None:
            profile.stop_trace()
            self._done(profile, self._first)
