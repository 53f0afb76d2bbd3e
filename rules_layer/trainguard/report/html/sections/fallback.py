"""Details of a shape that no section knows, as a list of names and values."""

from collections.abc import Iterator, Mapping, Sequence

from trainguard.report.html.blocks import Block, Cell, Facts, Note
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, number

FACTS_AT_MOST = 48
DEPTH_AT_MOST = 8


def blocks(details: object) -> list[Block]:
    """Return the first values of the details under their paths; nothing when there are none."""
    facts: list[tuple[str, Cell]] = []
    for path, value in _leaves(details, ()):
        if len(facts) == FACTS_AT_MOST:
            return [Facts(facts), Note("More is in report.json.")]
        facts.append((" / ".join(path) or "value", value))
    return [Facts(facts)] if facts else []


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping) and len(path) < DEPTH_AT_MOST:
        for key, each in value.items():
            yield from _leaves(each, (*path, shown_name(str(key), 40)))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield path, f"{len(value):,} values"
    else:
        yield path, _written(value)


def _written(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return shown_name(str(value), 160)
