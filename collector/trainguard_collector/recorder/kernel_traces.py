"""Kernel traces of a window of steps, and how long steps take after it: profilers have slowed training for good."""

import statistics
import time
from collections import deque
from typing import Any, Optional

from trainguard_collector.recorder.harmless import say
from trainguard_collector.recorder.profiles import KernelProfile
from trainguard_collector.recorder.recorder import Recorder, StepNumbers
from trainguard_collector.recorder.torch_window import TorchWindow

COMPARED = 50
LEAST_COMPARED = 10
SKIPPED_AFTER = 2
"""Steps after the window that are not compared: the profiler's buffers are released in them."""

SLOWER_RATIO = 1.05


class KernelTraces:
    """Runs one window; keeps the durations of the training steps before and after it."""

    def __init__(self, recorder: Recorder, profile: KernelProfile) -> None:
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
        rank = self._recorder.rank
        draft = self._recorder.handover.draft("trace.json")
        try:
            profile.export_chrome_trace(str(draft))
            node = self._recorder.settings.identity.node
            name = f"{node}.{rank.process}.{time.time_ns() // 1_000_000}.pt.trace.json.gz"
            self._recorder.handover.put_to_compress(f"kernel-traces/step-{first}/{name}", draft)
        finally:
            draft.unlink(missing_ok=True)
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
