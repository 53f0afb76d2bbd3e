"""A saved step's way from a GPU to the host, with tensors of the processor that stand for those of one."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainguard_collector.recorder.pinned import HostBuffers
from trainguard_collector.recorder.tensors.batch import StepBatch
from trainguard_collector.recorder.tensors.saving import DEFAULT_REDUCTIONS

pytestmark = pytest.mark.torch


class OnGpu(torch.Tensor):
    """A tensor that says that a GPU holds it."""

    is_cuda = property(lambda _: True)  # type: ignore[assignment]
    is_cpu = property(lambda _: False)  # type: ignore[assignment]


class Copies:
    """Stands for torch: buffers are not pinned, and copies end when the test says so."""

    def __init__(self) -> None:
        self.made = 0
        self.have_ended = False
        self.cuda = SimpleNamespace(device=lambda _: nullcontext(), Event=self._event)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *size: int, dtype: torch.dtype, pin_memory: bool) -> torch.Tensor:
        """Make a buffer."""
        assert pin_memory
        self.made += 1
        return torch.empty(*size, dtype=dtype)

    def _event(self) -> Any:
        return SimpleNamespace(record=lambda: None, query=lambda: self.have_ended)


def on_gpu(*shape: int) -> torch.Tensor:
    """Return a tensor that is not where the host can read it."""
    return torch.randn(*shape).as_subclass(OnGpu)


def batch(copies: Copies, buffers: HostBuffers, step: int = 0) -> StepBatch:
    """Return the batch of a step that has a number, reductions and a full tensor."""
    made = StepBatch(copies, step=step, mode="TRAIN", mode_step=step, at=0.0, buffers=buffers)
    made.add_number("losses/loss", on_gpu(1))
    made.reduce(("a", "b"), [on_gpu(10), on_gpu(30, 1000)], DEFAULT_REDUCTIONS)
    made.add_full("c", on_gpu(100))
    made.send_to_host()
    return made


@pytest.fixture
def copies() -> Copies:
    torch.manual_seed(0)
    return Copies()


def test_steps_on_their_way_share_no_buffer(copies: Copies) -> None:
    buffers = HostBuffers()
    taken = [batch(copies, buffers, step) for step in range(4)]
    addresses = [buffer.data_ptr() for each in taken for buffer in each._taken]
    assert len(addresses) == len(set(addresses)) == 8
    assert not any(each.is_here() for each in taken)


def test_later_steps_make_no_buffer(copies: Copies) -> None:
    buffers = HostBuffers()
    copies.have_ended = True
    for step in range(5):
        made = batch(copies, buffers, step)
        assert made.is_here()
        line, entries, *contents = made.parts("worker_0")
        assert (line[:1], entries[:1], len(contents)) == (b"{", b"[", 3)
        made.release()
    assert copies.made == 2


def test_buffer_that_is_too_small_is_left_for_others(copies: Copies) -> None:
    buffers = HostBuffers()
    small, large = buffers.take(copies, 1), buffers.take(copies, 1_000_000)
    for each in (large, small):
        buffers.give_back(each)
    assert buffers.take(copies, 500_000) is large
    assert buffers.take(copies, 100) is small


def test_buffer_that_is_taken_is_given_to_nobody_else(copies: Copies) -> None:
    buffers = HostBuffers()
    buffers.give_back(first := buffers.take(copies, 1))
    assert buffers.take(copies, 1) is first
    assert buffers.take(copies, 1) is not first
