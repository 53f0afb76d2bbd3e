"""Experts that are not balanced: within a rank by the rows of products, between ranks by what they exchange."""

from collections.abc import Sequence

import pytest

from tests.support.kernel_traces import A100 as GPU
from tests.support.kernel_traces import BF16_GEMM, STREAM, TraceWriter, judged
from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.join import across_ranks

INNER, COLUMNS, STEP = 4096, 4096, 10_000.0


def products(rows: Sequence[int]) -> KernelFinding | None:
    """Steps full of slow products with these numbers of rows."""
    made = TraceWriter(gpus=[{**GPU, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}])
    lasts = (STEP - 200) / len(rows)
    for step in range(4):
        made.step(step, STEP * step, STEP)
        for place, each in enumerate(rows):
            at = STEP * step + 100 + lasts * place
            made.launched += 1
            ids = {"correlation": made.launched, "External id": made.launched}
            shaped = {"Input Dims": [[each, INNER], [INNER, COLUMNS]], "Input type": ["c10::BFloat16"] * 2}
            made.event("cpu_op", "aten::mm", at - 60, 30, args={"External id": made.launched} | shaped)
            made.event("cuda_runtime", "cudaLaunchKernel", at - 50, 5, args=ids)
            made.event("kernel", BF16_GEMM, at, lasts, args=ids | {"device": 0, "stream": STREAM, "blocks per SM": 4})
    return next((each for each in judged(made.text()).findings if each.id == "kernels/SlowOperators"), None)


@pytest.mark.parametrize(
    ("rows", "uneven"),
    [
        ([512, 72, 64, 80], True),
        ([512, 72, 64], False),
        ([136, 128, 144, 152], False),
        ([512, 256, 248, 264], False),
    ],
)
def test_four_groups_with_twice_the_mean_are_uneven(rows: list[int], *, uneven: bool) -> None:
    found = products(rows)
    assert found is not None
    assert (found.kind == "slow_operators_uneven") == uneven
    if uneven:
        facts = {fact.name: fact.value for fact in found.facts}
        assert (facts["groups"], facts["most_rows"], facts["mean_rows"]) == (len(rows), max(rows), 182)


def exchanging(rank: int, more: float, elements: int | None, name: str = "all_to_allv") -> RankProfile:
    """A rank that computes for a part of each step, then exchanges up to its end."""
    made = TraceWriter(rank=rank)
    for step in range(6):
        at = STEP * step
        made.step(step, at, STEP)
        made.kernel(BF16_GEMM, at, 4_000 * more, launch=at + 1)
        made.launched += 1
        ids = {"correlation": made.launched}
        made.event("cuda_runtime", "cudaLaunchKernel", at + 10, 5, args=ids)
        said = {"device": 0, "stream": 20, "Collective name": name, "dtype": "BFloat16"}
        said |= {} if elements is None else {"In msg nelems": 1_000, "Out msg nelems": elements}
        begin = at + 4_000 * more
        made.event("kernel", "ncclDevKernel_SendRecv", begin, 9_000 - 4_000 * more, args=ids | said)
    return judged(made.text())


def said_of(more: float, elements: int | None, name: str = "all_to_allv") -> dict[str, object]:
    ranks = [exchanging(rank, more if rank == 2 else 1.0, elements if rank == 2 else 1_000, name) for rank in range(4)]
    across = across_ranks(ranks)
    assert across is not None
    (found,) = (each for each in across.findings if each.id == "kernels/LateRank")
    return {fact.name: fact.value for fact in found.facts}


def test_a_rank_with_more_tokens_exchanges_more() -> None:
    facts = said_of(1.5, 2_000)
    assert (facts["late_rank"], facts["exchange_ratio"], facts["compute_ratio"]) == ("Rank 2", 2.0, 1.5)
    assert "Balance what the ranks hold" in str(facts["remedy"])


@pytest.mark.parametrize(
    ("more", "elements", "name"),
    [(1.5, 1_099, "all_to_allv"), (1.5, None, "all_to_allv"), (1.5, 2_000, "allreduce")],
)
def test_other_late_ranks_say_nothing_of_experts(more: float, elements: int | None, name: str) -> None:
    facts = said_of(more, elements, name)
    assert "exchange_ratio" not in facts
    assert "remedy" not in facts
