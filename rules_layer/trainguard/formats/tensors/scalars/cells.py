"""Numbers as people and programs write them in cells: with units, commas, quotes, or as nothing at all."""

import math
import re
from collections.abc import Iterable

ABSENT = frozenset({"", "n/a", "na", "nil", "null", "none", "-", "--", "<na>", "nat", "?"})
_PLAIN = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
_TENSOR = re.compile(r"tensor\(\s*\[?([^],)]{1,40})[],)].{0,200}", re.DOTALL)
_COMMA = re.compile(r"[-+]?\d*,\d+(?:[eE][-+]?\d+)?")
_POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")
_GROUPS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_GROUPS_WITH_COMMA = re.compile(r"[-+]?[1-9]\d{0,2}(?:[. '\u00a0\u202f]\d{3})+(?:,\d*)?")
# It may be a number of thousands as well.
_THREE_DIGITS = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")

# What Microsoft's C runtime wrote until Visual Studio 2013.
_UNDEFINED = (("1.#INF", math.inf), ("1.#IND", math.nan), ("1.#QNAN", math.nan), ("1.#SNAN", math.nan))

# A longer text holds no number; a printed tensor may.
LONGEST = 64


def number_in(text: str, *, comma: bool = False) -> float | None:
    """Return the number in a cell, with a ``comma`` before its decimals or a point; None where there is none."""
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return _spelled(text.strip().strip("\"'"), comma=comma)


def _spelled(text: str, *, comma: bool) -> float | None:
    tensor = _TENSOR.fullmatch(text)
    text = (text if tensor is None else tensor[1]).strip()
    if not text or len(text) > LONGEST:
        return None
    text = text.removesuffix("%").rstrip()
    if comma and (_COMMA.fullmatch(text) or _GROUPS_WITH_COMMA.fullmatch(text)):
        text = re.sub(r"[. '\u00a0\u202f]", "", text).replace(",", ".")
    elif not comma and _GROUPS.fullmatch(text):
        text = text.replace(",", "")
    if _PLAIN.fullmatch(text):
        return float(text)
    sign = -1.0 if text.startswith("-") else 1.0
    return next((sign * value for spelled, value in _UNDEFINED if text.lstrip("+-").upper() == spelled), None)


def have_commas(cells: Iterable[str]) -> bool:
    """Whether cells write numbers with a comma before decimals: where one shows that, and none a point."""
    commas = points = False
    for cell in cells:
        text = cell.strip().strip("\"'")
        unsure = _THREE_DIGITS.fullmatch(text) is not None
        commas = commas or (not unsure and _COMMA.fullmatch(text) is not None) or _with_groups(text)
        points = points or (not unsure and (_POINT.fullmatch(text) is not None or _GROUPS.fullmatch(text) is not None))
    return commas and not points


def _with_groups(text: str) -> bool:
    return "," in text and _GROUPS_WITH_COMMA.fullmatch(text) is not None


def is_absent(text: str) -> bool:
    """Whether a cell says that there is no value."""
    return text.strip().strip("\"'[]").lower() in ABSENT
