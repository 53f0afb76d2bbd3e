"""Watches a model of torch: at the steps that are saved, its tensors are reduced and handed over.

Gradients are read right after an optimizer has used them: by then they are unscaled and reduced over all ranks. Weights
are read where the step ends.
"""

import re
from collections.abc import Iterable
from operator import is_
from typing import TYPE_CHECKING, Any, Optional, Union

from trainguard_collector.recorder.harmless import optimizers
from trainguard_collector.recorder.steps import StepNumbers, StepRecorder
from trainguard_collector.recorder.tensors.batch import Reduced, StepBatch
from trainguard_collector.recorder.tensors.copies import local
from trainguard_collector.recorder.tensors.saving import CollectionConfig, Saver, collections_of
from trainguard_collector.recorder.tensors.scalars import LONGEST_NAME, StepSaver

if TYPE_CHECKING:
    from trainguard_collector.recorder.process import Rank


_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_fsdp_wrapped_module|_orig_mod|_checkpoint_wrapped_module)\.")
_KNOWN_ACTIVATIONS = {"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}


def unwrapped(model: Any) -> Any:
    """Return the model within wrappers such as DistributedDataParallel and a compiled module."""
    for _ in range(8):
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in {"DistributedDataParallel", "DataParallel", "DeepSpeedEngine"}:
            inner = getattr(model, "module", None)
        if inner is None and type(model).__name__ == "FullyShardedDataParallel":
            inner = getattr(model, "_fsdp_wrapped_module", None)
        if inner is None:
            return model
        model = inner
    return model


def clean(path: str) -> str:
    return _WRAPPERS.sub("", path)


def module_name(root: str, path: str, module: Any) -> str:
    """Return a module's path, the model's name for the root; ReLU, Tanh and Sigmoid get a word that rules know."""
    name = clean(path) or root
    kind = _KNOWN_ACTIVATIONS.get(type(module).__name__)
    return f"{name}.{kind}" if kind is not None and not name.lower().endswith(kind) else name


def class_name(model: Any) -> str:
    """Return the name of a model's class, as its author wrote it."""
    # FSDP2 derives a class of its own: FSDPResNet.
    name = type(model).__name__
    return name[4:] if name.startswith("FSDP") and hasattr(model, "set_requires_gradient_sync") else name


_OF_NO_PARAMETER = frozenset({"gradients", "losses", "metrics", "activations", "relu_input", "relu_output"})
_OF_NO_MODULE = frozenset({"gradients", "weights", "biases"})
# Further groups of parameters have no learning rate saved.
MOST_RATES = 8


class _Watched:
    """A model's modules and parameters by path; walking over all of them takes longer than reducing small ones."""

    def __init__(self, root: str, model: Any) -> None:
        self.root, self.model = root, model
        self.modules: list[tuple[str, Any]] = [("", model)]
        self.parameters: list[tuple[str, Any]] = []
        self._held: list[Any] = []

    def has_changed(self) -> bool:
        """Find modules and parameters again where one was added, replaced or removed; return whether that is so."""
        found = self._holds()
        if len(found) == len(self._held) and all(map(is_, found, self._held)):
            return False
        self.modules, self.parameters = list(self.model.named_modules()), list(self.model.named_parameters())
        self._held = self._holds()
        return True

    def _holds(self) -> "list[Any]":
        found: list[Any] = []
        for _, module in self.modules:
            found += (type(module), *module._modules.values(), *module._parameters.values())
        return found


class _Used:
    def __init__(self) -> None:
        self.names: set[str] = set()
        self.reduced: list[Reduced] = []
        self.groups = 0


class TensorRecorder(StepSaver):
    """Records the tensors of the models that it is given by `add`; parameters are those of `Recorder.watch`."""

    def __init__(
        self,
        recorder: StepRecorder,
        torch: Any,
        *,
        every: int,
        collections: Optional[Iterable[Union[str, CollectionConfig]]],
        include_workers: str = "one",
    ) -> None:
        if include_workers not in {"one", "all"}:
            raise ValueError(f"include_workers is {include_workers!r}, expected one or all")
        if int(every) < 1:
            raise ValueError(f"every is {every!r}, expected at least 1")
        super().__init__(recorder, collections_of(collections, int(every)))
        self._torch = torch
        self._by_name = {each.name: each for each in self._collections}
        self._all_workers = include_workers == "all"
        self._models: list[_Watched] = []
        self._losses: list[Any] = []
        self._parameters: dict[str, Any] = {}
        self._gradients: dict[int, str] = {}
        self._names: tuple[str, ...] = ()
        self._listed_gradients: dict[tuple[int, ...], tuple[Optional[str], ...]] = {}
        self._is_known = False
        self._handles: list[Any] = []
        self._used = _Used()
        self._owes_gradients = False
        self._suffix: Optional[str] = None
        self._saver = Saver(self._collections)
        self._heard: dict[tuple[str, ...], list[tuple[Any, Any]]] = {}
        self._hook = _after_optimizers(self._see_guarded)

    def add(self, model: Any, loss: Any = None) -> None:
        """Watch a model, and a loss that is no part of it; of two models of a class the second's name ends in 2."""
        model = unwrapped(model)
        if any(each.model is model for each in self._models):
            return
        name = class_name(model)
        others = sum(class_name(each.model) == name for each in self._models)
        self._models.append(_Watched(f"{name}{others + 1}" if others else name, model))
        self._heard.clear()
        if loss is not None:
            self._losses.append(loss)

    def _begin(self, numbers: StepNumbers) -> None:
        self._is_in_step = True
        self._send()
        due = self._due_at(numbers)
        self._checks_replicas = self.replicas is not None and self.replicas.is_due(numbers)
        is_due = due or (self._owes_gradients and numbers.mode == "TRAIN")
        if not ((is_due and self._saves) or self._checks_replicas):
            return
        self._look_around()
        self._due, self._is_known, self._used = due, False, _Used()
        self._saver.forget_copies()
        self._batch = self._new_batch(numbers)
        if "gradients" in due and numbers.mode in {"TRAIN", "GLOBAL"}:
            self._owes_gradients = True
        if self._saves:
            self._hook_modules()
            self._add_late(self._batch)

    def _end(self, *_: Any) -> None:
        batch, self._batch, self._is_in_step = self._batch, None, False
        if batch is None:
            return
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        with self._torch.no_grad():
            if self._used.names:
                self._owes_gradients = False
                self._save_gradient_norm(batch)
            if self._saves:
                self._saver.reduce_copies(batch)
                self._save_parameters(batch)
            self._check_replicas(batch)
            self._keep(batch)
        self._send()

    def close(self) -> None:
        self._hook.remove()
        super().close()
        if self.skipped_steps:
            self._recorder.notes["skipped_tensor_steps"] = self.skipped_steps

    @property
    def _saves(self) -> bool:
        return self._all_workers or super()._saves

    def _look_around(self) -> None:
        """Find out, at the first saved step, what this rank saves: by then the model is wrapped."""
        if self._suffix is not None:
            return
        rank: Rank = self._recorder.rank
        is_sharded = rank.world > 1 and any(_shards(each.model) for each in self._models)
        self._suffix = f"/shard_{rank.rank}" if is_sharded else ""
        self._worker = f"worker_{rank.rank}"

    def _look(self) -> None:
        changed = [each.has_changed() for each in self._models]
        self._is_known = True
        if any(changed):
            self._heard.clear()
            self._listed_gradients.clear()
            unique = {id(each): (of.root, path, each) for of in self._models for path, each in of.parameters}
            self._parameters = {
                f"{root}_{clean(path)}{self._suffix or ''}"[:LONGEST_NAME]: parameter
                for root, path, parameter in unique.values()
            }
            self._names = tuple(self._parameters)
            self._gradients = {id(parameter): f"gradient/{name}" for name, parameter in self._parameters.items()}

    def _look_once(self) -> None:
        if not self._is_known:
            self._look()

    def _see_guarded(self, optimizer: Any) -> None:
        try:
            self._see_optimizer(optimizer)
        except Exception as fault:
            self._recorder.faults.add("gradients", fault)

    def _see_optimizer(self, optimizer: Any) -> None:
        """Save the gradients that an optimizer has used; of several updates in a step, each parameter's first."""
        batch = self._batch
        if batch is None or not self._owes_gradients or not self._saves or "gradients" not in self._by_name:
            return
        self._look_once()
        used = self._used
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        names, tensors = self._names_of(tuple(map(id, parameters))), [each.grad for each in parameters]
        if None in names or used.names or any(each is None for each in tensors):
            found = {
                name: each
                for name, each in zip(names, tensors)
                if not (name is None or each is None or name in used.names)
            }
            names, tensors = tuple(found), list(found.values())
        if not tensors:
            return
        used.names.update(names)  # type: ignore[arg-type]
        tensors = _local(tensors)
        with self._torch.no_grad():
            reduced = self._saver.save(batch, names, tensors, ("gradients",))  # type: ignore[arg-type]
            if not self._suffix:  # a shard's norm is none of the model's
                self._keep_norms(batch, names, tensors, reduced)
                for number, group in enumerate(optimizer.param_groups, used.groups):
                    if isinstance(group.get("lr"), (int, float)) and number < MOST_RATES:
                        batch.add_number(f"learning_rate/{number}", group["lr"])
                used.groups += len(optimizer.param_groups)

    def _names_of(self, parameters: "tuple[int, ...]") -> "tuple[Optional[str], ...]":
        """Return the names of gradients of parameters, which are given by their identity; None of others."""
        found = self._listed_gradients.get(parameters)
        if found is None:
            found = tuple(map(self._gradients.get, parameters))
            if len(set(found)) < len(found):  # a parameter is listed twice
                found = tuple(name if name not in found[:place] else None for place, name in enumerate(found))
            self._listed_gradients = {parameters: found}
        return found

    def _keep_norms(
        self, batch: StepBatch, names: "tuple[Any, ...]", tensors: "list[Any]", reduced: "list[Reduced]"
    ) -> None:
        """Keep what has norms until the step's end; the norms of other tensors are added."""
        with_norms = [each for each in reduced if "l2" in each.kinds]
        self._used.reduced += with_norms
        if sum(len(each.names) for each in with_norms) == len(tensors):
            return
        known = {name for each in with_norms for name in each.names}
        others = {
            name: each
            for name, each in zip(names, tensors)
            if name not in known and each.is_floating_point() and not each.is_sparse and each.numel()
        }
        if others:
            self._used.reduced.append(batch.reduce(tuple(others), list(others.values()), ("l2",), is_saved=False))

    def _save_gradient_norm(self, batch: StepBatch) -> None:
        if self._used.reduced:
            batch.add_total("gradient_norm/total", self._used.reduced)

    def _save_parameters(self, batch: StepBatch) -> None:
        wanted = tuple(name for name in self._due if name not in _OF_NO_PARAMETER)
        if not wanted:
            return
        self._look_once()
        self._saver.save(batch, self._names, _local(self._parameters.values()), wanted)

    def _hook_modules(self) -> None:
        self._look()
        among = tuple(name for name in self._due if name not in _OF_NO_MODULE)
        if among not in self._heard:
            named = [
                (module_name(each.root, path, module), module) for each in self._models for path, module in each.modules
            ]
            named += [(type(loss).__name__, loss) for loss in self._losses]
            heard = [(module, self._listener(name, among)) for name, module in named if self._is_due(name, among)]
            self._heard[among] = heard
        self._handles += [module.register_forward_hook(listener) for module, listener in self._heard[among]]

    def _is_due(self, name: str, among: "tuple[str, ...]") -> bool:
        return any(self._saver.choice(f"{name}_{side}_0", among) != (False, ()) for side in ("input", "output"))

    def _listener(self, name: str, among: "tuple[str, ...]") -> Any:
        def listen(_: Any, inputs: Any, output: Any) -> None:
            try:
                batch = self._batch
                if batch is None or not hasattr(inputs, "__iter__"):
                    return
                tensors = {f"{name}_input_{place}": each for place, each in enumerate(inputs)}
                outputs = output if isinstance(output, (tuple, list)) else (output,)
                tensors.update({f"{name}_output_{place}": each for place, each in enumerate(outputs)})
                found = {key: each.detach() for key, each in tensors.items() if isinstance(each, self._torch.Tensor)}
                with self._torch.no_grad():
                    self._saver.save_later(batch, found, among)
            except Exception as fault:
                self._recorder.faults.add("activations", fault)

        return listen

    def _listed(self) -> "tuple[dict[str, list[str]], int]":
        listed: dict[str, list[str]] = {"weights": [], "biases": []}
        self._look_once()
        for name in self._parameters:
            listed["biases" if name.removesuffix(self._suffix or "").endswith("bias") else "weights"].append(name)
        return listed, self._recorder.rank.world if self._all_workers else super()._listed()[1]


def _after_optimizers(act: Any) -> Any:
    """Call ``act`` with each optimizer of the process after its step; the hook can be removed."""

    def after(optimizer: Any, *_: Any) -> None:
        act(optimizer)

    return optimizers().register_optimizer_step_post_hook(after)


def _shards(model: Any) -> bool:
    """Return whether ranks hold different parts of a model's parameters."""
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        return True
    placements = (placement for each in model.parameters() for placement in getattr(each, "placements", ()))
    return any(placement.is_shard() for placement in placements)


def _local(tensors: Iterable[Any]) -> "list[Any]":
    found = list(tensors)
    if any(hasattr(kind, "to_local") for kind in set(map(type, found))):
        return [local(each) for each in found]
    return found
