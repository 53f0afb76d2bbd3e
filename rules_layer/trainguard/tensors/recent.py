"""Which past steps make room for new ones: those of the sets of tensors that are saved most often.

A run saves its loss at every step and its weights at every hundredth. The newest steps alone would never hold weights
twice. So each set of tensors keeps newest steps of its own.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import TypeVar

MOST_OF_A_SET = 64
MOST_OF_ALL = 256

T = TypeVar("T")


def forget(
    steps: list[T], set_of: Callable[[T], Hashable], is_over: Callable[[list[T]], bool], *, most: int = MOST_OF_A_SET
) -> None:
    """Drop steps until at most 64 of each set of tensors and 256 in all are left, and ``is_over`` is False.

    Parameters
    ----------
    steps : list
        In order, the newest last; the newest is never dropped. Changed in place.
    set_of : callable
        Returns a step's mode and set of tensors.
    is_over : callable
        Whether steps take more room than there is.
    most : int
        Steps of each set.
    """
    sets = [set_of(step) for step in steps]
    counts = Counter(sets)
    while len(steps) > 1:
        largest = max(counts.values())
        if largest <= most and len(steps) <= MOST_OF_ALL and not is_over(steps):
            return
        place = next(place for place, each in enumerate(sets) if counts[each] == largest)
        counts[sets[place]] -= 1
        del steps[place], sets[place]
