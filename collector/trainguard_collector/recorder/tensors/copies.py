"""Which ranks hold equal bytes of a tensor, known without asking them.

Of DistributedDataParallel it is its process group, of FSDP the group that it replicates over, of a DTensor the ranks of
its mesh that differ in replicated dimensions alone. Of a model with none of these, whose wrapper a callback may not
see, it is a guess: all ranks.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Optional

from trainguard_collector.recorder.process import Rank

_HYBRID = frozenset({"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})
_WHOLE = "NO_SHARD"


class Group(NamedTuple):
    """Ranks that hold copies; ``is_sure`` where a wrapper or the script says so. ``groups`` are process groups."""

    ranks: "tuple[int, ...]"
    is_sure: bool = True
    groups: "tuple[Any, ...]" = ()


class Copies:
    """The copies of one model's tensors as it is now; ``given`` are ranks or a process group, for plain tensors."""

    def __init__(self, torch: Any, model: Any, given: Any, rank: Rank, *, is_asked: bool) -> None:
        self._distributed = torch.distributed
        self._by_tensor: dict[int, Optional[Group]] = {}
        self._by_mesh: dict[Any, Optional[Group]] = {}
        is_split = False
        for module in model.modules():
            kind = type(module).__name__
            if kind == "DistributedDataParallel":
                self._add_replicas(module, is_asked=is_asked)
            elif kind == "FullyShardedDataParallel":
                is_split = True
                self._add_flat(module)
            elif hasattr(module, "set_requires_gradient_sync"):
                is_split = True
        is_split = is_split or any(hasattr(each, "placements") for each in model.parameters())
        self._of_others: Optional[Group] = None
        if given is not None:
            self._of_others = self._given(given, rank)
        elif not is_split and not self._by_tensor:
            self._of_others = Group(tuple(range(rank.world)), is_sure=False)

    def of(self, tensor: Any) -> Optional[Group]:
        """Return the ranks that hold copies of a tensor; None where none does, or nothing says so."""
        if id(tensor) in self._by_tensor:
            return _shared(self._by_tensor[id(tensor)])
        if hasattr(tensor, "placements"):
            return _shared(self._of_mesh(tensor.device_mesh, tuple(tensor.placements)))
        # Megatron marks parameters of which each rank has another part, and experts that only some ranks hold.
        if getattr(tensor, "tensor_model_parallel", False) or not getattr(tensor, "allreduce", True):
            return None
        return _shared(self._of_others)

    def _add_replicas(self, wrapper: Any, *, is_asked: bool) -> None:
        hooks = getattr(wrapper, "_comm_hooks", ())
        averages = any("localSGD" in getattr(hook, "__name__", "") for hook, _ in hooks)
        group = None if averages and not is_asked else self._group(wrapper.process_group)
        ignored = getattr(wrapper, "parameters_to_ignore", ())
        for named in (wrapper.module.named_parameters(), wrapper.module.named_buffers()):
            for name, tensor in named:
                self._by_tensor[id(tensor)] = None if name in ignored else group

    def _add_flat(self, wrapper: Any) -> None:
        handle = getattr(wrapper, "_handle", None)
        if handle is None:
            return
        strategy, group = str(getattr(wrapper.sharding_strategy, "name", "")), None
        if strategy in _HYBRID:
            group = self._group(wrapper._inter_node_pg)
        elif strategy == _WHOLE:
            group = self._group(wrapper.process_group)
        flat = handle.flat_param
        for tensor in (flat, *(getattr(flat, "_params", None) or ())):
            self._by_tensor[id(tensor)] = group

    def _group(self, group: Any) -> Group:
        return Group(tuple(sorted(self._distributed.get_process_group_ranks(group))), groups=(group,))

    def _given(self, given: Any, rank: Rank) -> Group:
        if not isinstance(given, Iterable):
            return self._group(given)
        ranks = tuple(sorted({int(each) for each in given}))
        if rank.rank not in ranks or ranks[-1] >= rank.world or ranks[0] < 0:
            raise ValueError(f"group is {ranks}, expected ranks below {rank.world}, {rank.rank} among them")
        return Group(ranks)

    def _of_mesh(self, mesh: Any, placements: "tuple[Any, ...]") -> Optional[Group]:
        key = id(mesh), placements
        if key not in self._by_mesh:
            self._by_mesh[key] = self._in_mesh(mesh, placements)
        return self._by_mesh[key]

    @staticmethod
    def _in_mesh(mesh: Any, placements: "tuple[Any, ...]") -> Optional[Group]:
        """Return the ranks of a mesh that agree with this one in each dimension that is not replicated."""
        at = mesh.get_coordinate()
        if at is None or any(each.is_partial() for each in placements):
            return None
        alike = [dimension for dimension, each in enumerate(placements) if each.is_replicate()]
        place = tuple(slice(None) if dimension in alike else at[dimension] for dimension in range(len(at)))
        ranks = tuple(sorted(mesh.mesh[place].reshape(-1).tolist()))
        groups = []
        for dimension in alike:
            with suppress(Exception):
                groups.append(mesh.get_group(dimension))
        return Group(ranks, groups=tuple(groups))


def local(tensor: Any) -> Any:
    """Return a rank's own part of a tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _shared(group: Optional[Group]) -> Optional[Group]:
    return group if group is not None and len(group.ranks) > 1 else None


def collectives(groups: Iterable[Any]) -> "list[int]":
    """Return how many collectives each group has begun, by its own counter: equal at the same place of a program.

    Empty where torch does not count: then ranks are compared by the step's number alone.
    """
    found = []
    for group in groups:
        with suppress(Exception):
            found.append(int(group._get_sequence_number_for_group()))
    return found


def written(ranks: Sequence[int]) -> str:
    """Return ranks in order as text, rows of three or more as ``first-last`` or ``first-last/step``."""
    return ",".join(_runs(ranks))


def _runs(ranks: Sequence[int]) -> Iterator[str]:
    start = 0
    while start < len(ranks):
        end = start + 1
        step = ranks[end] - ranks[start] if end < len(ranks) else 0
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if end - start < 3:
            yield str(ranks[start])
            start += 1
            continue
        yield f"{ranks[start]}-{ranks[end - 1]}" + (f"/{step}" if step > 1 else "")
        start = end
