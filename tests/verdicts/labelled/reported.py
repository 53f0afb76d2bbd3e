"""What a `report.json` says, in the few terms that the scorer needs: the one place that knows its fields.

It is read for facts, kinds, shares and times. What its sentences make of them is checked elsewhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainguard.core.finding import Fact

_GPU = re.compile(r"gpu\d+")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Episode:
    """When and where a finding held: epoch seconds, node and GPUs by name; ``lost_s`` are node-seconds that it lost.

    None of ``end`` goes on; None of ``lost_s`` is not known.
    """

    start: float
    end: float | None
    nodes: tuple[str, ...]
    gpus: tuple[str, ...]
    lost_s: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that has fired.

    ``lost`` is the share, 0 to 1, of the paid time that it claims; None of a risk.
    """

    rule: str
    kind: str
    severity: str
    score: float
    lost: float | None
    explained_by: str | None
    episodes: tuple[Episode, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Reported:
    """A report: its findings, the most severe first, its verdict, and the ledger: the share, 0 to 1, of each bucket.

    ``rule`` is what the verdict says to change first, ``causes`` are all findings that nothing explains. ``lost`` is
    the share, 0 to 1, of the paid time that was no compute.
    """

    level: str
    rule: str | None
    causes: tuple[str, ...]
    lost: float | None
    findings: tuple[Finding, ...]
    ledger: Mapping[str, float]

    @property
    def claimed(self) -> float:
        """The share, 0 to 1, of the paid time that findings claim, all of them together."""
        return sum(finding.lost or 0.0 for finding in self.findings)


def read_report(document: Document) -> Reported:
    """Return what a report says."""
    verdict = document["verdict"]
    return Reported(
        level=verdict["level"],
        rule=verdict["rule"],
        causes=tuple(verdict["causes"]),
        lost=verdict["wasted_share"],
        findings=tuple(map(_finding, document["findings"])),
        ledger={entry["bucket"]: float(entry["share"]) for entry in document["ledger"] or ()},
    )


def _finding(entry: Document) -> Finding:
    return Finding(
        rule=entry["rule"],
        kind=entry["finding_kind"],
        severity=entry["severity"],
        score=float(entry["score"]),
        lost=entry["wasted_share"],
        explained_by=entry["explained_by"],
        episodes=tuple(map(_episode, entry["episodes"])),
        facts=tuple(map(_fact, entry["facts"])),
    )


def _fact(entry: Document) -> Fact:
    renamed = {"from": "start", "to": "end"}
    return Fact(**{renamed.get(name, name): value for name, value in entry.items()})


def _episode(entry: Document) -> Episode:
    gpus = dict.fromkeys(found for name in entry["gpus"] for found in _GPU.findall(name))
    return Episode(
        start=_epoch(entry["start"]),
        end=None if entry["end"] is None else _epoch(entry["end"]),
        nodes=tuple(entry["nodes"]),
        gpus=tuple(gpus),
        lost_s=entry["wasted_s"],
    )


def _epoch(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
