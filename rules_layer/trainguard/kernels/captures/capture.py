"""The ranks of a capture and its snapshots, read and judged, to the verdict: the same in the stack and here."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from trainguard.core.text import one_line
from trainguard.kernels.columns import is_cut
from trainguard.kernels.document import AcrossRanks, RankProfile
from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.ranking import place_of
from trainguard.kernels.rules.finding import FEW_STEPS
from trainguard.kernels.rules.ranks import by_rule
from trainguard.kernels.rules.registry import MEMORY_RULES
from trainguard.kernels.verdict import (
    CaptureHead,
    CaptureStepShares,
    CaptureVerdict,
    Proof,
    RuleVerdict,
    SnapshotsHead,
    SnapshotVerdict,
)
from trainguard.kernels.waiting import compared, compared_places, groups_of, likes_of

MOST_RULES = 64
EVIDENCE = 3
NAMED = 8

LONGEST_TEXT = 400
LONGEST_NAME = 120


def is_judged(rank: RankProfile) -> bool:
    whole = rank.quality.is_whole and not is_cut(rank.quality.counts)
    return whole and rank.busy_ns > 0 and rank.step_count >= FEW_STEPS


_Profile = RankProfile | SnapshotProfile


def rule_verdicts(profiles: Sequence[_Profile], across: AcrossRanks | None) -> list[RuleVerdict]:
    found = by_rule(profiles, across)
    return sorted((_of_rule(rule, entries) for rule, entries in found.items()), key=_place)[:MOST_RULES]


def _place(found: RuleVerdict) -> tuple[Any, ...]:
    return place_of(
        found.rule,
        sure=bool(found.sure),
        gain_share=found.gain_share,
        severity=found.severity,
        gain_ns=found.gain_ns_per_step,
    )


def called(rank: _Profile) -> str:
    return _short(rank.trace.rpartition("/")[2]) if rank.rank is None else f"rank {rank.rank}"


def notes_of(ranks: Sequence[RankProfile], across: AcrossRanks | None) -> list[str]:
    """Return what traces lack and what could not be compared, the most frequent first."""
    times: dict[str, int] = {}
    for rank in ranks:
        for line in (*rank.quality.damaged, *rank.quality.missing):
            times[line] = times.get(line, 0) + 1
    lines = sorted(times, key=lambda line: -times[line])
    lines_shown = [f"{line} ({times[line]} of {len(ranks)} traces)" if len(ranks) > 1 else line for line in lines]
    return [_text(line) for line in (*([] if across is None else across.notes), *lines_shown)][:NAMED]


def _of_rule(rule: str, entries: Sequence[tuple[_Profile | None, KernelFinding]]) -> RuleVerdict:
    sure = [each for each in entries if each[1].confidence == "normal"]
    counted = sure or entries
    _, worst = max(counted, key=lambda each: (each[1].gain.share, each[1].severity.rank))
    return RuleVerdict(
        rule=rule,
        severity=max((each.severity for _, each in counted), key=lambda each: each.rank),
        kind=worst.kind,
        facts=[replace(each, value=_text(each.value)) if isinstance(each.value, str) else each for each in worst.facts],
        value=worst.value,
        threshold=worst.threshold,
        gain_ns_per_step=worst.gain.ns_per_step,
        gain_share=worst.gain.share,
        sure=len(sure),
        unsure=len(entries) - len(sure),
        ranks=[called(rank) for rank, _ in counted if rank is not None][:NAMED],
        evidence=[
            Proof(what=_short(each.what), duration_ns=each.duration_ns, count=each.count, step=each.step)
            for each in worst.evidence[:EVIDENCE]
        ],
    )


def _text(text: str) -> str:
    return one_line(text, LONGEST_TEXT)


def _short(text: str) -> str:
    return one_line(text, LONGEST_NAME)


GONE = "Its traces are gone."


def capture_verdict(
    head: CaptureHead,
    ranks: Sequence[RankProfile],
    across: AcrossRanks | None,
    unread: Mapping[str, str],
    snapshots: SnapshotVerdict | None = None,
) -> CaptureVerdict:
    """Return the verdict on a capture; ``ranks`` are of traces that could be read, ``unread`` has the others."""
    window = sum(rank.window_ns for rank in ranks)
    step_ns = [rank.mean_step_ns for rank in ranks if rank.steps]
    notes = [GONE] if not head.traces and snapshots is None else notes_of(ranks, across)
    return CaptureVerdict(
        **{name: getattr(head, name) for name in ("capture", "version", "run", "at", "traces")},
        folder=one_line(head.folder, LONGEST_TEXT),
        judged=sum(is_judged(rank) for rank in ranks),
        unread=len(unread),
        unread_why=_whys(unread),
        world_size=max((rank.world_size for rank in ranks if rank.world_size is not None), default=None),
        steps=max((rank.step_count for rank in ranks), default=0),
        gpus=sorted({one_line(gpu, LONGEST_NAME) for rank in ranks for gpu in rank.gpus if gpu})[:NAMED],
        busy_share=sum(rank.busy_ns for rank in ranks) / window if window else None,
        step_ns=round(float(np.median(step_ns))) if step_ns else None,
        rules=rule_verdicts(ranks, across),
        cut=sum(is_cut(rank.quality.counts) for rank in ranks),
        lost=sum(not rank.quality.is_whole and not is_cut(rank.quality.counts) for rank in ranks),
        notes=[*head.notes, *notes],
        framework=", ".join(sorted({one_line(rank.framework, LONGEST_NAME) for rank in ranks})[:NAMED]),
        memory=sum(any(each.device >= 0 for each in rank.memory) for rank in ranks),
        shares=capture_shares([rank for rank in ranks if is_judged(rank)]),
        snapshots=snapshots,
    )


def snapshot_verdict(
    head: SnapshotsHead, profiles: Sequence[SnapshotProfile], unread: Mapping[str, str]
) -> SnapshotVerdict:
    """Return the verdict on snapshots; ``profiles`` are of those that could be read, ``unread`` has the others."""
    damages = [f"{called(each)}: {line}" for each in profiles for line in each.damaged]
    return SnapshotVerdict(
        version=head.version,
        at=head.at,
        files=len(profiles) + len(unread),
        unread=len(unread),
        unread_why=_whys(unread),
        replaced=head.replaced,
        judged=judged_by(profiles),
        rules=rule_verdicts(profiles, None),
        notes=[*head.notes, *(_text(line) for line in damages)][:NAMED],
    )


def _whys(unread: Mapping[str, str]) -> dict[str, str]:
    return {_short(name): _text(unread[name]) for name in sorted(unread)[:NAMED]}


def judged_by(profiles: Sequence[SnapshotProfile]) -> dict[str, int]:
    """Return by rule how many snapshots have a GPU whose memory says whether it holds."""
    counts = {rule.name: sum(any(map(rule.is_said_by, each.memory)) for each in profiles) for rule in MEMORY_RULES}
    return {rule: count for rule, count in counts.items() if count}


def rank_place(rank: _Profile) -> tuple[bool, int, str]:
    return rank.rank is None, rank.rank or 0, rank.trace


# Of a rank's communication; where less can be compared with other ranks, the waiting is unknown.
COMPARED_LEAST = 0.5

_PRECISION = 1_000_000


def capture_shares(ranks: Sequence[RankProfile]) -> CaptureStepShares | None:
    waits = _waits(ranks)
    chosen = [at for at, rank in enumerate(ranks) if _has_steps(rank)]
    return _shares([ranks[at] for at in chosen], [waits.get(at) for at in chosen]) if chosen else None


def _has_steps(rank: RankProfile) -> bool:
    return bool(rank.steps) and rank.busy_ns > 0 and rank.window_ns > 0 and rank.gpu_idle is not None


def _waits(ranks: Sequence[RankProfile]) -> Mapping[int, float]:
    """Return by a rank's place how much of its communication is waiting, 0 to 1, where that is known."""
    places = compared_places(ranks)
    like = [ranks[place] for place in places]
    found = {}
    for group in groups_of(likes_of(like)):
        waiting = compared(like, group)
        for at in group:
            mine = [(each, each.ranks.index(at)) for each in waiting if at in each.ranks]
            total = sum(int(each.total_ns[row].sum()) for each, row in mine)
            if total and total >= COMPARED_LEAST * like[at].communication_kernels_ns:
                found[places[at]] = sum(int(each.wait_ns[row].sum()) for each, row in mine) / total
    return found


def _parts(rank: RankProfile, waits: float | None) -> dict[str, float]:
    exposed, idle = rank.exposed_communication_ns, rank.gpu_idle
    peers = exposed * (waits or 0.0)
    return {
        "compute": rank.compute_ns,
        "copies": rank.exposed_memory_ns,
        "communication": exposed - peers,
        "peers": peers,
        "loader": 0 if idle is None else idle.loader_ns,
        "host": 0 if idle is None else idle.host_ns,
        "other": 0 if idle is None else idle.other_ns,
    }


def _shares(ranks: Sequence[RankProfile], waits: Sequence[float | None]) -> CaptureStepShares:
    parts = [_parts(rank, each) for rank, each in zip(ranks, waits, strict=True)]
    window = sum(rank.window_ns for rank in ranks)
    starts = [(rank.start_unix_ns, rank.window_ns) for rank in ranks if rank.start_unix_ns is not None]
    shares = {name: _rounded(sum(each[name] for each in parts) / window) for name in parts[0]}
    return CaptureStepShares(
        ranks=len(ranks),
        rank=ranks[0].rank if len(ranks) == 1 else None,
        steps=max(rank.step_count for rank in ranks),
        start_s=min(start for start, _ in starts) / 1e9 if starts else None,
        end_s=max(start + lasts for start, lasts in starts) / 1e9 if starts else None,
        peers_known=any(each is not None for each in waits),
        **shares,
    )


def _rounded(share: float) -> float:
    """Return a share rounded down, so that all of them together are not over 1."""
    return int(max(share, 0.0) * _PRECISION) / _PRECISION
