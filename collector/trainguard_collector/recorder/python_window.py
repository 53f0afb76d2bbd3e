"""Functions of the training script over some steps, by cProfile or Pyinstrument."""

import cProfile
import time
from contextlib import suppress
from typing import Any, Callable, Optional

from trainguard_collector.recorder.profiles import PythonProfiler, PythonProfilingConfig, cProfileTimer
from trainguard_collector.recorder.recorder import Recorder, StepNumbers

CPROFILE_FILE, PYINSTRUMENT_FILE = "python_stats", "python_stats.html"
_TIMERS: "dict[cProfileTimer, Optional[Callable[[], float]]]" = {
    cProfileTimer.TOTAL_TIME: None,  # cProfile's own, which costs least
    cProfileTimer.CPU_TIME: time.process_time,
    cProfileTimer.OFF_CPU_TIME: lambda: time.perf_counter() - time.process_time(),
}
MOST_PROFILES = 100


class PythonWindow:
    """Profiles each training step of a range, and hands over a file a step."""

    def __init__(self, recorder: Recorder, config: PythonProfilingConfig) -> None:
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
