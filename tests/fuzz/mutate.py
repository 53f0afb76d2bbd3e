"""Makes inputs out of seeds: bytes cut, repeated and replaced, values of a JSON document exchanged."""

import json
import random
from collections.abc import Sequence
from typing import Any

BYTES = (b"", b"\x00", b"\xff" * 8, b"\x80" * 12, b"{", b"}", b"[" * 2_000, b'"', b"\\u0000", b"NaN", b"1e999", b"\n")
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53, -(2**63), 2**64, 10**30, 1e308, -1e-308, 0.1, float("nan")),
    *("", "0", "x" * 3_000, "\x1b[2J", "\ud800", "9" * 400, "../../x", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    *([], {}, [[]], [None], {"": {}}, [[[[[[[[1]]]]]]]]),
)
# Seeds are cut to so many bytes: a fault of a parser needs no long input.
LONGEST = 200_000


def mutated(seed: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return an input made of a seed by one to four changes."""
    if rng.random() < 0.5 and (changed := _document(seed, rng)) is not None:
        return changed
    body = bytearray(seed[:LONGEST])
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(body) + 1)
        end = min(len(body), start + rng.choice((0, 1, 2, 4, 8, 40, 400)))
        kind = rng.randrange(6)
        if kind == 0:
            del body[start:end]
        elif kind == 1:
            body[start:end] = rng.choice(BYTES)
        elif kind == 2:
            body[start:end] = rng.randbytes(end - start)
        elif kind == 3 and end > start:
            body[start] ^= 1 << rng.randrange(8)
        elif kind == 4:
            body[end:end] = bytes(body[start:end]) * rng.choice((1, 2, 50))
        else:
            other = rng.choice(others) if others else seed
            at = rng.randrange(len(other) + 1)
            body[start:end] = other[at : at + rng.choice((4, 40, 400))]
    return bytes(body) if rng.random() < 0.95 else bytes(body[: rng.randrange(len(body) + 1)])


def _document(seed: bytes, rng: random.Random) -> bytes | None:
    """Return a JSON seed, or one line of JSON lines, with values exchanged; None for other seeds."""
    lines = seed[:LONGEST].split(b"\n")
    chosen = rng.randrange(len(lines))
    for text, around in ((seed[:LONGEST], False), (lines[chosen], True)):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            continue
        for _ in range(rng.randint(1, 3)):
            document = _exchanged(document, rng)
        changed = json.dumps(document).encode()
        return b"\n".join([*lines[:chosen], changed, *lines[chosen + 1 :]]) if around else changed
    return None


def _exchanged(value: Any, rng: random.Random) -> Any:
    """Return a value with one of its parts, or itself, replaced, dropped or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: _exchanged(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        if rng.random() < 0.1:
            return value[:at] + value[at : at + 1] * rng.randrange(3) + value[at + 1 :]
        return [*value[:at], _exchanged(value[at], rng), *value[at + 1 :]]
    return rng.choice(VALUES)
