"""Findings as columns, the same in rows and in outbox entries; the rule and the node have places of their own there."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainguard.aws.attribute_values import Columns, maps, present
from trainguard.aws.columns import (
    NAME,
    NUMBER_OR_NONE,
    SOME_NAMES,
    TEXT,
    TEXT_OR_NONE,
    TIME,
    TIME_OR_NONE,
    Kind,
    Layout,
    fields_of,
    member_or_none,
    written,
)
from trainguard.aws.facts import facts_of, facts_value
from trainguard.core.finding import Episode, Finding, Severity

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue


def finding_columns(finding: Finding, names: Mapping[str, str]) -> "dict[str, AttributeValue | None]":
    """Write a finding, without its rule and node; ``names`` are other column names, by field."""
    return written(finding, _FINDING, names)


def finding_of_columns(columns: Columns, *, rule: str, node: str | None, names: Mapping[str, str]) -> Finding:
    """Read a finding of ``rule`` on ``node``."""
    return Finding(rule=rule, node=node, **fields_of(columns, _FINDING, names))


def _episodes_value(episodes: Sequence[Episode]) -> "AttributeValue | None":
    return maps(present(written(each, _EPISODE)) for each in episodes) if episodes else None


def _episodes_of(columns: Columns, name: str) -> tuple[Episode, ...]:
    return tuple(Episode(**fields_of(each, _EPISODE)) for each in columns.map_list(name))


_EPISODE: Layout = {
    "start": ("Start", TIME),
    "end": ("End", TIME_OR_NONE),
    "nodes": ("Nodes", SOME_NAMES),
    "gpus": ("Gpus", SOME_NAMES),
    "measured": ("Measured", NUMBER_OR_NONE),
    "wasted_s": ("WastedS", NUMBER_OR_NONE),
    "cost": ("Cost", NUMBER_OR_NONE),
    "currency": ("Currency", TEXT_OR_NONE),
}
_FINDING: Layout = {
    "finding_kind": ("Kind", NAME),
    "reason": ("Reason", TEXT),
    "measured": ("Measured", NUMBER_OR_NONE),
    "threshold": ("Threshold", NUMBER_OR_NONE),
    "severity": ("Severity", member_or_none(Severity)),
    "advice": ("Advice", TEXT_OR_NONE),
    "cost": ("Cost", TEXT_OR_NONE),
    "episodes": ("Episodes", Kind(_episodes_value, _episodes_of)),
    "facts": ("Facts", Kind(facts_value, facts_of)),
}
