"""Saves the numbers that a loop logs, of any framework: losses and metrics as a run of ``debug-output``."""

import json
import time
from contextlib import suppress
from typing import Any, Optional, Protocol

from trainguard_collector.recorder.harmless import module
from trainguard_collector.recorder.pinned import HostBuffers
from trainguard_collector.recorder.steps import StepNumbers, StepRecorder
from trainguard_collector.recorder.tensors.batch import StepBatch
from trainguard_collector.recorder.tensors.parts import Scratch
from trainguard_collector.recorder.tensors.saving import ALWAYS_SAVED, Collection, collections_of

LONGEST_NAME = 1_000
MOST_LATE = 100
# A step more is not saved and counted.
MOST_PENDING = 4


class CopyHashes(Protocol):
    """What adds hashes of what several ranks hold copies of to a step; all ranks write where it ``is_used``."""

    @property
    def is_used(self) -> bool: ...

    def is_due(self, numbers: StepNumbers) -> bool: ...

    def add_to(self, batch: StepBatch) -> None: ...


class StepSaver:
    """Saves the numbers of the steps that their collections save, without waiting for a device."""

    def __init__(self, recorder: StepRecorder, collections: "list[Collection]") -> None:
        self._recorder, self._collections = recorder, collections
        self._due: dict[str, Collection] = {}
        self._batch: Optional[StepBatch] = None
        self._pending: list[StepBatch] = []
        self._buffers, self._memory = HostBuffers(), Scratch()
        self._late: dict[str, Any] = {}
        self._is_in_step = self._has_collections_file = False
        self._worker = "worker_0"
        self.replicas: Optional[CopyHashes] = None
        self._checks_replicas = False
        self.skipped_steps = 0
        recorder.at_begin.append(self._begin)
        recorder.at_end.append(self._end)
        recorder.at_close.append(self.close)

    def scalar(self, collection: str, name: str, value: Any) -> None:
        """Save one number of a step, where the collection's steps are saved; between steps, with the next such step."""
        key = f"{collection}/{name}"[:LONGEST_NAME]
        if not self._is_in_step:
            if key in self._late or len(self._late) < MOST_LATE:
                self._late[key] = value
        elif self._batch is not None and collection in self._due and self._saves:
            self._batch.add_number(key, value)

    def close(self) -> None:
        """Hand over what is left, and take part in no further step."""
        with suppress(ValueError):
            self._recorder.at_begin.remove(self._begin)
            self._recorder.at_end.remove(self._end)
        cuda = getattr(module("torch"), "cuda", None)
        if self._pending and cuda is not None and cuda.is_available() and cuda.is_initialized():
            cuda.synchronize()
        self._send(is_last=True)

    @property
    def _saves(self) -> bool:
        return self._recorder.rank.rank == 0

    def _due_at(self, numbers: StepNumbers) -> "dict[str, Collection]":
        return {each.name: each for each in self._collections if each.saves(numbers.mode, numbers.mode_step)}

    def _begin(self, numbers: StepNumbers) -> None:
        self._is_in_step = True
        self._send()
        self._due = self._due_at(numbers)
        self._checks_replicas = self.replicas is not None and self.replicas.is_due(numbers)
        if (self._due and self._saves) or self._checks_replicas:
            self._batch = self._new_batch(numbers)
        if self._batch is not None and self._saves:
            self._add_late(self._batch)

    def _new_batch(self, numbers: StepNumbers) -> StepBatch:
        return StepBatch(
            module("torch"),
            step=numbers.step,
            mode=numbers.mode,
            mode_step=numbers.mode_step,
            at=time.time(),
            buffers=self._buffers,
            memory=self._memory,
        )

    def _add_late(self, batch: StepBatch) -> None:
        for key in [key for key in self._late if key.partition("/")[0] in self._due]:
            batch.add_number(key, self._late.pop(key))

    def _end(self, *_: Any) -> None:
        batch, self._batch, self._is_in_step = self._batch, None, False
        if batch is not None:
            self._check_replicas(batch)
            self._keep(batch)

    def _check_replicas(self, batch: StepBatch) -> None:
        if self.replicas is not None and self._checks_replicas:
            self._worker = f"worker_{self._recorder.rank.rank}"
            try:
                self.replicas.add_to(batch)
            except Exception as fault:  # the step's other numbers are saved without it
                self._recorder.faults.add("replicas", fault)

    def _keep(self, batch: StepBatch) -> None:
        """Have a batch copied, and handed over when it is there."""
        if batch.is_empty:
            return
        if len(self._pending) >= MOST_PENDING:
            self.skipped_steps += 1
            return
        batch.send_to_host()
        self._pending.append(batch)

    def _send(self, *, is_last: bool = False) -> None:
        while self._pending and (is_last or self._pending[0].is_here()):
            batch = self._pending.pop(0)
            if not self._has_collections_file:
                self._has_collections_file = True
                self._write_collections()
            parts = batch.parts(self._worker)
            batch.release()
            self._recorder.handover.put_tensors(self._worker, parts)
            if batch.left_out:
                self._recorder.notes["tensors_left_out"] = batch.left_out[:20]

    def _write_collections(self) -> None:
        listed, workers = self._listed()
        named = {each.name: each.to_json(listed.get(each.name, ())) for each in self._collections}
        content = {"collections": named, "_meta": {"num_workers": workers}}
        key = f"debug-output/collections/000000000/{self._worker}_collections.json"
        self._recorder.handover.put(key, json.dumps(content).encode())

    def _listed(self) -> "tuple[dict[str, list[str]], int]":
        """Return the tensors of collections that name theirs, and how many workers save."""
        return {}, self._recorder.rank.world if self.replicas is not None and self.replicas.is_used else 1


class ScalarRecorder(StepSaver):
    """Saves losses and metrics of each ``every``-th step of a mode, by rank 0."""

    def __init__(self, recorder: StepRecorder, *, every: int) -> None:
        if int(every) < 1:
            raise ValueError(f"scalars_every is {every!r}, expected at least 1")
        super().__init__(recorder, collections_of(ALWAYS_SAVED, int(every)))
        if recorder.is_in_step:
            self._begin(recorder.numbers)
