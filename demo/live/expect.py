"""What the demonstration must have shown, and whether it did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES

# Whichever fires first may stop the job, and then the other may never fire.
CAUSE, SYMPTOM = "Dataloader", "LowGPUUtilization"

QUIET_STATUSES = frozenset({"OK", "NOT_APPLICABLE"})

_MEANING = ("Severity", "Advice", "AffectedPercent", "CostLost")
_FREE = " 0.00"
_STOPPED = "Training job stopped: "
_NOT_STOPPED = "Training job not stopped: "
_NOT_OPTED_IN = "not opted in"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """What was seen of one job.

    ``cut_short``: its uploads ended before its recording. ``stop_calls`` have an ``error`` if refused. ``rows`` are by
    RuleTarget. ``report`` is None when there is none that can be read.
    """

    job: str
    status: str
    cut_short: bool = False
    alerts: Sequence[Mapping[str, Any]] = ()
    stop_calls: Sequence[Mapping[str, Any]] = ()
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    report: Mapping[str, Any] | None = None
    report_uri: str = ""
    page_uri: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation: of what, what was expected, and what was seen."""

    of: str
    what: str
    expected: object
    seen: object

    @property
    def holds(self) -> bool:
        return self.expected == self.seen

    def __str__(self) -> str:
        if self.holds:
            return f"{self.of}: {self.what}: {_shown(self.seen)}"
        return f"{self.of}: {self.what}: expected {_shown(self.expected)}, seen {_shown(self.seen)}"


def stopped_job(seen: JobSeen) -> list[Check]:
    """Return the checks of the job that starves its GPUs and may be stopped."""
    return [
        *_fired(seen, stopped=True),
        Check(seen.job, "StopTrainingJob calls, by their error", [None], [call["error"] for call in seen.stop_calls]),
        Check(seen.job, "TrainingJobStatus", "Stopped", seen.status),
        Check(seen.job, "uploads ceased early", True, seen.cut_short),
    ]


def reported_job(seen: JobSeen) -> list[Check]:
    """Return the checks of the same job whose owner has not opted in to being stopped."""
    return [
        *_fired(seen, stopped=False),
        Check(seen.job, "StopTrainingJob calls, by their error", [], [call["error"] for call in seen.stop_calls]),
        Check(seen.job, "TrainingJobStatus", "Completed", seen.status),
    ]


def quiet_job(seen: JobSeen) -> list[Check]:
    statuses = {rule: seen.rows.get(rule, {}).get("Status") for rule in (*RULE_NAMES, PROFILER_REPORT)}
    return [
        Check(seen.job, "alerts, by rule", [], _rules(seen.alerts)),
        Check(seen.job, "StopTrainingJob calls, by their error", [], [call["error"] for call in seen.stop_calls]),
        Check(seen.job, "TrainingJobStatus", "Completed", seen.status),
        Check(
            seen.job,
            "rules that are not quiet",
            {},
            {rule: status for rule, status in statuses.items() if status not in QUIET_STATUSES},
        ),
        *_reported(seen, []),
    ]


def stack(failed_executions: Sequence[str], dead_letters: Mapping[str, int]) -> list[Check]:
    """Return the checks of what must not have happened anywhere; ``dead_letters`` are messages by queue."""
    full = {queue: count for queue, count in dead_letters.items() if count}
    return [
        Check("stack", "executions that failed", [], list(failed_executions)),
        Check("stack", "messages in dead-letter queues", {}, full),
    ]


def shown(seen: JobSeen, checks: Sequence[Check], *, ended: str) -> str:
    """Return one line that says what a job has shown: rules and alerts, then how it ``ended``."""
    missed = sum(not check.holds for check in checks)
    if missed:
        return f"{seen.job}: not shown, {missed} of {len(checks)} expectations were missed"
    rules = " and ".join(sorted(set(_rules(seen.alerts))))
    found = f"{rules} fired, an alert was sent" if rules else "no rule fired, no alert was sent"
    return f"{seen.job}: {found}, and {ended}"


def _fired(seen: JobSeen, *, stopped: bool) -> list[Check]:
    leading = next((alert for alert in seen.alerts if _made(alert)), seen.alerts[0] if seen.alerts else {})
    rule, rules = leading.get("rule", CAUSE), _rules(seen.alerts)
    expected = sorted({CAUSE, SYMPTOM} & set(rules)) or [CAUSE]
    made = sorted(map(_made, seen.alerts), reverse=True)
    alerted = (leading.get("alert_id"), leading.get("action"))
    led = [(alert.get("report_uri"), alert.get("report_page")) for alert in seen.alerts]
    row = seen.rows.get(rule, {})
    outcome = "stopped" if stopped else "not stopped: not opted in"
    missing = [name for name in _MEANING if not row.get(name)]
    top = (seen.report or {}).get("findings") or [{}]
    return [
        Check(seen.job, "alerts, by rule", expected, sorted(rules)),
        Check(seen.job, "alerts say that the job was stopped", [stopped, *[False] * (len(expected) - 1)], made),
        Check(seen.job, f"{rule}: Status", "FIRED", row.get("Status")),
        Check(seen.job, f"{rule}: Action", outcome, _outcome(row.get("Action"))),
        Check(seen.job, f"{rule}: AlertId and Action, as alerted", alerted, (row.get("AlertId"), row.get("Action"))),
        Check(seen.job, f"{rule}: ReportUri", seen.page_uri, row.get("ReportUri")),
        Check(seen.job, "alerts tell what it has cost", True, _FREE not in (leading.get("cost") or _FREE)),
        Check(seen.job, "alerts lead to the report", [(seen.report_uri, seen.page_uri)] * len(expected), led),
        Check(seen.job, f"{rule}: columns of what it means that are empty", [], missing),
        Check(seen.job, f"{PROFILER_REPORT}: Status", "FIRED", seen.rows.get(PROFILER_REPORT, {}).get("Status")),
        *_reported(seen, expected),
        Check(seen.job, "report: first finding", expected[0], top[0].get("rule")),
    ]


def _reported(seen: JobSeen, fired: list[str]) -> list[Check]:
    report = seen.report or {}
    return [
        Check(seen.job, "report in the bucket", True, seen.report is not None),
        Check(seen.job, "report is final", True, report.get("final")),
        Check(seen.job, "report: rules that fired", fired, sorted(report.get("fired", ["no report"]))),
        Check(seen.job, "report: scope", "full", report.get("scope")),
        Check(seen.job, "report: nodes whose time lines are empty", [], _blank(report)),
    ]


def _blank(report: Mapping[str, Any]) -> list[object]:
    """Return nodes without values of GPUs, or None for a report without nodes."""
    nodes = (report.get("timelines") or {}).get("nodes") or [{"node": None, "gpus": []}]
    return [
        node["node"]
        for node in nodes
        if all(mean is None for gpu in node["gpus"] for mean in gpu["utilization"]["mean"])
    ]


def _rules(alerts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [alert.get("rule", "") for alert in alerts]


def _made(alert: Mapping[str, Any]) -> bool:
    return bool(alert.get("stop", {}).get("made"))


def _outcome(action: object) -> object:
    """Return a row's Action in a word; the text itself when it says neither."""
    text = str(action)
    if text.startswith(_STOPPED):
        return "stopped"
    if text.startswith(_NOT_STOPPED) and _NOT_OPTED_IN in text:
        return "not stopped: not opted in"
    return action


def _shown(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
