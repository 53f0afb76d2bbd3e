"""Saves tensors of a step: in full or as reductions, as the collections that hold them say."""

from collections.abc import Iterable, Iterator
from typing import Any

from trainguard_collector.recorder.tensors.batch import StepBatch
from trainguard_collector.recorder.tensors.reductions import reduce_all
from trainguard_collector.recorder.tensors.saving import Collection

MOST_COPIED = 1024 * 1024
"""Entries of inputs and outputs of modules that are copied before they are reduced: 4 MiB of float32."""


class Saver:
    """Chooses what is saved of a tensor by its name; a name is looked up once."""

    def __init__(self, torch: Any, collections: Iterable[Collection]) -> None:
        self._torch = torch
        self._by_name = {each.name: each for each in collections}
        self._chosen: dict[tuple[str, ...], dict[str, tuple[bool, tuple[str, ...]]]] = {}
        self._copies: dict[tuple[str, ...], list[tuple[str, Any]]] = {}
        self._copied = 0

    def save(
        self, batch: StepBatch, tensors: "dict[str, Any]", among: "tuple[str, ...]"
    ) -> "dict[tuple[str, ...], Any]":
        """Save those tensors that the collections hold which are due; return the norms of those that have one."""
        reduced: dict[tuple[str, ...], list[tuple[str, Any]]] = {}
        for name, tensor, kinds in self._chosen_of(batch, tensors, among):
            reduced.setdefault(kinds, []).append((name, tensor))
        norms: dict[tuple[str, ...], Any] = {}
        for kinds, named in reduced.items():
            norms.update(self._reduce(batch, named, kinds))
        return norms

    def _chosen_of(
        self, batch: StepBatch, tensors: "dict[str, Any]", among: "tuple[str, ...]"
    ) -> "Iterator[tuple[str, Any, tuple[str, ...]]]":
        """Save in full what is to be saved so; yield what is to be reduced, with its reductions."""
        for name, tensor in tensors.items():
            with_value, kinds = self.choice(name, among)
            if not (with_value or kinds) or tensor.numel() == 0 or tensor.is_sparse or tensor.is_meta:
                continue
            if with_value:
                batch.add_full(name, tensor)
            if kinds:
                yield name, tensor, kinds

    def _reduce(
        self, batch: StepBatch, named: "list[tuple[str, Any]]", kinds: "tuple[str, ...]"
    ) -> "dict[tuple[str, ...], Any]":
        """Save reductions of tensors; return their norms, by the names of those that are in one tensor."""
        norms = {}
        for places, values in reduce_all(self._torch, [tensor for _, tensor in named], kinds):
            names = [named[place][0] for place in places]
            batch.add_reductions(names, kinds, values)
            if "l2" in kinds:
                norms[tuple(names)] = values[:, kinds.index("l2")]
        return norms

    def save_later(self, batch: StepBatch, tensors: "dict[str, Any]", among: "tuple[str, ...]") -> None:
        """Save tensors that the model goes on with: small ones are copied, and reduced together with others."""
        for name, tensor, kinds in self._chosen_of(batch, tensors, among):
            size = tensor.numel()
            if size > MOST_COPIED:
                self._reduce(batch, [(name, tensor)], kinds)
                continue
            self._copies.setdefault(kinds, []).append((name, tensor.clone()))
            self._copied += size
            if self._copied > MOST_COPIED:
                self.reduce_copies(batch)

    def reduce_copies(self, batch: StepBatch) -> None:
        """Save reductions of what was copied."""
        for kinds, named in self._copies.items():
            self._reduce(batch, named, kinds)
        self.forget_copies()

    def choice(self, name: str, among: "tuple[str, ...]") -> "tuple[bool, tuple[str, ...]]":
        """Return whether a tensor is saved in full, and its reductions, by the collections that hold it."""
        chosen = self._chosen.get(among)
        if chosen is None:
            chosen = self._chosen[among] = {}
        found = chosen.get(name)
        if found is None:
            holding = [self._by_name[each] for each in among if self._by_name[each].holds(name)]
            kinds = tuple(dict.fromkeys(kind for each in holding for kind in each.reductions))
            found = chosen[name] = any(each.with_value for each in holding), kinds
        return found

    def forget_copies(self) -> None:
        """Let go what an earlier step has copied."""
        self._copies.clear()
        self._copied = 0
