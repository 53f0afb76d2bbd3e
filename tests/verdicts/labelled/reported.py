"""What a `report.json` says, in the few terms that the scorer needs: the one place that knows its fields.

A finding of a report with ``episodes`` has a start, an end, a node, GPUs and a cost for each. One without has the time
of its last fire, the place that it names, and one cost.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_INFORMATION = frozenset({"info", "information", "note"})
_NODE = re.compile(r"algo-\d+")
_GPU = re.compile(r"gpu\d+")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Episode:
    """When and where a finding held: epoch seconds, node and GPUs by name; None and empty where it is not said."""

    start: float | None
    end: float | None
    nodes: tuple[str, ...]
    gpus: tuple[str, ...]
    lost: float | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that has fired. ``told`` is whether the report gives its episodes; else they are read from what it has."""

    rule: str
    score: float
    reason: str
    advice: str
    lost: float | None
    episodes: tuple[Episode, ...]
    told: bool
    is_information: bool
    facts: tuple[Document, ...] = ()

    def numbers(self, *names: str) -> list[float]:
        """Return the values of facts that are of a node, or of a job, by their names."""
        return [float(fact["value"]) for fact in self.facts if fact["name"] in names]


@dataclass(frozen=True, slots=True)
class Reported:
    """A report: its findings, the gravest first, and its verdict; ``lost`` is the verdict's loss in money, if any."""

    level: str
    health: str
    change: str
    cost: str
    lost: float | None
    findings: tuple[Finding, ...]

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """The findings that are more than information."""
        return tuple(finding for finding in self.findings if not finding.is_information)


def read_report(document: Document) -> Reported:
    """Return what a report says."""
    rules = {entry["rule"]: entry for entry in document["rules"]}
    verdict = document["verdict"]
    return Reported(
        level=verdict["level"],
        health=verdict["health"],
        change=verdict["change"],
        cost=verdict["cost"],
        lost=_lost(verdict["lost"]),
        findings=tuple(_finding(entry, rules[entry["rule"]]) for entry in document["findings"]),
    )


def _finding(entry: Document, rule: Document) -> Finding:
    told = entry.get("episodes")
    return Finding(
        rule=entry["rule"],
        score=float(entry["score"]),
        reason=entry["reason"],
        advice=entry["advice"] or "",
        lost=_lost(entry["cost"]),
        episodes=tuple(map(_episode, told)) if told else (_last_episode(entry, rule),),
        told=bool(told),
        is_information=str(entry["severity"]).lower() in _INFORMATION,
        facts=tuple(entry["facts"]),
    )


def _episode(entry: Document) -> Episode:
    return Episode(
        start=_epoch(entry.get("start")),
        end=_epoch(entry.get("end")),
        nodes=_names(entry.get("node"), _NODE),
        gpus=_names(entry.get("gpus"), _GPU),
        lost=_lost(entry.get("cost")),
    )


def _last_episode(entry: Document, rule: Document) -> Episode:
    """Return the last episode as far as a report without episodes tells it: a place is the first one that it names."""
    places = f"{entry['worst'] or ''} {entry['reason']}"
    return Episode(
        start=_epoch(rule["fired_at"]),
        end=None,
        nodes=_names(places, _NODE)[:1],
        gpus=_names(places, _GPU)[:1],
        lost=_lost(entry["cost"]),
    )


def _names(told: object, pattern: re.Pattern[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pattern.findall(str(told or ""))))


def _lost(cost: object) -> float | None:
    if isinstance(cost, Mapping):
        return float(cost["lost"])
    return float(cost) if isinstance(cost, int | float) else None


def _epoch(time: object) -> float | None:
    if isinstance(time, str):
        return datetime.fromisoformat(time).timestamp()
    return float(time) if isinstance(time, int | float) else None
