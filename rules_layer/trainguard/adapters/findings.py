"""Findings as columns, the same in rows and in outbox entries; the rule and the node have places of their own there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainguard.adapters.attribute_values import (
    Columns,
    maps,
    number_or_none,
    present,
    text,
    text_list,
    text_or_none,
)
from trainguard.adapters.facts import facts_of, facts_value
from trainguard.adapters.timestamps import epoch_from_iso, iso_from_epoch
from trainguard.finding import Episode, Finding, Severity

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue


def finding_columns(finding: Finding, *, cost: str = "Cost", kind: str = "Kind") -> "dict[str, AttributeValue | None]":
    """Write a finding, without its rule and node; ``cost`` and ``kind`` name the columns of what these are."""
    return {
        kind: text_or_none(finding.finding_kind or None),
        "Reason": text(finding.reason),
        "Measured": number_or_none(finding.measured),
        "Threshold": number_or_none(finding.threshold),
        "Severity": text_or_none(finding.severity),
        "Advice": text_or_none(finding.advice),
        cost: text_or_none(finding.cost),
        "Episodes": _episodes_value(finding.episodes),
        "Facts": facts_value(finding.facts),
    }


def finding_of_columns(
    columns: Columns, *, rule: str, node: str | None, cost: str = "Cost", kind: str = "Kind"
) -> Finding:
    """Read a finding of ``rule`` on ``node``."""
    return Finding(
        rule=rule,
        node=node,
        reason=columns.text("Reason"),
        measured=columns.real_or_none("Measured"),
        threshold=columns.real_or_none("Threshold"),
        severity=columns.made_or_none("Severity", Severity),
        advice=columns.text_or_none("Advice"),
        cost=columns.text_or_none(cost),
        episodes=_episodes_of(columns, "Episodes"),
        finding_kind=columns.text_or_none(kind) or "",
        facts=facts_of(columns, "Facts"),
    )


def _episodes_value(episodes: Sequence[Episode]) -> "AttributeValue | None":
    """Write episodes as a list of maps; None where there is none."""
    if not episodes:
        return None
    return maps(
        present(
            {
                "Start": text(iso_from_epoch(each.start)),
                "End": None if each.end is None else text(iso_from_epoch(each.end)),
                "Nodes": text_list(each.nodes) if each.nodes else None,
                "Gpus": text_list(each.gpus) if each.gpus else None,
                "Measured": number_or_none(each.measured),
                "WastedS": number_or_none(each.wasted_s),
                "Cost": number_or_none(each.cost),
                "Currency": text_or_none(each.currency),
            }
        )
        for each in episodes
    )


def _episodes_of(columns: Columns, name: str) -> tuple[Episode, ...]:
    """Read episodes; an item of a version that kept none has none."""
    return tuple(
        Episode(
            start=each.made("Start", epoch_from_iso),
            end=each.made_or_none("End", epoch_from_iso),
            nodes=each.text_list("Nodes"),
            gpus=each.text_list("Gpus"),
            measured=each.real_or_none("Measured"),
            wasted_s=each.real_or_none("WastedS"),
            cost=each.real_or_none("Cost"),
            currency=each.text_or_none("Currency"),
        )
        for each in columns.map_list(name)
    )
