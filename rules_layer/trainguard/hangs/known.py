"""What is kept of a verdict on a hang: as much as a rule, a row and a page say, with the node of each culprit."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from trainguard.hangs.verdict import Culprit, HangVerdict
from trainguard.rules.standstill import MOST_KNOWN, KnownHang, KnownRank

# Characters of a line of code; of a longer one the end, which has the function.
LONGEST_LINE = 200

_NO_NODES: Mapping[int, str] = MappingProxyType({})


def known_hang(
    verdict: HangVerdict, nodes: Mapping[int, str] = _NO_NODES, *, version: str = "", at: float = 0.0, files: int = 0
) -> KnownHang:
    """Return the facts of a verdict; ``nodes`` are those that the files of ranks lie under."""
    ranks = sorted(nodes)
    return KnownHang(
        version=version,
        at=at,
        named=tuple(_known(each, verdict, nodes, ranks) for each in verdict.details[:MOST_KNOWN]),
        culprits=len(verdict.culprits),
        waiting=len(verdict.victims),
        without_dump=len(verdict.without_dump),
        ranks=verdict.ranks,
        operation=verdict.operation,
        group=verdict.group_description or verdict.group,
        sequence=verdict.sequence,
        waiting_line=verdict.waiting_line[-LONGEST_LINE:],
        files=files,
        unread=len(verdict.unread),
    )


def _known(culprit: Culprit, verdict: HangVerdict, nodes: Mapping[int, str], ranks: Sequence[int]) -> KnownRank:
    is_awaited = culprit.group == verdict.group
    return KnownRank(
        rank=culprit.rank,
        kind=culprit.kind,
        node=nodes.get(culprit.rank) or _node_between(culprit.rank, nodes, ranks),
        operation=culprit.operation,
        group=(verdict.group_description if is_awaited else "") or culprit.group,
        sequence=culprit.sequence,
        line=culprit.line[-LONGEST_LINE:],
        doing=culprit.doing,
        waiting=culprit.waiting,
    )


def _node_between(rank: int, nodes: Mapping[int, str], ranks: Sequence[int]) -> str:
    """Return the node of a rank without a file: that of the ranks before and behind it, where it is the same."""
    place = bisect_left(ranks, rank)
    if not 0 < place < len(ranks):
        return ""
    before, behind = nodes[ranks[place - 1]], nodes[ranks[place]]
    return before if before == behind else ""
