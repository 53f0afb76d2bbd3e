"""Reductions as a saved step makes them, and what that takes: operators, and memory."""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainguard_collector.recorder.tensors.folding import fold
from trainguard_collector.recorder.tensors.parts import Scratch
from trainguard_collector.recorder.tensors.reductions import reduce_rows
from trainguard_collector.recorder.tensors.saving import DEFAULT_REDUCTIONS

VIEWS = frozenset(
    {"alias", "detach", "permute", "select", "slice", "split", "split_with_sizes", "t", "unbind", "unsqueeze", "view"}
)


# Of a saved step: of the reductions of gradients, and of weights with biases.
MOST_LAUNCHES = 200


def reduced(tensors: Sequence[torch.Tensor], kinds: Sequence[str]) -> torch.Tensor:
    """Return float32[tensors, kinds]."""
    groups = reduce_rows(torch, tensors, kinds, Scratch())
    places = [place for group in groups for place in group.layout.places]
    assert sorted(places) == list(range(len(tensors)))
    values = fold(torch, [(group, torch.cat(group.parts)) for group in groups], kinds)
    found = torch.empty_like(values)
    found[torch.tensor(places)] = values
    return found


class Taken(TorchDispatchMode):
    """Counts operators that start work on a device, and the most bytes that their results hold at once."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.bytes = self.most_bytes = 0
        self._held: Counter[int] = Counter()

    @property
    def launches(self) -> int:
        """How many operators started work."""
        return sum(self.operators.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operator and count it."""
        found = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0]
        is_view = name in VIEWS
        if not is_view:
            self.operators[name] += 1
        for each in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(each, torch.Tensor):
                self._hold(each, is_view)
        return found

    def _hold(self, tensor: torch.Tensor, is_view: bool) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if not self._held[key]:
            if is_view:  # of what was there before
                return
            self.bytes += size
            self.most_bytes = max(self.most_bytes, self.bytes)
        self._held[key] += 1
        weakref.finalize(tensor, self._let_go, key, size)

    def _let_go(self, key: int, size: int) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            self.bytes -= size


def resnet_50() -> Iterator[tuple[int, ...]]:
    """Yield the shapes of its parameters."""
    yield (64, 3, 7, 7)
    yield from [(64,)] * 2
    inside = 64
    for depth, width in zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True):
        for number in range(depth):
            outside = 4 * width
            yield from [(width, inside, 1, 1), (width, width, 3, 3), (outside, width, 1, 1)]
            yield from [(width,)] * 4 + [(outside,)] * 2
            if not number:
                yield from [(outside, inside, 1, 1), (outside,), (outside,)]
            inside = outside
    yield from [(1000, 2048), (1000,)]


def blocks(count: int, width: int) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of blocks of Linear and LayerNorm."""
    for _ in range(count):
        yield from [(width, width), (width,), (width,), (width,)]


def on_device(shapes: Iterable[tuple[int, ...]], **options: Any) -> list[torch.Tensor]:
    """Return parameters on a device that does no work: the host does all that it does for a GPU."""
    return [torch.empty(shape, device="meta", **options) for shape in shapes]


def start(tensors: Sequence[torch.Tensor], kinds: Sequence[str] = DEFAULT_REDUCTIONS) -> None:
    """Start the reductions of tensors as a saved step does."""
    groups = reduce_rows(torch, tensors, kinds, Scratch())
    torch.cat([part for group in groups for part in group.parts])


def launched(shapes: Iterable[tuple[int, ...]], **options: Any) -> Taken:
    """Return what the reductions of parameters take on a device."""
    tensors = on_device(shapes, **options)
    with Taken() as taken:
        start(tensors)
    return taken
