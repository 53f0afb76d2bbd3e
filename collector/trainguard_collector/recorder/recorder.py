"""The recorder of one training process; each part that needs torch is imported where the script first uses it."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Callable, Optional

from trainguard_collector.recorder.hang_answers import HangAnswers
from trainguard_collector.recorder.harmless import harmless, imported_torch, module
from trainguard_collector.recorder.loaders import WatchedLoader
from trainguard_collector.recorder.steps import StepRecorder

if TYPE_CHECKING:
    from trainguard_collector.recorder.instrument import Instrument
    from trainguard_collector.recorder.profiles import FrameworkProfile, KernelProfile
    from trainguard_collector.recorder.tensors.replicas import ReplicaWatch
    from trainguard_collector.recorder.tensors.scalars import ScalarRecorder
    from trainguard_collector.recorder.tensors.watch import TensorRecorder


class Recorder(StepRecorder):
    """Records what a training process does. Without an output it does nothing, and costs next to nothing.

    ``output`` is ``s3://bucket/prefix`` or a folder, by default ``TRAINGUARD_OUTPUT``; ``job`` ``TRAINGUARD_JOB``, else
    what started the job says. ``profile`` says what is recorded of operators, data loaders and functions; without it,
    each wait for data. ``mode`` is that of steps that have none: ``TRAIN``, ``EVAL``, ``PREDICT`` or ``GLOBAL``.
    ``first_step`` is for a run that goes on from a checkpoint. Each ``scalars_every``-th step's losses and metrics are
    saved without `watch`. ``with_sampler`` starts the node's sampler: nothing is sent without one.
    """

    def __init__(  # noqa: PLR0913 - what a script sets, by name
        self,
        output: Optional[str] = None,
        *,
        job: Optional[str] = None,
        profile: "Optional[FrameworkProfile]" = None,
        kernels: "Optional[KernelProfile]" = None,
        mode: str = "TRAIN",
        first_step: int = 0,
        with_gpu_times: bool = True,
        scalars_every: int = 100,
        with_sampler: bool = True,
    ) -> None:
        super().__init__(output, job=job, mode=mode, first_step=first_step, with_sampler=with_sampler)
        self.with_gpu_times = with_gpu_times
        self.scalars_every = scalars_every
        self._instrument: Optional[Instrument] = None
        self._tensors: Optional[TensorRecorder] = None
        self._scalars: Optional[ScalarRecorder] = None
        self._replicas: Optional[ReplicaWatch] = None
        self._times_loaders = False
        self._undo: list[Callable[[], None]] = []
        if self.is_on:
            self._prepare_hangs()
            self._open_windows(profile, kernels)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @harmless("hangs")
    def _prepare_hangs(self) -> None:
        if self.settings.with_hangs:
            HangAnswers(self)

    @harmless("profile")
    def _open_windows(self, profile: "Optional[FrameworkProfile]", kernels: "Optional[KernelProfile]") -> None:
        if profile is None and kernels is None:
            return
        from trainguard_collector.recorder.windows import open_windows

        self.wants_waits = profile is None or profile.loader is not None
        self.loader_config = None if profile is None else profile.loader
        open_windows(self, profile, kernels)

    def wrap(self, loader: Iterable[Any]) -> Any:
        """Return a loader that records how long each batch is waited for, and is as ``loader`` in all else."""
        if not self.is_on or not self.wants_waits or self._times_loaders:
            return loader
        wants = None if self.loader_config is None else self.wants_wait
        return WatchedLoader(loader, self.log, wants, self._starting_workers)

    def _starting_workers(self, loader: Any) -> "AbstractContextManager[None]":
        if module("torch.utils.data") is None:
            return nullcontext()
        from trainguard_collector.recorder.loader_workers import recorded_workers

        return recorded_workers(self, loader)

    @harmless("attach")
    def attach(self, model: Any) -> None:
        """Time calls of the model, of ``torch.autograd.backward``, and of the step of any optimizer of torch."""
        if self.is_on:
            from trainguard_collector.recorder.instrument import Instrument

            self._instrument = self._instrument or Instrument(self, imported_torch())
            self._instrument.add(model)

    @harmless("forward")
    def time_forward(self, owner: Any, name: str) -> None:
        """Time a method of a model that `attach` was given as a forward pass; `forget_timed` ends that."""
        if self._instrument is not None:
            self._undo.append(self._instrument.time_method(owner, name))

    @harmless("checkpoint")
    def time_checkpoints(self, owner: Any, *names: str) -> None:
        """Record calls of methods that save a checkpoint as phases; `forget_timed` ends that."""
        if self.is_on:
            from trainguard_collector.recorder.instrument import time_checkpoints

            self._undo += time_checkpoints(self, owner, names)

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
        model. ``include_workers`` is ``one`` (rank 0) or ``all``. ``with_checksum`` watches copies of parameters, as
        `watch_replicas` does, at each ``every``-th step.
        """
        if self.is_on:
            from trainguard_collector.recorder.tensors.watch import TensorRecorder

            torch = imported_torch()
            if not isinstance(model, torch.nn.Module):
                raise ValueError(f"the model is a {type(model).__name__}, expected a torch.nn.Module")
            if self._scalars is not None:
                self._scalars.close()
                self._scalars = None
            self._tensors = self._tensors or TensorRecorder(
                self,
                torch,
                every=every,
                collections=collections,
                include_workers=include_workers,
            )
            if with_checksum and (self._replicas is None or not self._replicas.is_asked):
                self._watch_copies(model, is_asked=False, every=every)
            self._tensors.replicas = self._replicas
            self._tensors.add(model, loss)
            self.attach(model)

    @harmless("replicas")
    def watch_replicas(
        self,
        model: Any,
        *,
        every: int = 100,
        optimizer: Any = None,
        buffers: bool = False,
        group: Any = None,
    ) -> None:
        """Save hashes of the bits of parameters that several ranks hold copies of, for the rule RanksOutOfSync.

        At the end of each ``every``-th training step, after the optimizer's update, all ranks hash what they hold on
        its device, and save a number for each tensor. ``model`` is wrapped as it is trained: DistributedDataParallel,
        FSDP (1, 2 or hybrid) and DTensors say which ranks hold copies of what. Of plain tensors ``group`` says it, a
        process group or ranks. ``optimizer`` adds its state, ``buffers`` buffers, which ranks may keep apart. Call it
        on all ranks, before the first step.
        """
        if self.is_on:
            if self._replicas is not None and not self._replicas.is_asked:
                self._replicas = None
            self._watch_copies(model, is_asked=True, every=every, optimizer=optimizer, buffers=buffers, group=group)
            if self._tensors is not None:
                self._tensors.replicas = self._replicas
            else:
                self._save_scalars().replicas = self._replicas

    def _watch_copies(self, model: Any, *, is_asked: bool, **options: Any) -> None:
        from trainguard_collector.recorder.tensors.replicas import ReplicaWatch

        replicas = self._replicas or ReplicaWatch(self, is_asked=is_asked)
        replicas.add(model, **options)
        self._replicas = replicas

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
        if self.is_on:
            self._save_scalars().scalar(collection, name, value)

    def _save_scalars(self) -> "ScalarRecorder":
        from trainguard_collector.recorder.tensors.scalars import ScalarRecorder

        self._scalars = self._scalars or ScalarRecorder(self, every=self.scalars_every)
        return self._scalars

    @harmless("loaders")
    def time_loaders(self) -> None:
        """Record how long each batch of any loader of torch is waited for, without `wrap`."""
        if self.is_on and self.wants_waits and not self._times_loaders:
            from trainguard_collector.recorder.loader_workers import time_loaders

            time_loaders(self)
            self._times_loaders = True
