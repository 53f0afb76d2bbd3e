"""Saves the numbers that a loop logs, of any framework: losses and metrics as a run of ``debug-output``."""

import json
import time
from typing import Any, Optional

from trainguard_collector.recorder.harmless import module
from trainguard_collector.recorder.steps import StepNumbers, StepRecorder
from trainguard_collector.recorder.tensors.batch import StepBatch
from trainguard_collector.recorder.tensors.saving import ALWAYS_SAVED, collections_of

LONGEST_NAME = 1_000
MOST_LATE = 100
MOST_PENDING = 4


class ScalarRecorder:
    """Saves losses and metrics of each ``every``-th step of a mode, by rank 0, without waiting for a device."""

    def __init__(self, recorder: StepRecorder, *, every: int) -> None:
        if int(every) < 1:
            raise ValueError(f"scalars_every is {every!r}, expected at least 1")
        self._recorder = recorder
        self._collections = {each.name: each for each in collections_of(ALWAYS_SAVED, int(every))}
        self._batch: Optional[StepBatch] = None
        self._pending: list[StepBatch] = []
        self._late: dict[str, Any] = {}
        self._is_in_step = self._has_collections_file = False
        recorder.at_begin.append(self._begin)
        recorder.at_end.append(self._end)
        recorder.at_close.append(self.close)
        if recorder.is_in_step:
            self._begin(recorder.numbers)

    def scalar(self, collection: str, name: str, value: Any) -> None:
        """Save one number where its step is saved; one between steps, with the next step that is."""
        key = f"{collection}/{name}"[:LONGEST_NAME]
        if self._batch is not None:
            self._batch.add_number(key, value)
        elif not self._is_in_step and (key in self._late or len(self._late) < MOST_LATE):
            self._late[key] = value

    def close(self) -> None:
        """Hand over what is left, and take part in no further step."""
        recorder = self._recorder
        if self._begin in recorder.at_begin:
            recorder.at_begin.remove(self._begin)
        if self._end in recorder.at_end:
            recorder.at_end.remove(self._end)
        self._send(is_last=True)

    def _begin(self, numbers: StepNumbers) -> None:
        self._is_in_step = True
        self._send()
        if self._recorder.rank.rank == 0 and self._collections["losses"].saves(numbers.mode, numbers.mode_step):
            self._batch = StepBatch(
                module("torch"), step=numbers.step, mode=numbers.mode, mode_step=numbers.mode_step, at=time.time()
            )
            for key in list(self._late):
                self._batch.add_number(key, self._late.pop(key))

    def _end(self, *_: Any) -> None:
        batch, self._batch, self._is_in_step = self._batch, None, False
        if batch is not None and not batch.is_empty and len(self._pending) < MOST_PENDING:
            batch.send_to_host()
            self._pending.append(batch)

    def _send(self, *, is_last: bool = False) -> None:
        while self._pending and (is_last or self._pending[0].is_here()):
            if not self._has_collections_file:
                self._has_collections_file = True
                self._write_collections()
            self._recorder.handover.put_tensors("worker_0", self._pending.pop(0).parts("worker_0"))

    def _write_collections(self) -> None:
        named = {name: each.to_json() for name, each in self._collections.items()}
        content = {"collections": named, "_meta": {"num_workers": 1}}
        key = "debug-output/collections/000000000/worker_0_collections.json"
        self._recorder.handover.put(key, json.dumps(content).encode())
