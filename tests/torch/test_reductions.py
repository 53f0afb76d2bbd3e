"""Reductions of a saved step: those of each tensor alone, in few operators and little memory."""

import math
from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.torch.reduced import MOST_LAUNCHES, blocks, launched, reduced, resnet_50
from trainguard_collector.recorder.tensors import processor
from trainguard_collector.recorder.tensors.folding import fold
from trainguard_collector.recorder.tensors.parts import Scratch
from trainguard_collector.recorder.tensors.reductions import reduce_rows
from trainguard_collector.recorder.tensors.saving import ALLOWED, DEFAULT_REDUCTIONS

pytestmark = pytest.mark.torch
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.bool)
SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 1e-42, 1e30)
MOST_BYTES = 96 * 1024 * 1024


def alone(tensor: torch.Tensor, kind: str) -> float:
    """Return one reduction of one tensor, in float64."""
    values = tensor.double()
    if kind.startswith("abs_"):
        values, kind = values.abs(), kind[4:]
    if kind in ("l1", "l2"):
        return float(torch.linalg.vector_norm(values.reshape(-1), int(kind[1])))
    if kind in ("std", "variance"):
        return float(values.std(correction=0) if kind == "std" else values.var(correction=0))
    return float(getattr(values, kind)())


class Drawn(NamedTuple):
    """A tensor of any size, dtype and order of entries, some of them special."""

    shape: tuple[int, ...]
    seed: int
    scale: float
    middle: float
    specials: list[float]
    dtype: torch.dtype
    order: str

    def tensor(self) -> torch.Tensor:
        """Return it."""
        generator = torch.Generator().manual_seed(self.seed)
        values = torch.randn(self.shape, generator=generator) * self.scale + self.middle
        for place, special in enumerate(self.specials):
            values.view(-1)[(self.seed * (place + 1)) % values.numel()] = special
        if not self.dtype.is_floating_point:
            values = values.nan_to_num(0.0, 100.0, -100.0).clamp(-100, 100)
        tensor = values.to(self.dtype)
        if not tensor.dim():
            return tensor
        if self.order == "turned":
            return tensor.permute(*reversed(range(tensor.dim())))
        if self.order == "channels last" and tensor.dim() == 4:
            return tensor.to(memory_format=torch.channels_last)
        return tensor[::2] if self.order == "every second" else tensor


DRAWN = st.builds(
    Drawn,
    st.sampled_from([(), (1,), (63,), (64,), (7, 11), (3, 64), (2, 5, 13), (150, 60), (9, 4, 3, 3)]),
    st.integers(0, 999),
    st.sampled_from([1e-3, 1.0, 30.0]),
    st.sampled_from([0.0, 50.0]),
    st.lists(st.sampled_from(SPECIAL), max_size=2),
    st.sampled_from(DTYPES),
    st.sampled_from(["as it is", "turned", "channels last", "every second"]),
)


def is_close(found: float, expected: float, scale: float) -> bool:
    """Return whether two reductions agree as far as float32 and the order of a sum let them."""
    if math.isnan(expected) or math.isinf(expected):
        return found == expected or math.isnan(found) == math.isnan(expected)
    return found == pytest.approx(expected, rel=2e-5, abs=2e-6 * scale + 1e-37)


@settings(max_examples=60, deadline=None)
@given(st.lists(DRAWN, min_size=1, max_size=6), st.sampled_from([128, 4096, processor.PIECE]))
def test_reductions_of_many_are_those_of_each_alone(drawn: list[Drawn], piece: int) -> None:
    tensors = [each.tensor() for each in drawn]
    kinds = sorted(ALLOWED - {"prod", "abs_prod"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processor, "PIECE", piece)
        values = reduced(tensors, kinds).tolist()
    for tensor, row in zip(tensors, values, strict=True):
        largest = float(tensor.double().abs().nan_to_num(0.0, 0.0, 0.0).max())
        if largest > 1e18:  # its square is none of float32
            continue
        for kind, found in zip(kinds, row, strict=True):
            power = {"variance": 2, "sum": 1, "l1": 1}.get(kind.removeprefix("abs_"), 1)
            scale = largest**power * (tensor.numel() if kind.endswith(("sum", "l1")) else 1)
            assert is_close(found, alone(tensor, kind), scale), (kind, found, alone(tensor, kind), tensor.shape)


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("size", [5, 64, 70_000])
def test_special_entry_gives_what_it_gives_alone(special: float, size: int) -> None:
    torch.manual_seed(3)
    tensor = torch.randn(size)
    tensor[size // 2] = special
    kinds = ("min", "max", "mean", "l1", "abs_mean", "std")
    for kind, found in zip(kinds, reduced([tensor, torch.ones(size)], kinds)[0].tolist(), strict=True):
        expected = float(torch.tensor(alone(tensor, kind)).float())
        assert found == pytest.approx(expected, rel=1e-5, nan_ok=True) or special == 1e30, (kind, found, expected)


@pytest.mark.parametrize("values", [(math.inf, 1.0), (-math.inf, math.inf), (math.nan, math.inf), (math.nan, 0.0)])
def test_norm_beside_deviation_is_that_of_norm_alone(values: tuple[float, float]) -> None:
    tensor = torch.zeros(100)
    tensor[3], tensor[90] = values
    (both,) = reduced([tensor], DEFAULT_REDUCTIONS)[:, DEFAULT_REDUCTIONS.index("l2")].tolist()
    (norm,) = reduced([tensor], ("l2",))[:, 0].tolist()
    assert both == norm or math.isnan(both) == math.isnan(norm) is True


def test_reductions_are_of_the_time_they_were_asked_for() -> None:
    tensors = [torch.ones(5), torch.ones(64), torch.ones(2000), torch.ones(100, dtype=torch.float64)]
    for tensor in tensors:
        groups = reduce_rows(torch, [tensor], ("min", "max"), Scratch())
        storages = {part.untyped_storage().data_ptr() for group in groups for part in group.parts}
        assert tensor.untyped_storage().data_ptr() not in storages


def test_kept_memory_holds_no_part_of_an_earlier_step() -> None:
    memory, shapes = Scratch(), [(64, 64), (64,), (64,), (64,), (200, 1000), (2000, 1000)]
    steps = [[torch.full(shape, float(step)) for shape in shapes] for step in range(2)]
    groups = [reduce_rows(torch, tensors, DEFAULT_REDUCTIONS, memory) for tensors in steps]
    values = [fold(torch, [(each, torch.cat(each.parts)) for each in made], ("min", "max", "mean")) for made in groups]
    assert [each.unique().tolist() for each in values] == [[0.0], [1.0]]
    assert len(memory._kept) == 2  # one dtype for tensors that are put together, one for their differences


@pytest.mark.parametrize("order", ["as it is", "turned", "channels last"])
@pytest.mark.parametrize("shape", [(6, 5), (4, 3, 2, 2), (70, 3, 5, 5), (3, 5, 150, 150)])
def test_tensors_of_one_shape_share_nothing(shape: tuple[int, ...], order: str) -> None:
    drawn = [Drawn(shape, seed, 1.0, float(seed), [], torch.float32, order) for seed in range(5)]
    kinds = (*DEFAULT_REDUCTIONS, "variance", "abs_max")
    for each, row in zip(drawn, reduced([each.tensor() for each in drawn], kinds).tolist(), strict=True):
        assert row == pytest.approx([alone(each.tensor(), kind) for kind in kinds], rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("size", [1000, 300_000])
@pytest.mark.parametrize(("middle", "apart"), [(0.0, 1.1), (1.0, 1e-4), (1e14, 1e17), (-7.0, 0.0)])
def test_same_size_or_far_from_zero_keeps_its_digits(size: int, middle: float, apart: float) -> None:
    tensor = middle + apart * (torch.arange(size) % 2 * 2.0 - 1.0)
    kinds = ("std", "l2", "mean", "abs_mean")
    for tensors in ([tensor], [tensor] * 4):
        found = reduced(tensors, (*DEFAULT_REDUCTIONS,))[0]
        for kind in kinds:
            number = float(found[DEFAULT_REDUCTIONS.index(kind)])
            assert number == pytest.approx(alone(tensor, kind), rel=3e-5, abs=1e-7 * abs(middle) + 1e-6 * apart), kind


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shapes", [[*resnet_50()], [*blocks(60, 1024)]], ids=["resnet", "blocks"])
def test_saved_step_launches_few_operators(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    taken = launched(shapes, dtype=dtype)
    assert 2 * taken.launches <= MOST_LAUNCHES, taken.operators  # gradients, and weights with biases


def test_more_tensors_launch_no_more_operators() -> None:
    counts = [launched(blocks(count, 48)).launches for count in (10, 100, 1_000)]
    assert all(after <= before + 2 for before, after in pairwise(counts)), counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1024, 8_192])
def test_reductions_hold_no_copy_of_all_parameters(width: int, dtype: torch.dtype) -> None:
    taken = launched(blocks(12, width), dtype=dtype)
    assert taken.most_bytes <= MOST_BYTES
