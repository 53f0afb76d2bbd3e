"""Histories of training as lines of JSON, an object a step."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from trainguard.formats.tensors.scalars.cells import Numerals
from trainguard.formats.tensors.scalars.names import GRADIENT_NORM, LOSSES, METRICS, ScalarNames
from trainguard.formats.tensors.scalars.positions import columns_of, is_position
from trainguard.formats.tensors.scalars.taken_rows import TakenRows, number_of
from trainguard.formats.tensors.scalars.text_lines import WholeLines, first_line

_LOOKED_AT = 1_000
_DEEPEST = 3
_NUMERALS = Numerals()


def is_json_lines(beginning: bytes) -> bool:
    """Whether a text begins with an object of JSON that ends in its line."""
    try:
        return isinstance(json.loads(first_line(beginning)), dict)
    except (ValueError, RecursionError):
        return False


def is_training_lines(beginning: bytes, names: ScalarNames) -> bool:
    """Whether lines of JSON are a history of training, by the first ones: they count steps, and name a loss."""
    try:
        text = beginning.decode("utf-8-sig", "replace")
        objects = [each for line in text.splitlines()[:_LOOKED_AT] if (each := _object(line)) is not None]
    except RecursionError:
        return False
    found = {name: value for each in objects for name, value in numbers_in(each).items()}
    counted = columns_of(list(found)).step is not None
    return counted and any(names.members(meaning, found) for meaning in (LOSSES, METRICS, GRADIENT_NORM))


def read_json_lines(lines: WholeLines, taken: TakenRows) -> None:
    """Read lines of JSON into ``taken``; those before the first step that count none are no rows."""
    ahead = [each for line in lines.peek(_LOOKED_AT) if (each := _object(line)) is not None]
    frequent = Counter(name for each in ahead for name in numbers_in(each))
    keys = [name for name, count in frequent.items() if 2 * count >= len(ahead) or name.lower() == "step"]
    columns = columns_of(keys)
    step, epoch = (None if place is None else keys[place] for place in (columns.step, columns.epoch))
    for line in lines:
        lines.begin_row()
        if not line.strip():
            continue
        if taken.is_full(lines.number):
            break
        entry = _object(line)
        if entry is None:
            taken.refuse("line", f"line {lines.number:,} is no object of JSON: {line.strip()!r:.60}")
            continue
        numbers = numbers_in(entry)
        values = {name: value for name, value in numbers.items() if not is_position(name)}
        counted = float(taken.next_number) if step is None else numbers.get(step)
        if counted is None and not len(taken.rows):
            continue
        taken.add(f"line {lines.number:,}", counted, values, epoch=None if epoch is None else numbers.get(epoch))


def numbers_in(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of an object by name, those of an inner one behind its name and a slash."""
    return dict(_numbers(entry, "", _DEEPEST))


def _numbers(entry: Mapping[str, Any], before: str, deep: int) -> Iterator[tuple[str, float]]:
    for name, value in islice(entry.items(), 10_000):
        if isinstance(value, dict) and deep > 1:
            yield from _numbers(value, f"{before}{name}/", deep - 1)
        else:
            number = _NUMERALS.number(value) if isinstance(value, str) else number_of(value)
            if number is not None:
                yield f"{before}{name}", number


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
