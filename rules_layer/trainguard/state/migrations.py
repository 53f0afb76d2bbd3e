"""How state that an earlier version stored becomes state that this one reads.

A new field with a default, appended where the state is stored as a list, needs nothing: what was stored before is read
with the default. Any other change of what is stored raises `codec.CODEC` by one and puts a step here, which turns the
document of one codec into that of the next. Steps are never removed while an item of their codec can exist: an item
lives for ninety days after its job.

A document is what MessagePack holds: the stored struct's fields by name, with each rule's own state as bytes in
``slots[rule]["data"]`` (see `rule_state`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Document = dict[str, Any]
Migration = Callable[[str, Document], Document]
"""Takes the name of the stored struct (``SystemState``, ``FrameworkState``, ``JobState``) and its document."""

MIGRATIONS: Mapping[int, Migration] = {}
"""The step from each codec to the next."""


def migrate(kind: str, document: Document, *, codec: int, newest: int) -> Document:
    """Take a document from ``codec`` to ``newest``, step by step."""
    for step in range(codec, newest):
        document = MIGRATIONS[step](kind, document)
    return document


def rule_state(document: Document, rule: str, change: Callable[[Any], Any]) -> None:
    """Replace a rule's own state in ``document`` by what ``change`` makes of it, where there is one."""
    stored = document.get("slots", {}).get(rule)
    if stored and stored.get("data"):
        stored["data"] = msgspec.msgpack.encode(change(msgspec.msgpack.decode(stored["data"])))
