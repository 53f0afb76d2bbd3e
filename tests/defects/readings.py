"""Both readings of one profile: what the original makes of it, and what it should have made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.profile_folder import ProfileFolder
from trainguard.core.records import JobRecord, Status, StreamKey, StreamRecord
from trainguard.engine.diagnosis.case import case_of
from trainguard.engine.installed import FAMILIES
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.local.engine import evaluate_profile
from trainguard.local.pool import WorkerPool
from trainguard.local.profile import Profile, read_profile
from trainguard.local.sources import open_folder
from trainguard.managed.replay import Replayed, replay

Parameters = Mapping[str, Mapping[str, Any]]
# The step of a process that none has followed: StepOutlier counts it only when another one does.
NEWEST = 1


@dataclass(frozen=True, slots=True)
class Compatible:
    """The original's reading."""

    replayed: Replayed

    def of(self, rule: str) -> dict[str, Any]:
        """Return the five fields of a rule's report."""
        return self.replayed.reports[rule]

    def details(self, rule: str) -> dict[str, Any]:
        """Return a rule's Details."""
        details: dict[str, Any] = self.of(rule)["Details"]
        return details

    def counts(self, rule: str) -> tuple[int, int, int]:
        """Return RuleTriggered, Violations and Datapoints."""
        report = self.of(rule)
        return report["RuleTriggered"], report["Violations"], report["Datapoints"]


@dataclass(frozen=True, slots=True)
class Documented:
    """TrainGuard's own reading, at the job's end."""

    profile: Profile
    verdicts: Mapping[str, RuleOutcome]
    records: Mapping[StreamKey, StreamRecord]

    def status(self, rule: str) -> Status:
        """Return what the rule says at the job's end."""
        return self.verdicts[rule].result.status

    def times_fired(self, rule: str) -> int:
        """Return how many episodes of firing the job had."""
        return self.verdicts[rule].history.times_fired

    def datapoints(self, rule: str) -> int:
        """Return how many points or steps the rule has judged."""
        return self.verdicts[rule].result.data_points

    def worst(self, rule: str) -> str | None:
        """Return which series is worst."""
        return self.verdicts[rule].result.worst

    def reason(self, rule: str) -> str:
        """Return the rule's sentence."""
        return self.verdicts[rule].result.reason

    def details(self, rule: str, node: str | None = None) -> Any:
        """Return the rule's details, of one node where that is given."""
        details = self.verdicts[rule].result.plain_details
        return details if node is None else details[node]

    def counters(self, node: str, stream: str) -> Mapping[str, int]:
        """Return what was counted while a node's objects were read."""
        return self._record(node, stream).counters

    def watermark_s(self, node: str, stream: str) -> float | None:
        """Return up to when a node's stream was judged, epoch seconds."""
        return self._record(node, stream).watermark_s

    def _record(self, node: str, stream: str) -> StreamRecord:
        return self.records[StreamKey(self.profile.root.job, node, stream)]


@dataclass(frozen=True, slots=True)
class Both:
    """One profile, read twice."""

    compatible: Compatible
    documented: Documented


def both(folder: ProfileFolder, parameters: Parameters | None = None) -> Both:
    """Read a profile twice, with the same parameters by rule and name beside each reading's own defaults."""
    return Both(compatible(folder, parameters), documented(folder, parameters))


def compatible(folder: ProfileFolder, parameters: Parameters | None = None) -> Compatible:
    """Replay what the original computes."""
    source = open_folder(str(folder.path))
    return Compatible(replay(list(source.sizes), source.read, parameters))


def documented(folder: ProfileFolder, parameters: Parameters | None = None) -> Documented:
    """Evaluate as the deployed stack does."""
    settings = {
        f"{rule}_{parameter}": str(value)
        for rule, given in (parameters or {}).items()
        for parameter, value in given.items()
    }
    profile = read_profile(open_folder(str(folder.path)))
    job = JobRecord(job=profile.root.job, arn="", bucket="", prefix="", rule_settings=settings)
    with WorkerPool(0) as pool:
        evaluation = evaluate_profile(job, FAMILIES.plan(job), profile, pool)
    streams = FAMILIES.open(job.job, evaluation.plan, evaluation.records)
    case, _ = case_of(evaluation.job, evaluation.plan, streams)
    return Documented(
        profile=profile,
        verdicts={verdict.rule: verdict for verdict in case.verdicts},
        records={record.key: record for record in evaluation.records},
    )
