"""MaxInitializationTime: whether the first step came in time, and when the job began and ended.

Kept defects: no time ever passes, so that only a threshold below 0 fires; ``last`` is in stream order; ``job_end``
lacks the last minute. An event without ``step_num`` counts, where the original raises.
"""

from typing import Any

import numpy as np

from trainguard.managed.framework_time import whole
from trainguard.managed.rule import STEP_NAME, CompatibleRule, Number, RuleParameters, Window


class MaxInitializationTimeParameters(RuleParameters, frozen=True, kw_only=True):
    """``threshold`` in minutes."""

    threshold: Number = 20


class MaxInitializationTime(CompatibleRule[MaxInitializationTimeParameters]):
    """Reports the first and last step, and the first and last system sample."""

    def __init__(self, parameters: MaxInitializationTimeParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._steps: dict[str, float] = {}
        self.details["step_num"] = self._steps

    def observe(self, window: Window) -> None:
        """Widen the job's times, note the steps, and judge a waiting time of 0."""
        details: dict[str, Any] = self.details
        if len(window.system):
            earliest, latest = float(window.system.times.min()), float(window.system.times.max())
            details["job_start"] = min(earliest, details.get("job_start", earliest))
            details["job_end"] = max(latest, details.get("job_end", 0.0))
        events = window.framework
        is_step = np.array([STEP_NAME in name for name in events.words.names], dtype=np.bool_)
        starts = events.starts[is_step[events.names]].tolist() if len(events) else []
        self.datapoints += len(starts)
        if starts and "first" not in self._steps:
            self._steps["first"] = whole(starts.pop(0))
        if starts:
            self._steps["last"] = whole(starts[-1])
        if self.parameters.threshold < 0 and not self._steps:
            self.violations += 1
            self.triggered += 1
