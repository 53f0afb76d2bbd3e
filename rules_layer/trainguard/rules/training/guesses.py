"""Whether a loss and a share of right answers are those of a guess, by the cross entropy."""

import math

# A share of right answers above it is not looked at: a good model comes near 1 too.
CHANCE_BELOW = 0.65

AT_CHANCE, NEAR_CHANCE = 1.2, 0.8
# A loss may be of a regression, and any number: its exponential is not.
LARGEST_LOSS = 50.0

NEAR_GUESS = 0.05
# Beyond ten classes the logarithms lie so close that any loss is near one.
MOST_CLASSES, NEAR_EVEN_GUESS, AT_GUESS = 10, 0.005, 0.03


def guesses(share: float, loss: float) -> bool:
    """Whether a share of right answers is no better than its cross entropy implies for a guess, or worse."""
    return 0.0 <= share < CHANCE_BELOW and _times_chance(share, loss) <= AT_CHANCE


def guesses_exactly(share: float, loss: float) -> bool:
    """Whether a share of right answers and a cross entropy are those of a guess."""
    return guesses(share, loss) and _times_chance(share, loss) >= NEAR_CHANCE


def _times_chance(share: float, loss: float) -> float:
    return share * math.exp(min(loss, LARGEST_LOSS))


def says_one_thing(share: float, loss: float) -> bool:
    """Whether a share and a loss are those of who gives every sample the frequency of one of two classes."""
    if not 0.5 <= share < 1.0:
        return False
    entropy = -share * math.log(share) - (1.0 - share) * math.log(1.0 - share)
    return any(abs(loss / guess - 1.0) <= NEAR_GUESS for guess in (entropy, share * (1.0 - share)))


def classes_guessed(loss: float) -> int | None:
    """Return among how many classes, ten at most, a guess has this cross entropy: k of ln k; None for none."""
    for classes in range(2, MOST_CLASSES + 1):
        if abs(loss / math.log(classes) - 1.0) <= NEAR_EVEN_GUESS:
            return classes
    return None
