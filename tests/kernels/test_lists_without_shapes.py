"""The size of an optimizer's lists, which newer profilers do not record, by the gradients of the step."""

import pytest

from tests.support.kernel_traces import STREAM, TraceWriter, judged
from trainguard.kernels.entries import OperatorEntry

SIDE, CHUNK, SMS = 1024, 65_536, 108
ELEMENTS = SIDE * SIDE
ADAM = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"


def optimized(
    *, passes: int = 1, blocks: float = ELEMENTS / CHUNK, steps: int = 1, marked: bool = True
) -> OperatorEntry:
    made = TraceWriter()
    made.step(0, 0, 10_000)
    for step in range(steps):
        at = 100.0 + 1_000 * step
        for each in range(passes):
            args = {"External id": 500 + step * 10 + each, "Input Dims": [[SIDE, SIDE]], "Input type": ["float"]}
            made.event("cpu_op", "torch::autograd::AccumulateGrad", at, 10, args=args | {"Concrete Inputs": [""]})
        if marked:
            made.event("user_annotation", "Optimizer.step#AdamW.step", at + 50, 200)
        ids = {"External id": step + 1, "correlation": step + 1}
        lists = {"Input Dims": [[], [], [], []], "Input type": ["TensorList"] * 4, "Concrete Inputs": [""] * 4}
        made.event("cpu_op", "aten::_fused_adamw_", at + 60, 50, args=ids | lists)
        made.event("cuda_runtime", "cudaLaunchKernel", at + 70, 5, args=ids)
        said = {"device": 0, "stream": STREAM, "blocks per SM": blocks / SMS}
        made.event("kernel", ADAM, at + 80, 100, args=ids | said)
    (found,) = judged(made.text()).operators
    return found


@pytest.mark.parametrize("steps", [1, 3])
def test_lists_are_as_large_as_the_gradients(steps: int) -> None:
    found = optimized(steps=steps)
    assert (found.count, found.bytes, found.held_bytes) == (steps, steps * 7 * 4 * ELEMENTS, 4 * 4 * ELEMENTS)


@pytest.mark.parametrize(
    "found",
    [
        optimized(passes=4),
        optimized(blocks=ELEMENTS / CHUNK / 2),
        optimized(blocks=4 * ELEMENTS / CHUNK),
        optimized(marked=False),
        optimized(passes=0),
    ],
    ids=["several passes", "tensors cut among ranks", "other parameters", "no optimizer", "no gradients"],
)
def test_what_does_not_fill_the_kernels_blocks_has_no_cost(found: OperatorEntry) -> None:
    assert (found.flops, found.bytes, found.roofline_share) == (None, None, None)
