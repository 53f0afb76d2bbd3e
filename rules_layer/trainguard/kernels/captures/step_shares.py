"""What the time of the steps of a capture goes into, as shares of it, rank by rank and over all ranks.

Formulas. A moment in which several things go on counts for the first of them: computation, communication (exposed: only
communication kernels run), copies. This is the split of HolisticTraceAnalysis' temporal breakdown, which calls the rest
idle. Idle time is split by what the host did until it had launched the next work (`trainguard.kernels.idle_causes`).
A collective ends on all ranks at once, so the rank with its shortest kernel came last, and what other ranks' kernels
last longer is their wait for it (`trainguard.kernels.ranks.waiting`); exposed communication is split in the proportion
of that wait to the time of the collectives that could be compared.
"""

from collections.abc import Mapping, Sequence

import msgspec

from trainguard.kernels.document import RankProfile
from trainguard.kernels.ranks.alike import groups_of, likes_of
from trainguard.kernels.ranks.waiting import compared
from trainguard.kernels.ranks.windows import compared_places

COMPARED_LEAST = 0.5
"""Of a rank's communication; where less can be compared with other ranks, how much of it is waiting is not known."""

_PRECISION = 1_000_000


class StepShares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the time of steps, 0 to 1; together they are at most 1.

    Attributes
    ----------
    ranks : int
        Over how many it is; a rank counts by the length of its window.
    rank : int or None
        Which one, where it is one and its trace says so.
    steps : int
        Most steps of a rank.
    start_s, end_s : float or None
        From the first to the last window, epoch seconds; None where no trace says its time.
    compute : float
        The GPU computes.
    copies : float
        It only copies or sets memory.
    communication : float
        It only communicates: the transfer; where nobody knows the waiting, that too.
    peers : float
        It only communicates, and waits for slower ranks; 0 where that is not known.
    peers_known : bool
        Whether it is known of any rank.
    loader, host, other : float
        It is idle: the host waits for data; the host has not launched the next work for another reason; something else.
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


class _Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds of a window."""

    compute: float
    copies: float
    communication: float
    peers: float
    loader: float
    host: float
    other: float


def rank_shares(ranks: Sequence[RankProfile]) -> list[StepShares]:
    """Return the shares of each rank that has steps and work of a GPU.

    Parameters
    ----------
    ranks : sequence of RankProfile
        Of one capture, each of one trace.
    """
    waits = _waits(ranks)
    return [_shares([rank], [waits.get(at)]) for at, rank in enumerate(ranks) if _has_steps(rank)]


def capture_shares(ranks: Sequence[RankProfile]) -> StepShares | None:
    """Return the shares over all ranks; None where none has steps and work of a GPU."""
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


def _parts(rank: RankProfile, waits: float | None) -> _Parts:
    exposed, idle = rank.exposed_communication_ns, rank.gpu_idle
    peers = exposed * (waits or 0.0)
    return _Parts(
        compute=rank.compute_ns,
        copies=rank.exposed_memory_ns,
        communication=exposed - peers,
        peers=peers,
        loader=0 if idle is None else idle.loader_ns,
        host=0 if idle is None else idle.host_ns,
        other=0 if idle is None else idle.other_ns,
    )


def _shares(ranks: Sequence[RankProfile], waits: Sequence[float | None]) -> StepShares:
    parts = [_parts(rank, each) for rank, each in zip(ranks, waits, strict=True)]
    window = sum(rank.window_ns for rank in ranks)
    starts = [(rank.start_unix_ns, rank.window_ns) for rank in ranks if rank.start_unix_ns is not None]
    shares = {name: _rounded(sum(getattr(each, name) for each in parts) / window) for name in _Parts.__struct_fields__}
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
