"""The time of a capture's steps as shares, rank by rank and over all ranks.

A moment counts for the first of computation, communication and copies, as in HolisticTraceAnalysis; exposed
communication is split by `trainguard.kernels.ranks.waiting`, idle time by `trainguard.kernels.gpu_times`.
"""

from collections.abc import Mapping, Sequence

import msgspec

from trainguard.kernels.document import RankProfile
from trainguard.kernels.ranks.waiting import compared, compared_places, groups_of, likes_of

COMPARED_LEAST = 0.5
"""Of a rank's communication; where less can be compared with other ranks, the waiting is unknown."""

_PRECISION = 1_000_000


class StepShares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the time of steps, 0 to 1; together they are at most 1.

    ``ranks`` count by the length of their windows, ``rank`` is None of several, ``steps`` are the most of a rank.
    ``start_s`` and ``end_s`` are epoch seconds, None without times. ``communication`` is the transfer, and the waiting
    where that is unknown; ``peers`` waits for slower ranks. In ``loader``, ``host`` and ``other`` the GPU is idle: the
    host waits for data, or has not launched the next work, or neither.
    """

    ranks: int
    steps: int
    rank: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    compute: float
    copies: float
    communication: float
    peers: float
    peers_known: bool
    loader: float
    host: float
    other: float


def rank_shares(ranks: Sequence[RankProfile]) -> list[StepShares]:
    """Return the shares of each rank of one capture that has steps and work of a GPU."""
    waits = _waits(ranks)
    return [_shares([rank], [waits.get(at)]) for at, rank in enumerate(ranks) if _has_steps(rank)]


def capture_shares(ranks: Sequence[RankProfile]) -> StepShares | None:
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


def _shares(ranks: Sequence[RankProfile], waits: Sequence[float | None]) -> StepShares:
    parts = [_parts(rank, each) for rank, each in zip(ranks, waits, strict=True)]
    window = sum(rank.window_ns for rank in ranks)
    starts = [(rank.start_unix_ns, rank.window_ns) for rank in ranks if rank.start_unix_ns is not None]
    shares = {name: _rounded(sum(each[name] for each in parts) / window) for name in parts[0]}
    return StepShares(
        ranks=len(ranks),
        rank=ranks[0].rank if len(ranks) == 1 else None,
        steps=max(len(rank.steps) + rank.steps_left_out for rank in ranks),
        start_s=min(start for start, _ in starts) / 1e9 if starts else None,
        end_s=max(start + lasts for start, lasts in starts) / 1e9 if starts else None,
        peers_known=any(each is not None for each in waits),
        **shares,
    )


def _rounded(share: float) -> float:
    """Return a share rounded down, so that all of them together are not over 1."""
    return int(max(share, 0.0) * _PRECISION) / _PRECISION
