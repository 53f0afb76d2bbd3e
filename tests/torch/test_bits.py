"""Hashes of tensors' bits: what changes them, and how many operators and bytes a check takes."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainguard_collector.recorder.process import Rank
from trainguard_collector.recorder.tensors.batch import StepBatch
from trainguard_collector.recorder.tensors.bits import LANES_ON_PROCESSOR, BitHashes
from trainguard_collector.recorder.tensors.replicas import ReplicaWatch

pytestmark = pytest.mark.torch
VIEWS = frozenset({"detach", "view", "slice", "select", "split", "permute", "alias", "_unsafe_view", "transpose"})


class Counted(TorchDispatchMode):
    """Counts operators, without those that only make a view."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in VIEWS:
            self.operators.append(name)
        return func(*args, **(kwargs or {}))


def by_place(tensors: list[torch.Tensor]) -> list[int]:
    order, hashes = BitHashes(torch).of(tensors)
    found = dict(zip(order, hashes.tolist(), strict=True))
    return [found[place] for place in range(len(tensors))]


def many_kinds() -> list[torch.Tensor]:
    large = LANES_ON_PROCESSOR * 4
    return [
        torch.randn(3, 5),
        torch.randn(7).bfloat16(),
        torch.randn(9).half()[1:],  # begins within a lane
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(6, 8)[:, ::2],  # has gaps
        torch.tensor(3),
        torch.randint(0, 9, (5,), dtype=torch.int8),
        torch.tensor([True, False, True]),
        torch.randn(4).double(),
        torch.randn(3, dtype=torch.complex64),
        torch.randn(LANES_ON_PROCESSOR // 2),
        torch.randn(large + 1).bfloat16(),
        torch.randint(0, 9, (large + 3,), dtype=torch.uint8),
    ]


def flip(tensor: torch.Tensor, entry: int, bit: int) -> None:
    """Flip a bit of an entry, by its bytes, wherever it lies."""
    at = tensor.flatten()[entry].clone().reshape(1)
    at.view(torch.uint8)[bit // 8] ^= 1 << bit % 8
    place = torch.tensor(torch.unravel_index(torch.tensor(entry), tensor.shape)) if tensor.dim() else None
    tensor[() if place is None else tuple(place.tolist())] = at[0]


def test_each_flipped_bit_changes_the_hash_of_its_tensor_alone() -> None:
    torch.manual_seed(0)
    draw, tensors = random.Random(0), many_kinds()
    before = by_place(tensors)
    for trial in range(6 * len(tensors)):
        place = trial % len(tensors)
        tensor = tensors[place]
        bits = 1 if tensor.dtype == torch.bool else 8 * tensor.element_size()
        entry, bit = draw.choice((0, tensor.numel() - 1, draw.randrange(tensor.numel()))), draw.randrange(bits)
        kept = tensor.clone()
        flip(tensor, entry, bit)
        after = by_place(tensors)
        assert [each for each in range(len(tensors)) if after[each] != before[each]] == [place]
        tensor.copy_(kept)
    assert by_place(tensors) == before


def test_hash_is_the_sum_of_lanes_by_odd_weights() -> None:
    def weight(place: int) -> int:
        mixed = (place + 1) * 0x9E3779B97F4A7C15 % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        return (mixed ^ mixed >> 31) | 1

    lanes = [[5, -7, 2**31 - 1], [-(2**31), 3]]
    expected = [
        sum(lane * weight(place + start) for place, lane in enumerate(each)) % 2**64
        for start, each in zip((0, 3), lanes, strict=True)
    ]
    found = by_place([torch.tensor(each, dtype=torch.int32) for each in lanes])
    assert [each % 2**64 for each in found] == expected


@pytest.mark.parametrize("size", [16, 3 * LANES_ON_PROCESSOR])
def test_order_of_entries_and_of_pieces_counts(size: int) -> None:
    first = torch.arange(size, dtype=torch.int32)
    for other in (first.flip(0), first.roll(1), first.roll(LANES_ON_PROCESSOR)):
        if not torch.equal(first, other):
            assert by_place([first]) != by_place([other])


@pytest.mark.parametrize(("tensors", "size"), [(1000, 16), (160, 40_000)])
def test_operators_grow_with_chunks_not_with_tensors(tensors: int, size: int) -> None:
    watched = [torch.randn(size) for _ in range(tensors)]
    hashes = BitHashes(torch)
    hashes.of(watched)
    with Counted() as counted:
        hashes.of(watched)
    chunks = tensors / (LANES_ON_PROCESSOR // size) + 1
    assert len(counted.operators) <= 20 + 7 * chunks, counted.operators


def test_record_of_a_thousand_tensors_takes_below_16_kb() -> None:
    model = nn.ModuleDict({f"layers_{n}": nn.Linear(4, 4) for n in range(500)})
    recorder: Any = SimpleNamespace(rank=Rank(0, 8))
    watch = ReplicaWatch(recorder, is_asked=True)
    watch.add(model, every=1)
    batch = StepBatch(torch, step=0, mode="TRAIN", mode_step=0, at=0.0)
    watch.add_to(batch)
    assert 8_000 < sum(map(len, batch.parts("worker_0"))) < 16_000
