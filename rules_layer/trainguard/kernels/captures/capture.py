"""The ranks of a capture, read and judged, to the verdict on it: the same in the stack and on this machine."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from trainguard.kernels.captures.judging import (
    LONGEST_NAME,
    LONGEST_TEXT,
    NAMED,
    is_judged,
    named_faults,
    notes_of,
    rule_verdicts,
)
from trainguard.kernels.captures.step_shares import capture_shares
from trainguard.kernels.captures.verdict import CaptureVerdict
from trainguard.kernels.columns import is_cut
from trainguard.kernels.document import RankProfile
from trainguard.kernels.ranks.entries import AcrossRanks
from trainguard.plain_text import one_line

GONE = "Its traces are gone."


class CaptureHead(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a capture before its traces are read; see `CaptureVerdict`.

    ``notes`` say what was left out.
    """

    capture: str
    version: str
    run: str
    folder: str
    at: float
    traces: int
    notes: Sequence[str] = ()


def capture_verdict(
    head: CaptureHead, ranks: Sequence[RankProfile], across: AcrossRanks | None, unread: Mapping[str, str]
) -> CaptureVerdict:
    """Return what is said of a capture.

    Parameters
    ----------
    head : CaptureHead
    ranks : sequence of RankProfile
        Of the traces that could be read, in order of ranks.
    across : AcrossRanks or None
        These ranks beside each other.
    unread : mapping of str to str
        The names of those that could not be read, and why.
    """
    window = sum(rank.window_ns for rank in ranks)
    with_steps = [rank for rank in ranks if rank.steps]
    notes = notes_of(ranks, across) if head.traces else [GONE]
    return CaptureVerdict(
        capture=head.capture,
        version=head.version,
        run=head.run,
        folder=one_line(head.folder, LONGEST_TEXT),
        at=head.at,
        traces=head.traces,
        judged=sum(is_judged(rank) for rank in ranks),
        unread=len(unread),
        unread_why=named_faults(unread),
        world_size=max((rank.world_size for rank in ranks if rank.world_size is not None), default=None),
        steps=max((len(rank.steps) + rank.steps_left_out for rank in ranks), default=0),
        gpus=sorted({one_line(gpu, LONGEST_NAME) for rank in ranks for gpu in rank.gpus if gpu})[:NAMED],
        busy_share=sum(rank.busy_ns for rank in ranks) / window if window else None,
        step_ns=round(float(np.median([_mean_step(rank) for rank in with_steps]))) if with_steps else None,
        rules=rule_verdicts(ranks, across),
        cut=sum(is_cut(rank.quality.counts) for rank in ranks),
        notes=[*head.notes, *notes],
        framework=", ".join(sorted({one_line(rank.framework, LONGEST_NAME) for rank in ranks})[:NAMED]),
        shares=capture_shares([rank for rank in ranks if is_judged(rank)]),
    )


def rank_place(rank: RankProfile) -> tuple[bool, int, str]:
    """Return a key for sorting ranks: by their numbers, those without one last."""
    return rank.rank is None, rank.rank or 0, rank.trace


def _mean_step(rank: RankProfile) -> float:
    return sum(step.gpu_duration_ns for step in rank.steps) / len(rank.steps)
