"""Text in the value of a tag, which takes letters, digits, spaces and ``_ . : / = + - @`` and no other signs.

Other signs are written as in quoted-printable (RFC 2045): ``=`` and two capital hexadecimal digits for each byte of
their UTF-8, so that ``.*relu_input`` is ``.=2Arelu_input``.
"""

import re

_TAKEN = re.compile(r"[\w .:/=+\-@]")
_ESCAPE = re.compile(r"(?:=[0-9A-F]{2})+", re.ASCII)


def to_tag(text: str) -> str:
    """Return a text as a tag's value says it."""
    shown = _ESCAPE.sub(lambda found: found[0].replace("=", "=3D"), text)
    return "".join(sign if _TAKEN.fullmatch(sign) else _escaped(sign) for sign in shown)


def from_tag(value: str) -> str:
    """Return the text that a tag's value says; what is no escape, or no UTF-8, stays as it is."""
    return _ESCAPE.sub(_unescaped, value)


def _escaped(sign: str) -> str:
    return "".join(f"={byte:02X}" for byte in sign.encode("utf-8", "surrogatepass"))


def _unescaped(found: re.Match[str]) -> str:
    try:
        return bytes.fromhex(found[0].replace("=", "")).decode()
    except UnicodeDecodeError:
        return found[0]
