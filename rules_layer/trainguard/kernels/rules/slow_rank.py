"""A rank computes more slowly than others."""

from collections.abc import Iterator, Sequence

import numpy as np

from trainguard.core.finding import Fact, Severity
from trainguard.kernels.ranks.entries import RankLine
from trainguard.kernels.rules.finding import FEW_STEPS, Evidence, Gain, KernelFinding, capped, rank_name
from trainguard.kernels.rules.rule import ACROSS, KernelRule
from trainguard.kernels.rules.text import Saying
from trainguard.kernels.rules.thresholds import Number
from trainguard.kernels.words import counted
from trainguard.ledger.bucket import Bucket
from trainguard.rules.rule_result import FactSheet, Measure


def _summary(sheet: FactSheet) -> str:
    longer = f"computes {sheet.number('compute_ratio'):.2f} times as long as"
    others = counted(int(sheet.number("like_ranks")), "like rank")
    return f"{sheet.name('slow_rank')} {longer} the median of {others}."


class SlowRank(KernelRule):
    """Fires for each rank that computes longer than the other ranks that are like it."""

    title = "A slow rank"
    looks_at = ACROSS
    fires_when = "a rank computes {times} times as long as the median of the other like ranks, and is not the late one"
    measure = Measure("times the median of like ranks")
    claims = (Bucket.PEERS,)
    says = (
        Saying(
            "slow_rank",
            _summary,
            advice="Balance the work between the ranks, and look at this rank's GPU: clocks, temperature, other "
            "programs on it.",
            clause="a rank computed more slowly than others",
        ),
    )

    times: Number = 1.1
    times_high: Number = 1.5

    def judge_ranks(self, lines: Sequence[RankLine]) -> Iterator[tuple[int, KernelFinding]]:
        """Yield the place of each slow rank, and what is found of it."""
        for place, line in enumerate(lines):
            others = [each.compute_ns for at, each in enumerate(lines) if at != place and each.like == line.like]
            median = float(np.median(others)) if others else 0.0
            if not median or line.compute_ns < self.times * median:
                continue
            name, ratio, more = rank_name(line.rank, line.trace), line.compute_ns / median, line.compute_ns - median
            share = more / line.step_ns if line.step_ns else 0.0
            yield (
                place,
                self.found(
                    [
                        Fact(name="compute_ratio", value=round(ratio, 3), threshold=self.times),
                        Fact(name="slow_rank", value=name),
                        Fact(name="like_ranks", value=len(others)),
                    ],
                    severity=capped(Severity.HIGH if ratio >= self.times_high else Severity.MEDIUM, line.steps),
                    evidence=[
                        Evidence(
                            what=f"{name}, computation of a step",
                            duration_ns=line.compute_ns,
                        )
                    ],
                    gain=Gain(ns_per_step=round(more), share=round(share, 4)),
                    confidence="normal" if line.steps >= FEW_STEPS else "low",
                ),
            )
