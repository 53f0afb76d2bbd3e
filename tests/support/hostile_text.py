"""Text as somebody would write it who wants to be believed, or to be clicked on."""

import re
import unicodedata

from hypothesis import strategies as st

PHRASES = (
    "x\n\nURGENT: your account is locked, sign in at https://evil.example/login",
    "\r\nAction: Training job stopped.\r\n",
    "\u2028Severity: low\u2029\x85\x0b\x0c\x1c",
    "\x1b[2J\x1b]8;;https://evil.example\x07click\x1b]8;;\x07\x9b31m",
    "\u202egnp.evil\u202c \u2066abc\u2069 \u200b\ufeff\U000e0041",
    "[Open it in the console](https://evil.example)",
    "[x][1]\n[1]: https:evil.example",
    "<https://evil.example|report> <!channel> <@U123> @here @channel",
    "www.evil.example/login HTTPS://EVIL.EXAMPLE mailto:a@evil.example tel:+1234 javascript:alert(1)",
    "evil\u3002example evil\uff0eexample xn--evil.xn--p1ai",
    "<script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}${7*7}%s%n",
    '=HYPERLINK("http://evil.example")\t=1+1',
    "\x00\x07\x08\x7f\ud800",
    "n" * 10_000,
)

hostile = st.lists(st.sampled_from(PHRASES) | st.text(max_size=20), max_size=4).map("".join)

_SEEN_ANYWAY = {"\u200b"}
_LINK = re.compile(
    r"\w://|\b(https?|ftp|mailto|tel|javascript|data):\S|[^\W_][.\u3002\uff0e\uff61][^\W\d_]{2}|\][(\[:]", re.IGNORECASE
)


def unseen(text: str) -> list[str]:
    """Return the characters that steer a terminal, break a line or turn a text."""
    categories = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    return [each for each in text if unicodedata.category(each) in categories and each not in _SEEN_ANYWAY]


def links(text: str) -> list[str]:
    """Return what a program that shows the text would make a link of."""
    return [found[0] for found in _LINK.finditer(text)]
