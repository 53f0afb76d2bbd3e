"""What a recorder does with models and loaders of torch; each part is imported where the script first uses it."""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Callable, Optional, cast

from trainguard_collector.recorder.harmless import Faults, harmless, imported_torch, module

if TYPE_CHECKING:
    from trainguard_collector.recorder.instrument import Instrument
    from trainguard_collector.recorder.loader_workers import Owner, TimedLoaders
    from trainguard_collector.recorder.recorder import Recorder
    from trainguard_collector.recorder.tensors.scalars import ScalarRecorder
    from trainguard_collector.recorder.tensors.watch import TensorRecorder


class InTorch:
    """The half of `Recorder` that needs torch."""

    faults: Faults

    def __init__(self) -> None:
        self._instrument: Optional[Instrument] = None
        self._tensors: Optional[TensorRecorder] = None
        self._scalars: Optional[ScalarRecorder] = None
        self._loaders: Optional[TimedLoaders] = None
        self._undo: list[Callable[[], None]] = []

    @property
    def times_loaders(self) -> bool:
        """Whether waits for all loaders of torch are recorded."""
        return self._loaders is not None

    @harmless("attach")
    def attach(self, model: Any) -> None:
        """Time calls of the model, of ``torch.autograd.backward``, and of the step of any optimizer of torch."""
        recorder = cast("Recorder", self)
        if recorder.is_on:
            from trainguard_collector.recorder.instrument import Instrument

            self._instrument = self._instrument or Instrument(recorder, imported_torch())
            self._instrument.add(model)

    @harmless("forward")
    def time_forward(self, owner: Any, name: str) -> None:
        """Time a method of a model that `attach` was given as a forward pass; `forget_timed` ends that."""
        if self._instrument is not None:
            self._undo.append(self._instrument.time_method(owner, name))

    @harmless("checkpoint")
    def time_checkpoints(self, owner: Any, *names: str) -> None:
        """Record calls of methods that save a checkpoint as phases; `forget_timed` ends that."""
        recorder = cast("Recorder", self)
        if recorder.is_on:
            from trainguard_collector.recorder.instrument import time_checkpoints

            self._undo += time_checkpoints(recorder, owner, names)

    @harmless("undo")
    def forget_timed(self) -> None:
        """Put back the methods that `time_forward` and `time_checkpoints` have replaced."""
        while self._undo:
            self._undo.pop()()

    @harmless("watch")
    def watch(
        self,
        model: Any,
        *,
        every: int = 500,
        collections: Optional[Iterable[Any]] = None,
        loss: Any = None,
        include_workers: str = "one",
        with_checksum: bool = True,
    ) -> None:
        """Record the tensors of a model of torch, wrapped, sharded, compiled or plain, and time it as `attach` does.

        Each ``every``-th step of a mode is saved, where a collection says nothing else; ``collections`` are by default
        ``gradients``, ``weights`` and ``biases``, as reductions, beside losses and metrics. ``loss`` is no part of the
        model. ``include_workers`` is ``one`` (rank 0) or ``all``. ``with_checksum`` saves one of each rank's
        parameters, unless sharded.
        """
        recorder = cast("Recorder", self)
        if recorder.is_on:
            from trainguard_collector.recorder.tensors.watch import TensorRecorder

            torch = imported_torch()
            if not isinstance(model, torch.nn.Module):
                raise ValueError(f"the model is a {type(model).__name__}, expected a torch.nn.Module")
            if self._scalars is not None:
                self._scalars.close()
                self._scalars = None
            self._tensors = self._tensors or TensorRecorder(
                recorder,
                torch,
                every=every,
                collections=collections,
                include_workers=include_workers,
                with_checksum=with_checksum,
            )
            self._tensors.add(model, loss)
            self.attach(model)

    @harmless("loss")
    def loss(self, value: Any, name: str = "loss") -> None:
        """Save a loss, a number or an array with one entry of any framework, where the step is saved.

        One between steps is saved with the next such step. Without `watch` each ``scalars_every``-th step is saved.
        """
        self._scalar("losses", name, value)

    @harmless("metric")
    def metric(self, name: str, value: Any) -> None:
        """Save a metric of this step, as `loss`."""
        self._scalar("metrics", name, value)

    def _scalar(self, collection: str, name: str, value: Any) -> None:
        if self._tensors is not None:
            self._tensors.scalar(collection, name, value)
            return
        recorder = cast("Recorder", self)
        if recorder.is_on:
            from trainguard_collector.recorder.tensors.scalars import ScalarRecorder

            self._scalars = self._scalars or ScalarRecorder(recorder, every=recorder.scalars_every)
            self._scalars.scalar(collection, name, value)

    def starting_workers(self, loader: Any) -> "AbstractContextManager[None]":
        """Return a context in which workers that a loader of torch starts record how long batches take to load."""
        recorder = cast("Recorder", self)
        if not recorder.records_workers or module("torch.utils.data") is None:
            return nullcontext()
        from trainguard_collector.recorder.loader_workers import recorded_workers

        return recorded_workers(recorder, loader)

    def as_owner_of_loaders(self) -> "Owner":
        """Return what workers of this process's loaders need to know of it."""
        from trainguard_collector.recorder.loader_workers import Owner

        recorder = cast("Recorder", self)
        settings = recorder.settings
        return Owner(
            str(recorder.folder),
            settings.spool_mb * 1024 * 1024,
            settings.identity.job,
            settings.identity.node,
            recorder.rank.process,
            os.getpid(),
            recorder.log.origin_us,
        )

    @harmless("loaders")
    def time_loaders(self) -> None:
        """Record how long each batch of any loader of torch is waited for, without `wrap`."""
        recorder = cast("Recorder", self)
        if recorder.is_on and recorder.wants_waits and self._loaders is None:
            from trainguard_collector.recorder.loader_workers import TimedLoaders

            self._loaders = TimedLoaders(recorder)
