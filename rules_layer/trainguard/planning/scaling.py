"""How the time of a step changes with the number of GPUs, the batch and the sort of GPU, and how sure that is.

Fitted to the published results of MLPerf Training 5.0: ``python -m tests.verdicts.planning`` shows the errors.
"""

import math
from dataclasses import dataclass

from trainguard.kernels.rollup_entries import PeaksEntry

_FLOOR = 0.1
# Software for GPUs of another generation may compute in the next precision, in which arithmetic is twice as fast.
_PRECISION = math.log(2.0)


@dataclass(frozen=True, slots=True)
class Scaling:
    """Exponents of ratios, and the half widths of intervals of 80 % by the logarithm of the largest ratio.

    ``samples`` is of the samples of a GPU in a step, ``gpus`` of their number; ``spread`` of both, ``sorts_spread`` of
    a change of the sort of GPU, beside another precision.
    """

    samples: float
    gpus: float
    spread: float
    sorts_spread: float

    def factor(self, samples: float, gpus: float) -> float:
        """Return the factor on a step's time by the ratios of a GPU's samples and of the number of GPUs."""
        return math.exp(self.samples * math.log(samples) + self.gpus * math.log(gpus))

    def half_width(self, samples: float, gpus: float, sort: float | None) -> float:
        """Return the natural logarithm of the interval's factor; ``sort`` is that of another GPU, None of the same."""
        largest = max(abs(math.log(samples)), abs(math.log(gpus)))
        size = self.spread * (_FLOOR + largest) if largest > 0.0 else 0.0
        return math.hypot(size, 0.0 if sort is None else self.of_sort(sort))

    def of_sort(self, sort: float) -> float:
        """Return that of another GPU alone; those within a tenth of each other are of one generation."""
        apart = abs(math.log(sort))
        return math.hypot(_PRECISION if apart > _FLOOR else 0.0, self.sorts_spread * (_FLOOR + apart))


MEASURED = Scaling(samples=0.803, gpus=0.028, spread=0.17, sorts_spread=0.892)


def sort_factor(old: PeaksEntry, new: PeaksEntry, precision: str | None) -> float:
    """Return the factor on the time of kernels on another GPU: between that of arithmetic and that of memory."""
    memory = old.memory_gb_per_s / new.memory_gb_per_s
    known = precision if precision in old.tflops and precision in new.tflops else "bf16"
    known = known if known in old.tflops and known in new.tflops else "fp16"
    if known not in old.tflops or known not in new.tflops:
        return memory
    return math.sqrt(memory * old.tflops[known] / new.tflops[known])
