"""Regular expressions over names of tensors, from files that anybody may have written: they cannot take forever.

Python's engine backtracks: with k pieces of free length, a name of n characters takes at most about n ** (k + 1) / (k +
1)! steps, n ** k / k! after ``^``, times 2 for each ``?``, times the branches. A repeat within a repeat takes
exponential time and is refused, and so are names that cost too much. No clock is read: the same input gives the same
answer.
"""

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache

LONGEST_PATTERN = 1_000
# Steps of one search at worst, under a second; ``.*relu_output`` takes 5,000 for a name of 100 characters.
COSTLIEST_SEARCH = 20_000_000

_BRACES = re.compile(r"\{(\d*)(,?)(\d*)\}")
_FLAGS = re.compile(r"\(\?([aiLmsux]+)(?:-[imsx]+)?[):]")
_OPENING = re.compile(r"\((?:\?(?:P<\w+>|<?[=!]|:|>))?")


class NamePatternError(ValueError):
    """A regular expression that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A regular expression that is searched in names; ``free`` and ``factor`` give the cost of a search."""

    text: str
    free: int
    factor: int
    compiled: re.Pattern[str] = field(compare=False)

    def cost(self, name: str) -> int:
        steps: int = self.factor * (len(name) + 1) ** self.free
        return steps // math.factorial(self.free)

    def matches(self, name: str) -> bool:
        """Whether it is found in a name; raises NamePatternError where the search could take too long."""
        if self.cost(name) > COSTLIEST_SEARCH:
            raise NamePatternError(f"a search in a name of {len(name)} characters could take too long")
        return self.compiled.search(name) is not None


@lru_cache(maxsize=1_024)
def name_pattern(text: str) -> NamePattern:
    """Read a regular expression.

    Raises NamePatternError when it is longer than 1,000 characters, is none, repeats what has a free length or
    branches, or refers back to a group.
    """
    if len(text) > LONGEST_PATTERN:
        raise NamePatternError(f"{len(text):,} characters, expected at most {LONGEST_PATTERN:,}")
    try:
        compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError) as fault:
        raise NamePatternError(f"no regular expression: {fault}") from fault
    shape = _Shape(text)
    shape.read()
    return NamePattern(text, shape.free, shape.factor, compiled)


@dataclass(slots=True)
class _Group:
    branches: int = 1
    varies: bool = False


class _Shape:
    """Counts what makes a search with a valid regular expression slow."""

    def __init__(self, text: str) -> None:
        self.free = 0
        self.factor = 1
        self._text = text
        self._open = [_Group()]
        self._last: _Group | None = None

    def read(self) -> None:
        """Count; raises NamePatternError where a search could take exponential time."""
        place = 0
        while place < len(self._text):
            place = self._piece(place)
        self.factor *= self._open[0].branches
        if not self._text.startswith("^") or self._open[0].branches > 1:
            self.free += 1

    def _piece(self, place: int) -> int:
        text = self._text
        each = text[place]
        if each == "\\":
            if text[place + 1].isdigit() and text[place + 1] != "0":
                raise NamePatternError("refers back to a group, which may take exponential time")
            self._last = None
            return place + 2
        if each == "[":
            self._last = None
            return _class_end(text, place)
        if each == "(":
            return self._enter(place)
        if each == ")":
            self._leave()
        elif each == "|":
            self._open[-1].branches += 1
        elif each in "*+?":
            return self._repeat(place + 1, endless=each != "?", varies=True)
        elif each == "{" and (braces := _BRACES.match(text, place)) and (braces[1] or braces[3]):
            return self._repeat(braces.end(), endless=True, varies=bool(braces[2]) and braces[1] != braces[3])
        else:
            self._last = None
        return place + 1

    def _enter(self, place: int) -> int:
        text = self._text
        if flags := _FLAGS.match(text, place):
            if "x" in flags[1]:
                raise NamePatternError("has the flag x, expected a pattern without comments")
            if flags[0].endswith(")"):
                return flags.end()
            self._open.append(_Group())
            return flags.end()
        opening = _OPENING.match(text, place)
        if opening is None or (opening[0] == "(" and text.startswith("(?", place)):
            raise NamePatternError(
                f"{text[place : place + 4]!r} is not supported, expected plain groups and lookarounds"
            )
        self._open.append(_Group())
        return opening.end()

    def _leave(self) -> None:
        self._last = group = self._open.pop()
        self.factor *= group.branches
        above = self._open[-1]
        above.varies = above.varies or group.varies or group.branches > 1

    def _repeat(self, place: int, *, endless: bool, varies: bool) -> int:
        """Count a repeat that ends before ``place``; a lazy or possessive mark after it belongs to it."""
        group = self._last
        if endless and group is not None and (group.varies or group.branches > 1):
            raise NamePatternError("repeats a group of free length, which may take exponential time")
        if varies:
            self._open[-1].varies = True
            if endless:
                self.free += 1
            else:
                self.factor *= 2
        self._last = None
        return place + 1 if self._text[place : place + 1] in {"?", "+"} else place


def _class_end(text: str, place: int) -> int:
    """Return where a class of characters is over; its first member may be a bracket."""
    place += 2 if text.startswith("[^", place) else 1
    first = True
    while first or text[place] != "]":
        place += 2 if text[place] == "\\" else 1
        first = False
    return place + 1
