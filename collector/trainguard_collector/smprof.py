"""The names of SageMaker Profiler's SDK: ``import smprof`` becomes ``from trainguard_collector import smprof``.

torch's trace is handed over as a kernel trace of the job. At most 300 steps should lie between `start_profiling` and
`stop_profiling`: a trace lies in memory until it is stopped.
"""

from collections.abc import Mapping
from typing import Any, Optional

from trainguard_collector.annotations import annotate, annotation_begin, annotation_end
from trainguard_collector.recorder.harmless import harmless, imported_torch
from trainguard_collector.recorder.recorder import Recorder
from trainguard_collector.recorder.steps import StepRecorder, newest_recorder
from trainguard_collector.recorder.windows import hand_over_trace, torch_profile

__all__ = ["Config", "SMProfiler", "annotate", "annotation_begin", "annotation_end"]


class Config:
    """What is profiled: ``EnableCuda`` is ``"1"`` (the default where there is a GPU) or ``"0"``."""

    def __init__(self) -> None:
        self.profiler: Mapping[str, Any] = {"EnableCuda": "1"}


class SMProfiler:
    """Profiles what lies between `start_profiling` and `stop_profiling`; one instance a process."""

    _instance: "Optional[SMProfiler]" = None

    def __init__(self) -> None:
        self._config = Config()
        self._profile: Optional[Any] = None
        self._recorder: Optional[StepRecorder] = None
        self._number = 0

    @classmethod
    def instance(cls) -> "SMProfiler":
        """Return the process's profiler."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    @property
    def faults(self) -> Any:
        """What went wrong, as the recorder counts it."""
        return self._of_process().faults

    def configure(self, config: Config) -> None:
        """Take a configuration, for the next `start_profiling`."""
        self._config = config

    @harmless("start_profiling")
    def start_profiling(self) -> None:
        """Start torch's profiler; one that runs already goes on, whoever started it."""
        recorder = self._of_process()
        if self._profile is not None or not recorder.is_on:
            return
        torch = imported_torch()
        if torch.autograd._profiler_enabled():
            raise RuntimeError("a profiler of torch is running already")
        with_gpu = str(dict(self._config.profiler).get("EnableCuda", "1")) == "1"
        profile = torch_profile(torch, record_shapes=True, with_gpu=with_gpu)
        profile.start()
        self._profile = profile
        recorder.at_close.append(self.stop_profiling)

    @harmless("stop_profiling")
    def stop_profiling(self) -> None:
        """Stop it, and hand the trace over."""
        profile, self._profile = self._profile, None
        if profile is None:
            return
        recorder = self._of_process()
        profile.stop()
        hand_over_trace(recorder, profile, f"profiling-{self._number}")
        self._number += 1

    def _of_process(self) -> StepRecorder:
        self._recorder = newest_recorder() or self._recorder or Recorder()
        return self._recorder
