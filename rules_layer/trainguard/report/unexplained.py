"""Time in which GPUs were not busy and that no finding accounts for: as long as there is much of it, a job is not fine.

Time before a node's first active snapshot is start-up, which a rule of its own evaluates, and no part of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from trainguard.engine.verdicts.overlap import SLACK_S, Span, covered_s
from trainguard.families.kernels.streams import CaptureStreams
from trainguard.finding import clock_times
from trainguard.kernels.captures.keys import KERNELS
from trainguard.kernels.findings.explained import IDLE_CAUSES
from trainguard.pricing.cost import Bill
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.facts import LOW_USE
from trainguard.report.phrasing import listed, show_money, show_share
from trainguard.timestamps import iso_time

SIZEABLE_SHARE = 0.15
"""From this share of the paid time on, time that is not explained is named."""

NAMED_SPANS = 3
PROFILED_EXPLAINED, PROFILED_USE = 0.5, 0.5
"""A kernel profile says why GPUs are idle where its findings explain half of the idle time of its steps. That holds for
time in which the GPUs are at least half as busy as in these steps: where they do less, something else goes on."""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Time of low GPUs without a reason: ``share``, 0 to 1, of the paid time, on which nodes, and when."""

    share: float
    nodes: tuple[str, ...]
    spans: tuple[Span, ...]
    lost: str | None

    @property
    def sentence(self) -> str:
        """Say what is not explained, when and where."""
        shown = [clock_times(iso_time(start), iso_time(end)) for start, end in self.spans[:NAMED_SPANS]]
        more = len(self.spans) - NAMED_SPANS
        times = listed(shown) if more <= 0 else ", ".join(shown)
        also = "" if more <= 0 else " and once more" if more == 1 else f" and {more} times more"
        money = "" if self.lost is None else f", {self.lost}"
        return (
            f"no rule says why the GPUs of {listed(self.nodes)} were less than {LOW_USE:.0f} % busy {times}{also} "
            f"({show_share(self.share)} of the paid time{money})"
        )


def unexplained(judged: EvaluatedJob) -> Unexplained | None:
    """Return the time of low GPUs that no finding accounts for; None where it is no sizeable part of the paid time."""
    started_at, until = judged.account.started_at, judged.streams.watermark_s
    if started_at is None or until is None or any(not finding.episodes for finding in judged.findings):
        return None
    paid_s = (until - started_at - judged.account.unpaid_s) * judged.account.nodes
    spans: dict[str, list[Span]] = {}
    for node in judged.profiler.system:
        found = [*_low(judged, node, until)]
        if found:
            spans[node] = found
    low_s = sum(end - start for of_node in spans.values() for start, end in of_node)
    if paid_s <= 0.0 or low_s < SIZEABLE_SHARE * paid_s:
        return None
    bill, share = judged.account.bill(), min(low_s / paid_s, 1.0)
    return Unexplained(
        share=share,
        nodes=tuple(sorted(spans, key=lambda name: (len(name), name))),
        spans=tuple(_joined(span for of_node in spans.values() for span in of_node)),
        lost=show_money(share * bill.spent, bill.currency) if isinstance(bill, Bill) else None,
    )


def _low(judged: EvaluatedJob, node: str, until: float) -> Iterator[Span]:
    """Yield the steps at which a node's GPUs were low, but those that lie mostly within an episode of a finding."""
    state = judged.profiler.system[node].state
    active_at = state.kept.first_active_at
    if active_at is None or not state.gpu_names:
        return
    covered = [
        (episode.start - SLACK_S, (until if episode.end is None else episode.end) + SLACK_S)
        for finding in judged.findings
        for episode in finding.episodes
        if not episode.nodes or node in episode.nodes
    ]
    profiled = _profiled_use(judged)
    for step in state.use.steps(until):
        if profiled is not None and step.percent >= PROFILED_USE * profiled:
            continue
        span = max(step.start, active_at), step.end
        length_s = span[1] - span[0]
        if step.percent < LOW_USE and length_s > 0.0 and covered_s(span, covered) < length_s / 2.0:
            yield span


def _profiled_use(judged: EvaluatedJob) -> float | None:
    """Return how busy the GPUs are in the newest kernel profile, percent, where it says why they are idle."""
    family = judged.streams.families.get(KERNELS)
    stream = family.stream if isinstance(family, CaptureStreams) else None
    verdict = None if stream is None else stream.state.verdict
    if verdict is None or verdict.shares is None or verdict.busy_share is None:
        return None
    idle = verdict.shares.loader + verdict.shares.host + verdict.shares.other
    explained = sum(found.gain_share for found in verdict.rules if found.sure and found.rule in IDLE_CAUSES)
    return 100.0 * verdict.busy_share if idle and explained >= PROFILED_EXPLAINED * idle else None


def _joined(spans: Iterator[Span]) -> list[Span]:
    """Return spans in order, those that touch as one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined
