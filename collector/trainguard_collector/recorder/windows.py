"""The windows of steps that a recorder opens: kernel traces, operators of torch, functions of the script.

Profilers have slowed training for good, so steps after a kernel trace are compared with those before.
"""

import cProfile
import statistics
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Optional

from trainguard_collector.recorder.harmless import imported_torch, say
from trainguard_collector.recorder.profiles import (
    FrameworkProfile,
    KernelProfile,
    PythonProfiler,
    PythonProfilingConfig,
    Range,
    cProfileTimer,
)
from trainguard_collector.recorder.steps import StepNumbers, StepRecorder
from trainguard_collector.recorder.timeline import MOST_WAITING


class TorchWindow:
    """Profiles the training steps of a range, once; then calls ``done`` with the profile and its first step.

    The profiler is prepared a step ahead where the range is one of steps: preparing takes long.
    """

    def __init__(
        self, recorder: StepRecorder, span: Range, done: Callable[[Any, int], None], *, record_shapes: bool
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
        self._is_over = True  # unless all of it succeeds
        if torch.autograd._profiler_enabled():
            raise RuntimeError("a profiler of torch is running already; these steps are not profiled")
        profile = torch_profile(torch, record_shapes=self._shapes)
        profile.prepare_trace()
        self._profile, self._is_over = profile, False

    def _start(self, step: int) -> None:
        if self._profile is None:
            self._prepare()
        profile, self._profile, self._is_over = self._profile, None, True
        assert profile is not None  # noqa: S101 - _prepare raises where it sets none
        profile.start_trace()
        self._profile, self._is_over = profile, False
        self._is_tracing, self._first = True, step

    def _stop(self) -> None:
        profile, self._profile = self._profile, None
        self._is_tracing, self._is_over = False, True
        if profile is not None:
            profile.stop_trace()
            self._done(profile, self._first)


COMPARED = 50
LEAST_COMPARED = 10
# The profiler's buffers are released in these steps: they are not compared.
SKIPPED_AFTER = 2

SLOWER_RATIO = 1.05


class KernelTraces:
    """Runs one window; keeps the durations of the training steps before and after it."""

    def __init__(self, recorder: StepRecorder, profile: KernelProfile) -> None:
        self._recorder, self._profile = recorder, profile
        self._before: deque[int] = deque(maxlen=COMPARED)
        self._after: list[int] = []
        self._skipped = 0
        self._note: Optional[dict[str, Any]] = None
        recorder.at_end.append(self._end)
        recorder.at_close.append(self._compare)
        # Its end comes after ours: the window's last step is not yet one after the window.
        TorchWindow(recorder, profile.steps, self._export, record_shapes=profile.record_shapes)

    def _end(self, numbers: StepNumbers, began_ns: int, ended_ns: int) -> None:
        if numbers.mode != "TRAIN" or len(self._after) > COMPARED:
            return
        if numbers.mode_step < self._profile.steps.first - 1:  # the step before is the one that prepares
            self._before.append(ended_ns - began_ns)
        elif self._note is not None:
            if self._skipped < SKIPPED_AFTER:
                self._skipped += 1
                return
            self._after.append(ended_ns - began_ns)
            if len(self._after) == COMPARED:
                self._compare()

    def _export(self, profile: Any, first: int) -> None:
        began = time.monotonic()
        hand_over_trace(self._recorder, profile, f"step-{first}")
        self._note = {"first_step": first, "export_s": round(time.monotonic() - began, 3)}
        self._recorder.notes["kernel_profile"] = self._note

    def _compare(self) -> None:
        note = self._note
        if note is None or "median_after_ms" in note:
            return
        if min(len(self._before), len(self._after)) < LEAST_COMPARED:
            note["compared"] = f"fewer than {LEAST_COMPARED} steps before or after the window"
            return
        before, after = statistics.median(self._before) / 1e6, statistics.median(self._after) / 1e6
        note.update(median_before_ms=round(before, 3), median_after_ms=round(after, 3))
        note["steps_compared"] = [len(self._before), len(self._after)]
        ratio = after / before if before else 0.0
        if ratio > SLOWER_RATIO:
            say(
                f"steps take {after:.3g} ms after the kernel profile of step {note['first_step']}, and took "
                f"{before:.3g} ms before it"
            )
        self._recorder.hand_over_status()


CPU_LABEL, GPU_LABEL = "cpu_functions", "gpu_functions"
# Of more operators the longest are kept.
MOST_OPERATORS = MOST_WAITING // 2


def record_operators(recorder: StepRecorder, profile: Any, first: int) -> None:
    """Add the operators of a profile to the timeline; ``first`` is the profile's first step."""
    events = profile.profiler.function_events or profile.events()
    start_ns = profile.profiler.kineto_results.trace_start_ns()
    shift_ns = recorder.log.monotonic_ns(start_ns)
    found: list[tuple[float, Any]] = [(each.time_range.elapsed_us(), each) for each in events]
    found = [row for row in found if row[0] > 0.0 and not row[1].name.startswith("ProfilerStep")]
    longest = sorted(found, key=lambda row: -row[0])[:MOST_OPERATORS]
    note = {"first_step": first, "operators": len(found), "left_out": len(found) - len(longest)}
    recorder.notes["detailed_profile"] = note
    for _, each in sorted(longest, key=lambda row: row[1].time_range.end):
        on_gpu = "CUDA" in str(each.device_type)
        label = f"{GPU_LABEL}-dev:{each.device_index}" if on_gpu else CPU_LABEL
        began_ns = shift_ns + round(each.time_range.start * 1_000)
        ended_ns = shift_ns + round(each.time_range.end * 1_000)
        thread = int(getattr(each, "thread", 0) or 0)
        recorder.log.record((label, each.name, began_ns, ended_ns, "", thread))


CPROFILE_FILE, PYINSTRUMENT_FILE = "python_stats", "python_stats.html"
_TIMERS: "dict[cProfileTimer, Optional[Callable[[], float]]]" = {
    cProfileTimer.TOTAL_TIME: None,  # cProfile's own, which costs least
    cProfileTimer.CPU_TIME: time.process_time,
    cProfileTimer.OFF_CPU_TIME: lambda: time.perf_counter() - time.process_time(),
}
MOST_PROFILES = 100


class PythonWindow:
    """Profiles each training step of a range, and hands over a file a step."""

    def __init__(self, recorder: StepRecorder, config: PythonProfilingConfig) -> None:
        self._recorder, self._config = recorder, config
        self._running: Optional[Any] = None
        self._timer = cProfileTimer.TOTAL_TIME
        self._began = 0.0
        self._count = 0
        recorder.at_begin.append(self._begin)
        recorder.at_end.insert(0, self._end)  # what else happens where a step ends is none of the script's

    def _begin(self, numbers: StepNumbers) -> None:
        if numbers.mode != "TRAIN" or self._count >= MOST_PROFILES or not self._config.range.covers(numbers.mode_step):
            return
        self._began = time.time()
        if self._config.python_profiler is PythonProfiler.PYINSTRUMENT:
            from pyinstrument import Profiler

            profiler = Profiler()
            profiler.start()
        else:
            in_turn = self._config.cprofile_timer is cProfileTimer.DEFAULT
            self._timer = list(_TIMERS)[self._count % len(_TIMERS)] if in_turn else self._config.cprofile_timer
            timer = _TIMERS[self._timer]
            profiler = cProfile.Profile() if timer is None else cProfile.Profile(timer)
            profiler.enable()
        self._count += 1
        self._running = profiler

    def _end(self, numbers: StepNumbers, *_: int) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        if self._config.python_profiler is PythonProfiler.PYINSTRUMENT:
            running.stop()
            kind, name, body = "pyinstrument", PYINSTRUMENT_FILE, running.output_html().encode()
        else:
            running.disable()
            draft = self._recorder.handover.draft("stats")
            try:
                running.dump_stats(str(draft))
                body = draft.read_bytes()
            finally:
                with suppress(OSError):
                    draft.unlink()
            kind, name = f"cprofile/{self._timer.value}", CPROFILE_FILE
        node, rank = self._recorder.settings.identity.node, self._recorder.rank
        span = f"train-{numbers.mode_step}-{int(self._began * 1e6)}_train-{numbers.mode_step}-{int(time.time() * 1e6)}"
        framework = f"profiler-output/framework/pytorch/{kind}/{rank.process}-{node}"
        self._recorder.handover.put(f"{framework}/{span}/{name}", body)


def open_windows(recorder: StepRecorder, profile: Optional[FrameworkProfile], kernels: Optional[KernelProfile]) -> None:
    """Open the windows; each of them opens and ends by itself where steps begin and end."""
    if kernels is not None:
        KernelTraces(recorder, kernels)
    if profile is not None and profile.detailed is not None:
        TorchWindow(recorder, profile.detailed.range, partial(record_operators, recorder), record_shapes=False)
    if profile is not None and profile.python is not None:
        PythonWindow(recorder, profile.python)


def torch_profile(torch: Any, *, record_shapes: bool, with_gpu: bool = True) -> Any:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if with_gpu and torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(activities=activities, record_shapes=record_shapes)


def hand_over_trace(recorder: StepRecorder, profile: Any, folder: str) -> None:
    """Hand the trace of a profile of torch over as one of the job's kernel traces; raises OSError."""
    draft = recorder.handover.draft("trace.json")
    try:
        profile.export_chrome_trace(str(draft))
        name = f"{recorder.settings.identity.node}.{recorder.rank.process}.{time.time_ns() // 1_000_000}"
        recorder.handover.put_to_compress(f"kernel-traces/{folder}/{name}.pt.trace.json.gz", draft)
    finally:
        draft.unlink(missing_ok=True)
