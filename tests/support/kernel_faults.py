"""Small traces of six steps with one fault planted in each step, as strong as asked for."""

from collections.abc import Callable

from tests.support.kernel_traces import BF16_GEMM, COMMUNICATION_STREAM, FP32_GEMM, NCCL, PAGEABLE, PINNED, TraceWriter

# Microseconds.
STEP = 20_000.0

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
Fault = Callable[[TraceWriter, float, float], None]


def steps(
    fill: Callable[[TraceWriter, float], None], *, number: int = 6, lasts: float = STEP, made: TraceWriter | None = None
) -> TraceWriter:
    made = TraceWriter() if made is None else made
    for step in range(number):
        made.step(step, lasts * step, lasts)
        fill(made, lasts * step)
    return made


def good(made: TraceWriter, start: float, lasts: float = STEP) -> None:
    """Fill time with long BF16 kernels, launched well ahead."""
    count = 10
    for place in range(count):
        begin = start + lasts * place / count
        made.kernel(BF16_GEMM, begin, lasts / count, launch=max(begin - 3_000, start))


def loader(made: TraceWriter, start: float, strength: float) -> None:
    made.event("user_annotation", LOADER, start, STEP * strength)
    good(made, start + STEP * strength, STEP * (1 - strength))


def exposed(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start, STEP * (1 - strength))
    begin = start + STEP * (1 - strength)
    made.kernel(NCCL, begin, STEP * strength, launch=begin - 500, stream=COMMUNICATION_STREAM)


def little_overlap(made: TraceWriter, start: float, strength: float) -> None:
    """Communicate for 15 % of the step, of which so much is exposed."""
    length, alone = STEP * 0.15, STEP * 0.15 * strength
    good(made, start, STEP - alone)
    made.kernel(NCCL, start + STEP - length, length, launch=start + STEP - length - 500, stream=COMMUNICATION_STREAM)


def copies(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start, STEP * (1 - strength))
    made.copy(PINNED, start + STEP * (1 - strength), STEP * strength)


def pageable(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start, STEP * (1 - strength))
    made.copy(PAGEABLE, start + STEP * (1 - strength), STEP * strength)


def fp32(made: TraceWriter, start: float, strength: float) -> None:
    made.kernel(FP32_GEMM, start, STEP * strength, launch=start)
    good(made, start + STEP * strength, STEP * (1 - strength))


def underfilled(made: TraceWriter, start: float, strength: float) -> None:
    made.kernel(BF16_GEMM, start, STEP * strength, launch=start, blocks=0.5)
    good(made, start + STEP * strength, STEP * (1 - strength))


def idle(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start, STEP * (1 - strength))


def late(made: TraceWriter, start: float, strength: float) -> None:
    """Kernels that start right after a launch that comes too late."""
    for place in range(100):
        begin = start + STEP * place / 100
        made.kernel(BF16_GEMM, begin + 6, STEP / 100 * (1 - strength), launch=begin, call=5)


def storm(made: TraceWriter, start: float, strength: float) -> None:
    """Kernels that are shorter than their call."""
    for place in range(400):
        begin = start + STEP * place / 400
        made.kernel(BF16_GEMM, begin + 40, 50 * (1 - strength), launch=begin, call=48)


def sync(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start, STEP * (1 - strength))
    begin = start + STEP * (1 - strength)
    made.event("cuda_runtime", "cudaStreamSynchronize", begin - 2_000, 2_000 + STEP * strength)


def queue(made: TraceWriter, start: float, strength: float) -> None:
    """1,024 launches that wait for so much of the step behind a long kernel."""
    made.kernel(BF16_GEMM, start + 1, STEP * 0.9, launch=start)
    begin = start + 1 + STEP * 0.9
    for place in range(1_024):
        made.kernel(BF16_GEMM, begin + place * 0.5, 0.5, launch=begin - STEP * strength, call=0)


def overhead(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start)
    made.event("overhead", "Buffer Flush", start, STEP * strength)


def unlaunched(made: TraceWriter, start: float, strength: float) -> None:
    """One hundred kernels, so many of them without a launch."""
    for place in range(100):
        begin = start + STEP * place / 100
        launch = None if place < round(100 * strength) else max(begin - 3_000, start)
        made.kernel(BF16_GEMM, begin, STEP / 100, launch=launch)


def full_memory(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start)
    said = {"Device Type": 1, "Device Id": 0, "Total Reserved": round((40 << 30) * strength)}
    made.events.append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": start, "args": said})
