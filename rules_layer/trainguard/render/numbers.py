"""Numbers, durations and times in the tables of a page; what is not known is a dash."""

import math
import re
import unicodedata
from datetime import datetime

from trainguard.core.units import show_duration

LONGEST = 48

# Format characters change the direction of what follows or show nothing, surrogates cannot be written.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


_DIGITS = re.compile("([0-9]{1,18})")
_EVENTS = (
    (re.compile(r"Step:ModeKeys\.(.+)", re.DOTALL), r"\1 steps"),
    (re.compile(r"gpu_functions-dev:(\d+)"), r"operators on GPU \1"),
    (re.compile(r"cpu_functions"), "operators on the CPU"),
)


def event_name(name: str) -> str:
    """Show the name of a class of framework events: what the hook calls them, in words where it is a code."""
    for code, words in _EVENTS:
        if found := code.fullmatch(name):
            return shown_name(found.expand(words))
    return shown_name(name)


def shown_name(name: str, longest: int = LONGEST) -> str:
    """Show ``name`` with its start and end when it is long; a character that is not seen becomes U+FFFD."""
    short = name if len(name) <= longest else f"{name[: longest // 2]}…{name[-(longest // 2 - 1) :]}"
    return "".join("\ufffd" if unicodedata.category(each) in _UNSEEN else each for each in short)


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return by what to sort names with numbers in them: layer2 before layer10."""
    parts = _DIGITS.split(name)
    return [(int(part), "") if place % 2 else (-1, part) for place, part in enumerate(parts)], name


DAY_S = 86_400.0
NOTHING = "\N{EN DASH}"
ALMOST_ALL = 0.9995
_LONG_S = 3_600.0 * 48.0
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "\N{MICRO SIGN}s"), (1.0, "ns"))


def number(value: float | None) -> str:
    """To three digits, more for large whole numbers: ``0.833``, ``12.5``, ``1,004``."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0.0 or float(value).is_integer():
        return f"{value:,.0f}"
    decimals = max(2 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:,.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(value: float | None) -> str:
    """For example ``70.5 %``; what is more than nothing is never 0."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return "< 0.1 %" if 0.0 < value < 0.05 else f"{value:,.1f}".removesuffix(".0") + " %"


def share(value: float | None) -> str:
    """Write a share from 0 to 1 in percent; what is less than all is never 100."""
    if value is not None and ALMOST_ALL <= value < 1.0:
        return "> 99.9 %"
    return percent(None if value is None else 100.0 * value)


def quantity(value: float | None, unit: str | None) -> str:
    if value is None or not math.isfinite(value):
        return NOTHING
    if unit in {"%", "percent"}:
        return percent(value)
    return f"{number(value)} {shown_name(unit)}" if unit else number(value)


def seconds(value: float | None) -> str:
    """Write a length of time that may be tiny: ``9.44 ms``, ``1.2 s``, ``16.7 h``."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) < 1.0:
        return f"{number(value * 1e3)} ms"
    return f"{number(value)} s" if abs(value) < 300.0 else duration(value)


def duration(value: float | None) -> str:
    """Write a length of time: ``250 s``, ``8.4 min``, ``16.7 h``, ``5.2 days``."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{number(value / DAY_S)} days" if value >= _LONG_S else show_duration(value)


def rate(value: float | None) -> str:
    return NOTHING if value is None or not math.isfinite(value) else f"{size(value)}/s"


def size(value: float | None) -> str:
    return _scaled(value, _SIZES)


def nanos(value: float | None) -> str:
    """Write a time in nanoseconds: ``1.23 s``, ``9.44 ms``, ``480 µs``, ``12 ns``."""
    return _scaled(value, _TIMES)


def _scaled(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    if value is None:
        return NOTHING
    scale, unit = next((each for each in units if abs(value) >= each[0]), units[-1])
    return f"{number(value / scale)} {unit}"


def count(value: float | None) -> str:
    return NOTHING if value is None or not math.isfinite(value) else f"{value:,.0f}"


def money(value: float | None, currency: str | None) -> str:
    """For example ``USD 5.92``; no decimals from a thousand on."""
    if value is None or not math.isfinite(value):
        return NOTHING
    amount = f"{value:,.0f}" if abs(value) >= 1_000.0 else f"{value:,.2f}"
    return f"{shown_name(currency, 12)} {amount}" if currency else amount


def moment(iso: str | None) -> str:
    """Write an ISO 8601 time as ``2023-11-18 03:00:12``, to the second; anything else as it is."""
    if iso is None:
        return NOTHING
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return f"{at:%Y-%m-%d %H:%M:%S}"


def elapsed(value: float | None) -> str:
    """Write a time since the job's start as a clock does: ``+2:05:10``, ``+1 d 3:05:10``, ``-0:00:30``."""
    if value is None or not math.isfinite(value):
        return NOTHING
    whole = round(abs(value))
    days, rest = divmod(whole, round(DAY_S))
    clock = f"{rest // 3_600}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    sign = "-" if value < 0.0 and whole else "+"
    return f"{sign}{days} d {clock}" if days else f"{sign}{clock}"
