"""Facts as columns: a list of maps for programs, and a column a fact for people who look into the console."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.attribute_values import (
    Columns,
    Scalar,
    maps,
    number_or_none,
    present,
    scalar,
    text,
    text_or_none,
)
from trainguard.aws.columns import TEXT, TEXT_OR_NONE, TIME_OR_NONE, Layout, fields_of, written
from trainguard.core.finding import LONGEST_NAME, MOST_FACTS, Episode, Fact, Finding, clock_times
from trainguard.core.text import one_line
from trainguard.core.timestamps import epoch_from_iso, iso_from_epoch, to_millisecond
from trainguard.core.units import show_percent

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

FACT_COLUMN = "fact."
"""Begins the text columns of facts for people; nothing reads them back."""

_PLACE: Layout = {
    "name": ("Name", TEXT),
    "series": ("Series", TEXT_OR_NONE),
    "node": ("Node", TEXT_OR_NONE),
    "device": ("Device", TEXT_OR_NONE),
    "start": ("From", TIME_OR_NONE),
    "end": ("To", TIME_OR_NONE),
}
_TIME, _SHARE, _PERCENT = "time", "share", "%"
_LONGEST_UNIT = 24
_THOUSAND = 1_000.0


def stored_finding(finding: Finding) -> Finding:
    """Return the finding after a round trip: times to the millisecond, no more facts than are kept."""
    return replace(
        finding,
        episodes=tuple(_stored_episode(each) for each in finding.episodes),
        facts=tuple(_stored_fact(each) for each in finding.facts[:MOST_FACTS]),
    )


def facts_value(facts: Sequence[Fact]) -> "AttributeValue | None":
    """Write facts as a list of maps; None where there is none."""
    return maps(map(_fact_value, facts)) if facts else None


def facts_of(columns: Columns, name: str) -> tuple[Fact, ...]:
    """Read facts; a missing column has none."""
    return tuple(
        Fact(
            value=_measured(each, "Value"),
            unit=each.text_or_none("Unit") or "",
            threshold=_threshold(each),
            **fields_of(each, _PLACE),
        )
        for each in columns.map_list(name)
    )


def fact_columns(facts: Sequence[Fact]) -> "dict[str, AttributeValue | None]":
    """Write a column a fact: ``fact.mean_utilization gpu3`` is ``41.2 % (2026-01-31 12:00 to 12:40 UTC)``."""
    names = [fact.name for fact in facts]
    columns: dict[str, AttributeValue | None] = {}
    for fact in facts:
        several = names.count(fact.name) > 1
        place = [each for each in (fact.node, fact.device, fact.series) if each] if several else []
        name = FACT_COLUMN + " ".join([fact.name, *place])
        same = sum(column == name or column.startswith(f"{name} #") for column in columns)
        columns[f"{name} #{same + 1}" if same else name] = text(shown_fact(fact))
    return columns


def shown_fact(fact: Fact) -> str:
    """Return a fact's value, and in brackets where and when it was so and what it was compared with."""
    places = [each for each in (fact.series, fact.node, fact.device) if each]
    times = [shown_times(fact)] if fact.start is not None else []
    limit = [] if fact.threshold is None else [f"threshold {shown_value(fact.threshold, fact.unit)}"]
    beside = ", ".join([*places, *times, *limit])
    return shown_value(fact.value, fact.unit) + (f" ({beside})" if beside else "")


def shown_value(value: float | int | str, unit: str) -> str:
    """Show a value of a unit of facts, for example ``41.2 %``; a share as a percentage, a time by the clock."""
    if isinstance(value, str):
        return value
    units: Mapping[str, Callable[[float], str]] = {
        _TIME: iso_from_epoch,
        _PERCENT: show_percent,
        _SHARE: lambda share: show_percent(100.0 * share),
    }
    return units[unit](value) if unit in units else f"{_figures(value)} {unit}".rstrip()


def _figures(value: float | int) -> str:
    """Return a number of four digits at least, and none of a fraction behind them."""
    whole = isinstance(value, int) or _THOUSAND <= abs(value) < _THOUSAND**4
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def shown_times(fact: Fact) -> str:
    """Return from when to when a fact is, in UTC; empty where it is of no time."""
    if fact.start is None:
        return ""
    return clock_times(iso_from_epoch(fact.start), None if fact.end is None else iso_from_epoch(fact.end))


def _fact_value(fact: Fact) -> "dict[str, AttributeValue]":
    at = fact.unit == _TIME and not isinstance(fact.value, str)
    return present(
        {
            **written(fact, _PLACE),
            "Value": text(iso_from_epoch(float(fact.value))) if at else scalar(fact.value),
            "Unit": text_or_none(fact.unit or None),
            "Threshold": _limit(fact),
        }
    )


def _limit(fact: Fact) -> "AttributeValue | None":
    if fact.threshold is None or fact.unit != _TIME:
        return number_or_none(fact.threshold)
    return text(iso_from_epoch(fact.threshold))


def _measured(columns: Columns, name: str) -> float | int | str:
    value = columns.scalar(name)
    if value is None:
        raise ValueError(f"a fact has the {name} null, expected a number or a text")
    return _as_time(columns, value)


def _threshold(columns: Columns) -> float | None:
    value = columns.scalar("Threshold") if "Threshold" in columns else None
    at = None if value is None else _as_time(columns, value)
    return None if at is None else float(at)


def _as_time(columns: Columns, value: float | int | str) -> float | int | str:
    is_time = isinstance(value, str) and columns.text_or_none("Unit") == _TIME
    return epoch_from_iso(str(value)) if is_time else value


def _stored_episode(episode: Episode) -> Episode:
    return replace(episode, start=to_millisecond(episode.start) or 0.0, end=to_millisecond(episode.end))


def _stored_fact(fact: Fact) -> Fact:
    """Return a fact with plain names and Python's numbers, as no others can be written."""
    unit = one_line(fact.unit, _LONGEST_UNIT)
    if unit == _TIME and isinstance(fact.value, str):
        unit = ""
    return msgspec.structs.replace(
        fact,
        name=one_line(fact.name, LONGEST_NAME),
        value=_stored_value(fact.value, unit),
        unit=unit,
        series=_name(fact.series),
        node=_name(fact.node),
        device=_name(fact.device),
        start=to_millisecond(fact.start),
        end=to_millisecond(fact.end),
        threshold=None if fact.threshold is None else _stored_number(float(fact.threshold), unit),
    )


def _stored_value(value: Scalar, unit: str) -> float | int | str:
    if isinstance(value, str):
        return one_line(value, LONGEST_NAME)
    if isinstance(value, Integral) and unit != _TIME:
        return int(value)
    return _stored_number(float(value or 0.0), unit)


def _stored_number(value: float, unit: str) -> float:
    return epoch_from_iso(iso_from_epoch(value)) if unit == _TIME else value


def _name(name: str | None) -> str | None:
    return None if name is None else one_line(name, LONGEST_NAME)
