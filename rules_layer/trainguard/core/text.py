"""Text that anybody may have written, made plain: on one line, of bounded length, and nothing in it acts.

Each output calls one of these functions at one place:

===================== ================================================================================
rows and the outbox   `one_line`, where they are made (`engine.rows`, `engine.fires`)
mail                  `mail_line` and `mail_place` (`actions.wording`)
chat                  `chat_line` (`actions.chat`)
event bus and queues  `plain_document` (`actions.alert`)
terminal              `one_line` (`cli.output`); in JSON, JSON's own escapes
agents                `foreign` (`report.agents.foreign`): in a field of its own
page                  the templates escape markup, `report.html.names` replaces what is not seen
===================== ================================================================================
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

# Characters of a reason, an advice or an action in a row and an alert.
LONGEST_SENTENCE = 2_000

_SPACES = re.compile(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
# Categories of characters that steer a terminal, turn the direction of a text or show nothing.
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

# A space of no width: programs that look for links and names find none across it.
_BREAK = "\u200b"

# What programs make links of: addresses with and without a scheme, names of hosts, Markdown.
_LINKS = (
    (re.compile(r"(?<=\w)(?=://)"), _BREAK),
    (
        re.compile(r"\b(https?|s?ftps?|mailto|tel|sms|callto|skype|webcal|javascript|data|file)(?=:\S)", re.I),
        rf"\1{_BREAK}",
    ),
    (re.compile(r"(?<=[^\W_])([.\u3002\uff0e\uff61])(?=[^\W\d_]{2})"), rf"\1{_BREAK}"),
    (re.compile(r"\](?=[(\[:])"), rf"]{_BREAK}"),
)


def is_plain(text: str) -> bool:
    """Whether a text stays as it is where it is shown: on one line, each character seen."""
    return text.isprintable() or not any(unicodedata.category(each) in UNSEEN for each in text)


def one_line(text: str, longest: int | None = None) -> str:
    """Return the text on one line, control and direction characters as escapes; beyond ``longest`` cut, with ``…``."""
    text = _SPACES.sub(" ", _cut(text, longest))
    if not is_plain(text):
        text = "".join(_spelled(each) if unicodedata.category(each) in UNSEEN else each for each in text)
    return _cut(text, longest)


def terminal_json(document: str) -> str:
    for each in set(document) - {"\n"}:
        if unicodedata.category(each) in UNSEEN:
            # json writes DEL as it is.
            document = document.replace(each, "\\u007f" if each == "\x7f" else json.dumps(each).strip('"'))
    return document


def mail_line(text: str, longest: int | None = None) -> str:
    """Return the text for a line of a plain mail: `one_line`, and nothing in it becomes a link."""
    return _without_links(one_line(text, longest))


def mail_place(uri: str) -> str:
    """Return the URI of an object for a line of a plain mail: a blank in it is written as ``%20``."""
    return "".join(quote(each, errors="replace") if _ends_a_uri(each) else each for each in uri)


def chat_line(text: str, longest: int | None = None) -> str:
    """Return the text for a paragraph of a chat: `mail_line`, without a mention and without markup."""
    return chat_escaped(_without_links(one_line(text, longest)))


def chat_escaped(text: str) -> str:
    """Return TrainGuard's own text as chats show it: an address in it stays a link."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", f"@{_BREAK}")


def plain_document(document: Mapping[str, Any], longest: int) -> dict[str, Any]:
    return {name: _plain(value, longest) for name, value in document.items()}


def _plain(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return one_line(value, longest)
    if isinstance(value, Mapping):
        return plain_document(value, longest)
    return [_plain(each, longest) for each in value] if isinstance(value, list | tuple) else value


def _cut(text: str, longest: int | None) -> str:
    return text if longest is None or len(text) <= longest else f"{text[: longest - 1]}…"


def _spelled(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"


def _without_links(text: str) -> str:
    for found, instead in _LINKS:
        text = found.sub(instead, text)
    return text


def _ends_a_uri(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) in UNSEEN
