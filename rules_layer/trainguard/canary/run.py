"""Plants a canary, and looks minutes later what became of it.

Both steps take their time from the event that asks for them, and either can be repeated: the first writes the same
objects again, the second only reads. The newest canary stays in the bucket until the next one is planted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.canary.name import CANARY_PREFIX, planted_at
from trainguard.canary.profile import RULE, canary_objects, canary_root
from trainguard.ports import Journal, ReportObjects, RuleStates, StoredRow
from trainguard.report.links import REPORT_JSON
from trainguard.telemetry.keys import ProfileRoot

FRESH_S = 3_600.0
"""The canary that is looked at was planted within this time, or none was today."""

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class CanaryVerdict:
    """What became of a canary.

    Attributes
    ----------
    job : str or None
        The canary; None when there is none.
    missing : tuple of str
        What did not happen, a sentence each; empty when it passed.
    latency_s : float or None
        From the time at which it was planted until its alert had been sent; None when none was.
    """

    job: str | None
    missing: tuple[str, ...]
    latency_s: float | None

    @property
    def passed(self) -> bool:
        """Whether the fault was found, told and reported."""
        return not self.missing


class Canary:
    """Plants and looks, in one bucket."""

    def __init__(self, *, bucket: str, objects: ReportObjects, rows: RuleStates, journal: Journal) -> None:
        self._bucket = bucket
        self._objects = objects
        self._rows = rows
        self._journal = journal

    def plant(self, at: float) -> str:
        """Write the canary of ``at``, epoch seconds, and delete the objects of those before; return its name."""
        root = canary_root(at)
        earlier = [key for key in self._keys() if _job_of(key) != root.job]
        self._objects.delete(self._bucket, earlier)
        for each in canary_objects(at):
            self._objects.put(self._bucket, each.key, each.body, _JSON)
        return root.job

    def look(self, at: float) -> CanaryVerdict:
        """Say what became, until ``at``, of the newest canary, and count whether it passed."""
        keys = self._keys()
        job = max((_job_of(key) for key in keys), default=None)
        planted = None if job is None else planted_at(job)
        if job is None or planted is None or at - planted > FRESH_S:
            verdict = CanaryVerdict(job, (f"no canary was planted in the last {FRESH_S / 60:.0f} min",), None)
        else:
            verdict = judge_canary(job, planted, self._rows.load(job, RULE), keys)
        self._count(verdict)
        return verdict

    def _count(self, verdict: CanaryVerdict) -> None:
        self._journal.count("canary_passed", int(verdict.passed), job=verdict.job)
        if verdict.missing:
            self._journal.count("canary_failed", job=verdict.job, reason="; ".join(verdict.missing))
        if verdict.latency_s is not None:
            self._journal.measure("canary_latency_seconds", verdict.latency_s)

    def _keys(self) -> list[str]:
        """Return the keys of all canaries; a job that is only called much like one is nobody's to delete."""
        listed = self._objects.list(self._bucket, CANARY_PREFIX, "")
        return [each.key for each in listed if planted_at(_job_of(each.key)) is not None]


def judge_canary(job: str, planted: float, stored: StoredRow | None, keys: Sequence[str]) -> CanaryVerdict:
    """Say whether a canary was found, told and reported.

    Parameters
    ----------
    job : str
    planted : float
        When it was planted, epoch seconds.
    stored : StoredRow or None
        The row of the rule that is to find it, on the whole job.
    keys : sequence of str
        Of the objects in its folder, those of other jobs among them or not.
    """
    if stored is None:
        return CanaryVerdict(job, (f"{RULE} has no row of it: it was not evaluated, or did not fire",), None)
    missing = []
    if stored.row.debugger_status != "IssuesFound":
        missing.append(f"{RULE} says {stored.row.status.value} of it, not FIRED: {stored.row.reason}")
    if stored.alert_id is None:
        missing.append(f"its alert was not sent: {stored.action or 'no execution has recorded an action'}")
    report = f"{ProfileRoot('', job).report}{REPORT_JSON}"
    if stored.report_uri is None or report not in keys:
        missing.append(f"its report is not there: {report}")
    sent = None if stored.alert_id is None else stored.action_at
    return CanaryVerdict(job, tuple(missing), None if sent is None else sent - planted)


def _job_of(key: str) -> str:
    return key.partition("/")[0]
