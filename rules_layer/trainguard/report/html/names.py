"""Names that others chose, as a page shows them: on one line, in the page's direction, and not without end."""

import unicodedata

LONGEST = 48

# Format characters change the direction of what follows or show nothing, surrogates cannot be written.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def shown_name(name: str, longest: int = LONGEST) -> str:
    """Show ``name`` with its start and end when it is long; a character that is not seen becomes U+FFFD."""
    short = name if len(name) <= longest else f"{name[: longest // 2]}…{name[-(longest // 2 - 1) :]}"
    return "".join("\ufffd" if unicodedata.category(each) in _UNSEEN else each for each in short)
