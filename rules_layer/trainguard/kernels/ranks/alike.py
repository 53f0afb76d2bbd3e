"""Which ranks may be compared: the same GPU, and mostly the same kernels. A stage of a pipeline is none of the next."""

from collections.abc import Sequence

from trainguard.kernels.document import RankProfile

NAMES = 50
LEAST_SHARED = 0.5


def likes_of(ranks: Sequence[RankProfile]) -> list[int]:
    """Return for each rank the number of its group; a rank joins the first group whose first member is like it."""
    firsts: list[tuple[tuple[str, ...], frozenset[str]]] = []
    numbers = []
    for rank in ranks:
        gpus, names = tuple(sorted(set(rank.gpus))), _names(rank)
        for number, (other_gpus, other_names) in enumerate(firsts):
            if gpus == other_gpus and _shared(names, other_names) >= LEAST_SHARED:
                numbers.append(number)
                break
        else:
            numbers.append(len(firsts))
            firsts.append((gpus, names))
    return numbers


def groups_of(likes: Sequence[int]) -> list[list[int]]:
    """Return the places of the ranks of each group of like ones."""
    return [[place for place, like in enumerate(likes) if like == number] for number in sorted(set(likes))]


def _names(rank: RankProfile) -> frozenset[str]:
    return frozenset(kernel.name for kernel in [each for each in rank.kernels if not each.communication][:NAMES])


def _shared(some: frozenset[str], others: frozenset[str]) -> float:
    """Return what share of all names both have; 1 where neither has any."""
    return len(some & others) / len(some | others) if some | others else 1.0
