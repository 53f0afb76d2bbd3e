"""Names that others chose, as a page shows them: on one line, in the page's direction, and not without end."""

import re
import unicodedata

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
