"""OpsItems of OpsCenter for broken GPUs: one for each GPU of a node, made of a finding on its health."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from trainguard.core.finding import WHOLE_JOB, EpisodeEntry, Fact, Severity
from trainguard.core.layout import open_command
from trainguard.core.text import one_line
from trainguard.rules.gpu_health.text import HealthKind

# Faults of hardware: a GPU that is throttled has none.
BROKEN = tuple(
    kind.value
    for kind in (
        HealthKind.LOST,
        HealthKind.VANISHED,
        HealthKind.UNANSWERED,
        HealthKind.XID,
        HealthKind.XID_AFTER_RESET,
        HealthKind.ECC,
        HealthKind.ROWS,
        HealthKind.LINK,
    )
)

_SEVERITIES = {Severity.CRITICAL: "1", Severity.HIGH: "2", Severity.MEDIUM: "3", Severity.LOW: "4"}
# SageMaker's own names of nodes, which each job has again.
_NODE_OF_JOB = re.compile(r"algo-\d+")
# Of a description in OpsCenter.
_LONGEST = 2_000
_MOST_GPUS = 16


class HealthFinding(msgspec.Struct, frozen=True):
    """What is read of an alert's document."""

    job: str
    job_arn: str
    node: str
    reason: str
    finding_kind: str
    report_uri: str
    fired_at: str
    severity: Severity | None = None
    advice: str | None = None
    episodes: list[EpisodeEntry] = msgspec.field(default_factory=list)
    facts: list[Fact] = msgspec.field(default_factory=list)


class FindingEvent(msgspec.Struct, frozen=True):
    """The event ``TrainGuard Finding``."""

    detail: HealthFinding


@dataclass(frozen=True, slots=True)
class OpsItem:
    """An OpsItem; of items with one ``identity`` one is open at a time. ``data`` are texts by names."""

    title: str
    description: str
    severity: str
    identity: str
    data: dict[str, str]


class OpsItems(Protocol):
    def open(self, item: OpsItem) -> bool:
        """Open an item unless an open one has its identity; raises PortUnavailableError."""


def items_of(finding: HealthFinding) -> Iterator[OpsItem]:
    """Yield an item for each GPU that the finding names."""
    for node, gpu in _gpus(finding):
        place = f"{finding.job}/{node}" if _NODE_OF_JOB.fullmatch(node) else node
        data = {"job": finding.job, "jobArn": finding.job_arn, "node": node, "gpu": gpu, "kind": finding.finding_kind}
        lines = (
            finding.reason,
            finding.advice,
            f"Job: {finding.job}. Found at: {finding.fired_at}.",
            f"Report: {finding.report_uri}",
            f"Or with a link: {open_command(finding.job)}",
        )
        yield OpsItem(
            title=one_line(f"{gpu} of {place} is broken: {finding.finding_kind.replace('_', ' ')}", 250),
            description="\n".join(one_line(each) for each in lines if each)[:_LONGEST],
            severity=_SEVERITIES[finding.severity or Severity.MEDIUM],
            identity=json.dumps([place, gpu]),
            data={name: one_line(value, 500) for name, value in {**data, "firedAt": finding.fired_at}.items()},
        )


def _gpus(finding: HealthFinding) -> list[tuple[str, str]]:
    """Return nodes and GPUs: those of the facts, and of the newest episode, in which several nodes name theirs."""
    here = [(fact.node or finding.node, fact.device) for fact in finding.facts if fact.device]
    here += [(fact.node or finding.node, str(fact.value)) for fact in finding.facts if fact.name == "other_gpu"]
    for episode in finding.episodes[-1:]:
        only = episode.node or finding.node
        named = (each.rpartition("/") for each in episode.gpus)
        here += [(node or only, gpu) for node, _, gpu in named]
    return [each for each in dict.fromkeys(here) if each[0] != WHOLE_JOB][:_MOST_GPUS]


def open_all(finding: HealthFinding, ops_items: OpsItems) -> dict[str, Any]:
    """Open what is not open yet; a repeat opens nothing twice."""
    opened = [(item, ops_items.open(item)) for item in items_of(finding)]
    return {"opened": [item.title for item, new in opened if new], "known": sum(not new for _, new in opened)}
