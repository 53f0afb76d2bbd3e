"""Numbers, names and money for people."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

SECONDS_BELOW_S = 300.0
MINUTES_BELOW_S = 7_200.0


def show_number(value: float) -> str:
    """At most one decimal, thousands set apart: ``31``, ``30.9``, ``1,004``."""
    rounded = round(value, 1) + 0.0  # no minus before a zero
    return f"{rounded:,.0f}" if rounded == round(rounded) else f"{rounded:,.1f}"


def show_percent(value: float) -> str:
    return f"{show_number(value)} %"


def show_percentage_points(value: float) -> str:
    shown = show_number(value)
    return f"{shown} percentage point" if shown == "1" else f"{shown} percentage points"


_FAULTS = {
    "devices_not_judged": ("device that is not judged", "devices that are not judged"),
    "uncertain_series": ("series that may mix several writers", "series that may mix several writers"),
    "runs_not_judged": ("run beside the newest", "runs beside the newest"),
    "bad_objects": ("object that could not be read", "objects that could not be read"),
    "scalars_out_of_order": ("scalar out of order", "scalars out of order"),
    "unread_parts": ("part that could not be read", "parts that could not be read"),
    "files_of_other_kinds": ("file of another kind", "files of other kinds"),
    "files_of_other_runs": ("file of another run", "files of other runs"),
}

_AFTER_NOUN = frozenset({"cut", "given", "left", "out", "outside", "passed", "without"})


def faults_counted(amount: int, name: str) -> str:
    """Say how often a fault was counted under its name: ``1 bad line``, ``1 file left out``, ``2 files left out``.

    A name of several words is a reason as it stands: ``an event is cut (2)``.
    """
    if " " in name:
        return f"{name} ({amount:,})"
    words = name.split("_")
    noun = next((place for place, word in enumerate(words) if word in _AFTER_NOUN), len(words)) - 1
    one = [*words[:noun], words[noun].removesuffix("s"), *words[noun + 1 :]]
    single, several = _FAULTS.get(name, (" ".join(one), " ".join(words)))
    return f"{amount:,} {single if amount == 1 else several}"


def counted(amount: int, what: str) -> str:
    return f"{amount:,} {what}" if amount == 1 else f"{amount:,} {what}s"


def show_duration(seconds: float) -> str:
    """Seconds up to 5 minutes, minutes up to 2 hours, then hours: ``250 s``, ``8.4 min``, ``16.7 h``."""
    if seconds < SECONDS_BELOW_S:
        return f"{show_number(seconds)} s"
    if seconds < MINUTES_BELOW_S:
        return f"{show_number(seconds / 60.0)} min"
    return f"{show_number(seconds / 3_600.0)} h"


def show_step(duration_us: float) -> str:
    if duration_us < 1e6:
        return f"{duration_us / 1e3:.4g} ms"
    return f"{duration_us / 1e6:.4g} s" if duration_us < 1e10 else f"{duration_us / 1e6:,.0f} s"


SUGGESTIONS = 3
_ALIKE = 0.5


def similar(word: str, names: Iterable[str]) -> Sequence[str]:
    """Return the names that a word may stand for: alike ones first, then such as hold it."""
    by_lower = {name.lower(): name for name in names}
    lower = word.strip().lower()
    alike = get_close_matches(lower, by_lower, n=SUGGESTIONS, cutoff=_ALIKE)
    holding = sorted(key for key in by_lower if lower and lower in key)
    return [by_lower[key] for key in dict.fromkeys([*alike, *holding])][:SUGGESTIONS]


NAMED = 8

SMALLEST_PERCENT = 0.1
# A larger percentage that is not whole would be rounded to 100.
ALMOST_ALL = 99.95


def listed(names: Sequence[str], limit: int = NAMED) -> str:
    """Join names: ``A``, ``A and B``, ``A, B and C``, ``A, B and 126 more``."""
    shown = list(names) if len(names) <= limit else [*names[: limit - 1], f"{len(names) - limit + 1:,} more"]
    return " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


def show_share(share: float) -> str:
    """Show a share, 0 to 1, as a percentage that is 0 only for nothing and 100 only for all."""
    percent = 100.0 * share
    if ALMOST_ALL <= percent < 100.0:
        return f"more than {show_percent(100.0 - SMALLEST_PERCENT)}"
    return f"less than {show_percent(SMALLEST_PERCENT)}" if 0.0 < percent < SMALLEST_PERCENT else show_percent(percent)


def show_money(amount: float, currency: str) -> str:
    """For example ``USD 41.20``; whole above 10,000."""
    if 0.0 < amount < 0.01:
        return f"less than {currency} 0.01"
    return f"{currency} {amount:,.0f}" if amount >= 10_000.0 else f"{currency} {amount:,.2f}"


def clause(sentence: str) -> str:
    return sentence.strip().removesuffix(".")
