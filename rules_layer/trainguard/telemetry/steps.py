"""Training steps of one process, as arrays."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Steps of one process and mode that one framework object holds, in file order (by their end).

    Attributes
    ----------
    process : str
        ``<node>-<pid or rank>``, for example ``algo-1-905``.
    mode : str
        The step event's name, for example ``Step:ModeKeys.TRAIN``.
    starts_us, durations_us : int64[N]
        Absolute start in epoch microseconds, and duration in microseconds (>= 0).
    numbers : tuple of str, length N
        ``step_num`` as the framework wrote it; ``?`` where the event has none.
    """

    process: str
    mode: str
    starts_us: NDArray[np.int64]
    durations_us: NDArray[np.int64]
    numbers: tuple[str, ...]
