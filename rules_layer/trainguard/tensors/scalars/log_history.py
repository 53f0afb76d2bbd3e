"""The entries of ``log_history`` in a ``trainer_state.json``, one by one: the file is never held as objects."""

import json
import re
from collections.abc import Iterator

MOST_ENTRY_BYTES = 1024 * 1024
"""An entry that is longer holds more than the scalars of a step."""

_HISTORY = "log_history"
_SPACE = re.compile(rb"[ \t\r\n]*+")
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING = re.compile(_TEXT, re.DOTALL)
_PLAIN = re.compile(rb"[^,\[\]{}\"\s]++")
_FLAT = rb'\{[^{}\[\]"]*+(?:' + _TEXT + rb'[^{}\[\]"]*+)*+\}'
"""An object without others in it, as entries are."""

_TOKEN = re.compile(_FLAT + b"|" + _TEXT + rb'|[\[\]{}"]', re.DOTALL)
_DEPTH = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


def log_entries(body: bytes) -> Iterator[bytes | None] | None:
    """Return the entries of ``log_history``, each as JSON, None for one that is too long; None of a file without any.

    Raises
    ------
    ValueError
        When the file is no JSON, as far as that is seen: at the call, or when an entry is asked for.
    """
    encoding = json.detect_encoding(body)
    text = body if encoding == "utf-8" else body.decode(encoding).encode()
    at = _after_space(text, 0)
    if text[at : at + 1] != b"{":
        json.loads(text[:MOST_ENTRY_BYTES])
        return None
    found: int | None = None
    for name, begins in _fields(text, at):
        if name == _HISTORY:
            found = begins
    return _items(text, found) if found is not None and text[found : found + 1] == b"[" else None


def _fields(text: bytes, at: int) -> Iterator[tuple[str, int]]:
    """Yield the fields of the object at ``at``: name, and where its value begins; it must be all of the text."""
    for begins, _ in _parts(text, at, b"}"):
        match = _STRING.match(text, begins)
        colon = _after_space(text, match.end()) if match else begins
        if match is None or text[colon : colon + 1] != b":":
            raise ValueError(f"no field at byte {begins:,}")
        value = _after_space(text, colon + 1)
        yield json.loads(match[0]), value
    end = _after_space(text, _end_of(text, at))
    if end != len(text):
        raise ValueError(f"more than one value, the second at byte {end:,}")


def _items(text: bytes, at: int) -> Iterator[bytes | None]:
    for begins, end in _parts(text, at, b"]"):
        yield text[begins:end] if end - begins <= MOST_ENTRY_BYTES else None


def _parts(text: bytes, at: int, closing: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each part of an object or list begins and ends; of a field, those of its name."""
    at = _after_space(text, at + 1)
    if text[at : at + 1] == closing:
        return
    while True:
        end = _end_of(text, at)
        yield at, end
        end = _after_space(text, end)
        if text[end : end + 1] == b":" and closing == b"}":
            end = _after_space(text, _end_of(text, _after_space(text, end + 1)))
        if text[end : end + 1] == closing:
            return
        if text[end : end + 1] != b",":
            raise ValueError(f"no comma at byte {end:,}")
        at = _after_space(text, end + 1)


def _end_of(text: bytes, at: int) -> int:
    """Return where a value ends."""
    if text[at : at + 1] not in (b"{", b"["):
        match = _STRING.match(text, at) or _PLAIN.match(text, at)
        if match is None:
            raise ValueError(f"no value at byte {at:,}")
        return match.end()
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += _DEPTH.get(token[0], 0)
        if token[0] == b'"':
            break
        if not depth:
            return token.end()
    raise ValueError(f"what begins at byte {at:,} has no end")


def _after_space(text: bytes, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
