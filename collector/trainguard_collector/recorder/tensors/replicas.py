"""Watches tensors that several ranks hold copies of: after a step, hashes of their bits are saved for a rule.

Ranks send each other nothing for it: each says which tensors, of which ranks' copies, and at which moment it hashed.
"""

import json
import os
import time
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Optional

from trainguard_collector.recorder.harmless import imported_torch
from trainguard_collector.recorder.steps import StepNumbers, StepRecorder
from trainguard_collector.recorder.tensors.batch import StepBatch
from trainguard_collector.recorder.tensors.bits import BitHashes, dense
from trainguard_collector.recorder.tensors.copies import Copies, Group, collectives, local, written
from trainguard_collector.recorder.tensors.scalars import LONGEST_NAME
from trainguard_collector.recorder.tensors.watch import class_name, clean, unwrapped

HASHES = "trainguard/replicas/{rank}"
ABOUT, TENSORS = "/about", "/tensors"
FORMAT_VERSION = 1
PARAMETERS, BUFFERS, OPTIMIZER = "parameters", "buffers", "optimizer"
_RESTARTS = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


class ReplicaWatch:
    """What `Recorder.watch_replicas` was asked for; ``is_asked`` is False where `watch` does it by itself."""

    def __init__(self, recorder: StepRecorder, *, is_asked: bool) -> None:
        self._recorder, self._torch, self.is_asked = recorder, imported_torch(), is_asked
        self._every = 1
        self._models: list[tuple[str, Any, Any, bool]] = []
        self._optimizers: list[Any] = []
        self._hashes = BitHashes(self._torch)
        self._listed: tuple[Any, bytes, list[str]] = (None, b"", [])
        self._has_copies: Optional[bool] = None

    def add(self, model: Any, *, every: int, optimizer: Any = None, buffers: bool = False, group: Any = None) -> None:
        """Watch the copies of a model; of two models of a class the second's name ends in 2. Raises ValueError."""
        if not isinstance(model, self._torch.nn.Module):
            raise ValueError(f"the model is a {type(model).__name__}, expected a torch.nn.Module")
        if int(every) < 1:
            raise ValueError(f"every is {every!r}, expected at least 1")
        self._every = int(every)
        if any(each is model for _, each, _, _ in self._models):
            return
        name = class_name(unwrapped(model))
        others = sum(class_name(unwrapped(each)) == name for _, each, _, _ in self._models)
        self._models.append((f"{name}{others + 1}" if others else name, model, group, buffers))
        if optimizer is not None:
            self._optimizers.append(optimizer)

    @property
    def is_used(self) -> bool:
        """Whether ranks save hashes: of a job of several, where it was asked for or this one holds copies."""
        if self._recorder.rank.world < 2:
            return False
        if not self.is_asked and self._has_copies is None:  # the first saved step: by then the model is wrapped
            self._has_copies = any(group is not None for _, group, _, _ in self._copies())
        return self.is_asked or bool(self._has_copies)

    def is_due(self, numbers: StepNumbers) -> bool:
        """Whether copies are hashed after this step, each ``every``-th training step."""
        return numbers.mode in {"TRAIN", "GLOBAL"} and numbers.mode_step % self._every == 0 and self.is_used

    def add_to(self, batch: StepBatch) -> None:
        """Add the hashes of all copies as they are now, and what they are of: tensors of one number a byte."""
        sets: dict[tuple[str, Group, Any], list[tuple[str, Any]]] = {}
        left_out = 0
        for of, group, name, tensor in self._copies():
            if group is None or tensor.is_meta or tensor.is_sparse or not tensor.numel():
                left_out += 1
                continue
            sets.setdefault((of, group, tensor.device), []).append((name, tensor))
        told, listed, hashes = [], [], []
        for (of, group, device), named in sorted(sets.items(), key=_place):
            order, values = self._hashes.of([tensor for _, tensor in named])
            tensors = [_described(*named[place]) for place in order]
            listed.append(tensors)
            hashes.append(values)
            told.append(
                {
                    "of": of,
                    "ranks": written(group.ranks),
                    "copies": len(group.ranks),
                    "sure": group.is_sure,
                    "moment": collectives(group.groups),
                    "device": device.type,
                    "count": len(tensors),
                }
            )
        packed, layouts = self._packed(listed)
        for each, layout in zip(told, layouts):
            each["layout"] = layout
        name = HASHES.format(rank=self._recorder.rank.rank)
        about = {
            "version": FORMAT_VERSION,
            "at": round(time.time(), 3),
            "mode_step": batch.about["mode_step"],
            "attempt": "/".join(os.environ.get(each, "") for each in _RESTARTS),
            "left_out": left_out,
            "sets": told,
        }
        self._add_bytes(batch, name + ABOUT, json.dumps(about).encode())
        if hashes:
            self._add_bytes(batch, name + TENSORS, packed)
            # To the device, which nobody waits for; from there a copy would have to be.
            device = next((each.device for each in hashes if each.device.type != "cpu"), hashes[0].device)
            batch.add_full(name, self._torch.cat([each.to(device, non_blocking=True) for each in hashes]))

    def _add_bytes(self, batch: StepBatch, name: str, content: bytes) -> None:
        batch.add_full(name, self._torch.frombuffer(bytearray(content), dtype=self._torch.uint8))

    def _packed(self, listed: "list[list[list[Any]]]") -> "tuple[bytes, list[str]]":
        """Return names, types and shapes of all sets, packed, and a digest of each; both are kept."""
        if self._listed[0] != listed:
            texts = [json.dumps(each) for each in listed]
            layouts = [blake2b(text.encode(), digest_size=8).hexdigest() for text in texts]
            self._listed = listed, zlib.compress(f"[{','.join(texts)}]".encode()), layouts
        return self._listed[1:]

    def _copies(self) -> "Iterator[tuple[str, Optional[Group], str, Any]]":
        """Iterate over tensors: of what they are, which ranks hold copies if any, their name, and this rank's part."""
        for root, model, given, with_buffers in self._models:
            groups = Copies(self._torch, model, given, self._recorder.rank, is_asked=self.is_asked)
            inner = unwrapped(model)
            for path, tensor in inner.named_parameters():
                group, name = groups.of(tensor), f"{root}_{clean(path)}"[:LONGEST_NAME]
                yield PARAMETERS, group, name, local(tensor)
                for optimizer in self._optimizers:
                    for key, value in sorted(optimizer.state.get(tensor, {}).items()):
                        if isinstance(value, self._torch.Tensor):
                            yield OPTIMIZER, group, f"{name}/{key}"[:LONGEST_NAME], local(value)
            for path, tensor in inner.named_buffers() if with_buffers else ():
                yield BUFFERS, groups.of(tensor), f"{root}_{clean(path)}"[:LONGEST_NAME], local(tensor)


def _described(name: str, tensor: Any) -> "list[Any]":
    return [name, str(tensor.dtype).rpartition(".")[2], list(dense(tensor).shape)]


def _place(each: "tuple[tuple[str, Group, Any], Any]") -> "tuple[str, tuple[int, ...], str]":
    of, group, device = each[0]
    return of, group.ranks, str(device)
