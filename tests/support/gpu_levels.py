"""How busy each GPU was in each step of the grid, as percent."""

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray
from trainguard.state.time_grid import FULL, GpuLevels


def means_of(levels: GpuLevels) -> FloatArray:
    """Return the percentage of each GPU in each step, the newest included: float64[S, G], NaN without a sample."""
    closed = np.array([list(row) for row in levels.closed], dtype=np.float64).reshape(levels.gpus, levels.steps)
    closed[closed > FULL] = np.nan
    sampled, busy = np.array(levels.open, dtype=np.float64)
    newest = np.divide(100.0 * busy, sampled, out=np.full(levels.gpus, np.nan), where=sampled > 0.0)
    return np.vstack([closed.T * (100.0 / FULL), newest])
