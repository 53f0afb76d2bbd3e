"""Histories of training in JSON: lines, an object a step; or one list of them; or a list of numbers a scalar."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from trainguard.formats.tensors.scalars.cells import number_in
from trainguard.formats.tensors.scalars.names import GRADIENT_NORM, LOSSES, METRICS, ScalarNames
from trainguard.formats.tensors.scalars.positions import columns_of, is_position
from trainguard.formats.tensors.scalars.taken_rows import TakenRows, number_of
from trainguard.formats.tensors.scalars.text_lines import WholeLines, first_line

_LOOKED_AT = 1_000
_DEEPEST = 3


MOST_DOCUMENT_BYTES = 4 * 1024 * 1024
_FEWEST = 2
_OF_TRACES = "traceEvents"


def document_entries(body: bytes) -> list[dict[str, Any]]:
    """Return the objects of the steps in one document of JSON; none of any other text, and of a large one."""
    if len(body) > MOST_DOCUMENT_BYTES or body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return []
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return []
    if isinstance(found, dict):
        if _OF_TRACES in found:
            return []
        return next((entries for each in (found, *found.values()) if (entries := _entries(each))), [])
    return _entries(found)


def _entries(found: object) -> list[dict[str, Any]]:
    if isinstance(found, list):
        return found if len(found) >= _FEWEST and all(isinstance(each, dict) for each in found) else []
    if not isinstance(found, dict):
        return []
    columns = {
        name: values
        for name, values in found.items()
        if isinstance(values, list) and values and all(number_of(value) is not None for value in values)
    }
    longest = max(map(len, columns.values()), default=0)
    if longest < _FEWEST:
        return []
    return [{name: values[at] for name, values in columns.items() if at < len(values)} for at in range(longest)]


def is_json_lines(beginning: bytes) -> bool:
    try:
        return isinstance(json.loads(first_line(beginning)), dict)
    except (ValueError, RecursionError):
        return False


def is_training_lines(beginning: bytes, names: ScalarNames) -> bool:
    """Whether JSON is a history of training, by the first lines, or by all: it counts steps, and names a loss."""
    document = document_entries(beginning)
    lines = beginning.decode("utf-8-sig", "replace").splitlines()[:_LOOKED_AT]
    objects = document or [each for line in lines if (each := _object(line)) is not None]
    frequent = Counter(name for each in objects for name in numbers_in(each))
    if columns_of(list(frequent)).step is not None:
        return any(names.members(meaning, frequent) for meaning in (LOSSES, METRICS, GRADIENT_NORM))
    # Objects that count no steps may be of anything: a history names a loss in most of them.
    losses = names.members(LOSSES, frequent)
    return bool(document) and any(2 * frequent[name] >= len(objects) for name in losses)


def read_document(entries: Sequence[Mapping[str, Any]], taken: TakenRows) -> None:
    step, epoch = _counts(entries[:_LOOKED_AT])
    for number, entry in enumerate(entries):
        _take(f"object {number:,}", entry, step, epoch, taken)


def _counts(ahead: Sequence[Mapping[str, Any]]) -> tuple[str | None, str | None]:
    """Return what counts the steps, and what the epochs, in most objects."""
    frequent = Counter(name for each in ahead for name in numbers_in(each))
    keys = [name for name, count in frequent.items() if 2 * count >= len(ahead) or name.lower() == "step"]
    columns = columns_of(keys)
    step, epoch = (None if place is None else keys[place] for place in (columns.step, columns.epoch))
    return step, epoch


def _take(where: str, entry: Mapping[str, Any], step: str | None, epoch: str | None, taken: TakenRows) -> None:
    numbers = numbers_in(entry)
    values = {name: value for name, value in numbers.items() if not is_position(name)}
    counted = float(taken.next_number) if step is None else numbers.get(step)
    if counted is not None or len(taken.rows):
        taken.add(where, counted, values, epoch=None if epoch is None else numbers.get(epoch))


def read_json_lines(lines: WholeLines, taken: TakenRows) -> None:
    """Read lines of JSON into ``taken``; those before the first step that count none are no rows."""
    step, epoch = _counts([each for line in lines.peek(_LOOKED_AT) if (each := _object(line)) is not None])
    for line in lines:
        lines.begin_row()
        if not line.strip():
            continue
        if taken.is_full(lines.number):
            break
        entry = _object(line)
        if entry is None:
            taken.refuse("line", f"line {lines.number:,} is no object of JSON: {line.strip()!r:.60}")
        else:
            _take(f"line {lines.number:,}", entry, step, epoch, taken)


def numbers_in(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of an object by name, those of an inner one behind its name and a slash."""
    return dict(_numbers(entry, "", _DEEPEST))


def _numbers(entry: Mapping[str, Any], before: str, deep: int) -> Iterator[tuple[str, float]]:
    for name, value in islice(entry.items(), 10_000):
        if isinstance(value, dict) and deep > 1:
            yield from _numbers(value, f"{before}{name}/", deep - 1)
        else:
            number = number_in(value) if isinstance(value, str) else number_of(value)
            if number is not None:
                yield f"{before}{name}", number


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
