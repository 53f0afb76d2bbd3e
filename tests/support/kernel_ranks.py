"""Ranks of one job as written traces, with a rank that is late or slow by as much as a test says."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.kernel_traces import BF16_GEMM, COMMUNICATION_STREAM, NCCL, TraceWriter, judged
from trainguard.kernels.document import RankProfile

STEP_US = 10_000.0
TRANSFER_US = 500.0


def job(
    work_us: Sequence[float],
    *,
    delay_us: Mapping[int, float] | None = None,
    steps: int = 5,
    world_size: int | None = None,
    clock_us: Mapping[int, float] | None = None,
    gemms: Mapping[int, str] | None = None,
) -> list[RankProfile]:
    """Return a profile a rank, as `documents` writes them."""
    made = documents(work_us, delay_us=delay_us, steps=steps, world_size=world_size, clock_us=clock_us, gemms=gemms)
    return [judged_document(each) for each in made]


def documents(
    work_us: Sequence[float],
    *,
    delay_us: Mapping[int, float] | None = None,
    steps: int = 5,
    world_size: int | None = None,
    clock_us: Mapping[int, float] | None = None,
    gemms: Mapping[int, str] | None = None,
) -> list[dict[str, Any]]:
    """Return a trace a rank: each computes, then all-reduces with the others, which ends on all at once.

    Parameters
    ----------
    work_us : sequence of float
        How long each rank computes in a step.
    delay_us : mapping
        How much later a rank begins to compute, by rank: its host holds it up.
    clock_us : mapping
        How far a rank's clock is ahead, by rank.
    gemms : mapping
        The kernel of a rank that runs another one.
    """
    delays, clocks = delay_us or {}, clock_us or {}
    arrivals = [STEP_US * 0.05 + delays.get(rank, 0.0) + work for rank, work in enumerate(work_us)]
    ends = max(arrivals) + TRANSFER_US
    step_us = max(ends + 100.0, STEP_US)
    ranks = []
    for rank, work in enumerate(work_us):
        made = TraceWriter(rank=rank)
        for step in range(steps):
            begin = step * step_us + clocks.get(rank, 0.0) + 1_000.0
            made.step(step, begin, step_us)
            start = begin + STEP_US * 0.05 + delays.get(rank, 0.0)
            made.kernel((gemms or {}).get(rank, BF16_GEMM), start, work, launch=begin + 10)
            comes = begin + arrivals[rank]
            made.kernel(NCCL, comes, begin + ends - comes, launch=begin + 20, stream=COMMUNICATION_STREAM)
        document = made.document()
        document["distributedInfo"]["world_size"] = world_size or len(work_us)
        ranks.append(document)
    return ranks


def judged_document(document: dict[str, object]) -> RankProfile:
    """Return the profile of a document."""
    return judged(json.dumps(document).encode())
