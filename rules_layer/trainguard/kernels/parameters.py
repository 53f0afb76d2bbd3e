"""How many elements an optimizer's lists of tensors have, whose dimensions newer profilers leave out.

The engine records each gradient that it accumulates. With gradients of several passes, or tensors that are cut among
ranks, their sum does not fill the blocks of the optimizer's kernels, and nothing is claimed.
"""

from math import prod

import numpy as np

from trainguard.kernels.columns import Ints
from trainguard.kernels.costs import read_inputs
from trainguard.kernels.times.metrics import RankMetrics

_ACCUMULATES = "torch::autograd::AccumulateGrad"
_OPTIMIZES = "Optimizer.step#"
# Elements of a block of PyTorch's kernels over lists (``MultiTensorApply.cuh``); a tensor's last block has less.
CHUNK = 65_536

LEAST_FULL, ROUNDED = 0.5, 1.001


def gradient_elements(metrics: RankMetrics) -> int:
    """Return the elements of the gradients of a step of the optimizer, as the engine records them; 0 if unknown."""
    trace, window, operators = metrics.trace, metrics.window, metrics.trace.operators
    named = [place for place, name in enumerate(trace.names) if name == _ACCUMULATES]
    within = (operators.start >= window.start) & (operators.start < window.end)
    places, counts = np.unique(trace.operator_inputs[np.isin(operators.name, named) & within], return_counts=True)
    marks = trace.annotations
    steps = [place for place, name in enumerate(trace.names) if name.startswith(_OPTIMIZES)]
    steps_within = (marks.start >= window.start) & (marks.start < window.end) & np.isin(marks.name, steps)
    total = 0
    for place, count in zip(places.tolist(), counts.tolist(), strict=True):
        inputs = read_inputs(trace.names[place]) if place >= 0 else None
        if inputs is None or not inputs.shapes:
            return 0
        total += count * prod(inputs.shapes[0])
    number = int(steps_within.sum())
    return total // number if number and total % number == 0 else 0


def fills(metrics: RankMetrics, rows: Ints, count: int, elements: int) -> bool:
    """Return whether so many elements fill the blocks of a call's kernels over lists, and no more than these hold."""
    gpus = metrics.trace.gpus
    blocks = float(metrics.trace.gpu.blocks_per_sm[rows].sum()) * (gpus[0].sms if gpus else 0) / count
    return elements > 0 and LEAST_FULL * blocks * CHUNK <= elements <= ROUNDED * blocks * CHUNK
