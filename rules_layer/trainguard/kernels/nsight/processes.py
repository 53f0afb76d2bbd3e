"""Processes and devices of an export: numbers that are only unique within a process become unique in all."""

import numpy as np

from trainguard.kernels.columns import Ints
from trainguard.kernels.nsight.database import Export
from trainguard.kernels.values import ints

_OF_PROCESS = ~np.int64(0xFFFFFF)
_PID_SHIFT, _PID_MASK = 24, 0xFFFFFF
_CORRELATION_BITS = 32
_CORRELATION_MASK = (1 << _CORRELATION_BITS) - 1
GPU_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


class Processes:
    """Gives each process a number, in the order of their first appearance."""

    def __init__(self, export: Export) -> None:
        held = [export.columns[table] for table in GPU_TABLES if table in export.columns]
        # Old exports do not say whose work it is: then all of it is one process's.
        self._known = all("globalPid" in columns for columns in held)
        self._numbers: dict[int, int] = {}
        self._gpus: dict[tuple[int, int], int] = {}
        for gpu, cuda, pid in export.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid")):
            for number, ordinal, process in zip(ints(gpu), ints(cuda), ints(pid), strict=True):
                self._gpus[int(process), int(ordinal)] = int(number)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._numbers)

    def numbers(self, identities: Ints) -> Ints:
        """Return the number of each global process or thread."""
        if not self._known:
            return np.zeros(len(identities), dtype=np.int64)
        found, place = np.unique(identities & _OF_PROCESS, return_inverse=True)
        known = [self._numbers.setdefault(int(each), len(self._numbers)) for each in found]
        return np.array(known, dtype=np.int64)[place]

    def correlations(self, identities: Ints, correlations: Ints) -> Ints:
        """Return what joins a launch and its work; -1 where it is not known."""
        joined = self.numbers(identities) << _CORRELATION_BITS | (correlations & _CORRELATION_MASK)
        return np.where(correlations > 0, joined, -1)

    def devices(self, identities: Ints, ordinals: Ints) -> Ints:
        """Return the number of the GPU that a process calls by its own one."""
        if not self._gpus:
            return ordinals
        pids = (identities >> _PID_SHIFT) & _PID_MASK
        found, place = np.unique(np.stack([pids, ordinals]), axis=1, return_inverse=True)
        pairs = zip(found[0].tolist(), found[1].tolist(), strict=True)
        known = [self._gpus.get(pair, pair[1]) for pair in pairs]
        return np.array(known, dtype=np.int64)[place.reshape(-1)]
