"""Steps whose GPU waits for the host: for data, or for launches."""

from tests.support.kernel_traces import BF16_GEMM, LOADER, TraceWriter, judged
from trainguard.kernels.document import RankProfile

STEP = 20_000.0


def slow_host(*, loader_us: float = 0.0, kernels: int = 40, steps: int = 4, work_us: float = 60.0) -> RankProfile:
    """Return steps that begin with a wait for data; then the host launches one kernel after the other, too late."""
    made = TraceWriter()
    for step in range(steps):
        begin = step * STEP
        made.step(step, begin, STEP)
        if loader_us:
            made.event("user_annotation", LOADER, begin, loader_us)
        each = (STEP - loader_us) / kernels
        for number in range(kernels):
            launch = begin + loader_us + number * each
            made.kernel(BF16_GEMM, launch + 7, work_us, launch=launch)
    return judged(made.text())
