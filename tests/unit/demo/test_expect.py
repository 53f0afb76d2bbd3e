"""What the demonstration must have shown: each miss is found, and named with what was expected and seen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from demo.live.expect import Check, JobSeen, quiet_job, reported_job, shown, stack, stopped_job
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES

URI = "s3://profiles/job/rule-output/TrainGuardReport/report.json"
PAGE = "s3://profiles/job/rule-output/TrainGuardReport/report.html"
STOPPED = "Training job stopped: trainguard:stop-on-fire is 'allowed' on job job, which is in progress."
REFUSED = "Training job not stopped: its owner has not opted in: job job has no tag trainguard:stop-on-fire."
ROWS = {**dict.fromkeys((*RULE_NAMES, PROFILER_REPORT), "OK"), "StepOutlier": "NOT_APPLICABLE"}
MEANING = {"Severity": "high", "Advice": "Prefetch.", "AffectedPercent": 100, "CostLost": "about USD 1.00"}
LINES = {
    "scope": "full",
    "timelines": {"nodes": [{"node": "algo-1", "gpus": [{"utilization": {"mean": [None, 5.0]}}]}]},
}
REPORT = {"final": True, "fired": ["LowGPUUtilization"], "findings": [{"rule": "LowGPUUtilization"}], **LINES}
BLANK = {"nodes": [{"node": "algo-1", "gpus": [{"utilization": {"mean": [None]}}]}, {"node": "algo-2", "gpus": []}]}

Evaluate = Callable[[JobSeen], list[Check]]


def fired(*, stopped: bool) -> JobSeen:
    action = STOPPED if stopped else REFUSED
    row = {"Status": "FIRED", "Action": action, "AlertId": "f1", "ReportUri": PAGE, **MEANING}
    alert = {"rule": "LowGPUUtilization", "alert_id": "f1", "action": action, "stop": {"made": stopped}}
    alert |= {"report_uri": URI, "report_page": PAGE, "cost": "about USD 1.00 of the USD 2.00 spent"}
    return JobSeen(
        job="job",
        status="Stopped" if stopped else "Completed",
        cut_short=stopped,
        alerts=(alert,),
        stop_calls=({"error": None},) if stopped else (),
        rows={"LowGPUUtilization": row, "CPUBottleneck": {"Status": "OK"}, "ProfilerReport": {"Status": "FIRED"}},
        report=REPORT,
        report_uri=URI,
        page_uri=PAGE,
    )


def quiet() -> JobSeen:
    return JobSeen(
        job="job",
        status="Completed",
        rows={rule: {"Status": status} for rule, status in ROWS.items()},
        report={"final": True, "fired": [], **LINES},
        report_uri=URI,
        page_uri=PAGE,
    )


def missed(checks: list[Check]) -> list[str]:
    return [check.what for check in checks if not check.holds]


def with_alert(seen: JobSeen, **fields: Any) -> JobSeen:
    return replace(seen, alerts=[{**alert, **fields} for alert in seen.alerts])


def with_row(seen: JobSeen, rule: str, **columns: Any) -> JobSeen:
    return replace(seen, rows={**seen.rows, rule: {**seen.rows.get(rule, {}), **columns}})


@pytest.mark.parametrize(
    ("judge", "seen"),
    [(stopped_job, fired(stopped=True)), (reported_job, fired(stopped=False)), (quiet_job, quiet())],
)
def test_complete_observation_has_no_miss(judge: Evaluate, seen: JobSeen) -> None:
    assert missed(judge(seen)) == []


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (replace(fired(stopped=True), alerts=()), "alerts, by rule"),
        (replace(fired(stopped=True), alerts=[*fired(stopped=True).alerts] * 2), "alerts, by rule"),
        (replace(fired(stopped=True), stop_calls=()), "StopTrainingJob calls, by their error"),
        (replace(fired(stopped=True), stop_calls=({"error": None},) * 2), "StopTrainingJob calls, by their error"),
        (replace(fired(stopped=True), stop_calls=({"error": "ValidationException"},)), "StopTrainingJob calls, by"),
        (replace(fired(stopped=True), status="Stopping"), "TrainingJobStatus"),
        (replace(fired(stopped=True), cut_short=False), "uploads ceased early"),
        (replace(fired(stopped=True), report=None), "report in the bucket"),
        (replace(fired(stopped=True), report={"final": False, "fired": ["LowGPUUtilization"]}), "report is final"),
        (replace(fired(stopped=True), report={"final": True, "fired": []}), "report: rules that fired"),
        (
            replace(fired(stopped=True), report={**REPORT, "findings": [{"rule": "BatchSize"}]}),
            "report: first finding",
        ),
        (replace(fired(stopped=True), report={**REPORT, "findings": []}), "report: first finding"),
        (replace(fired(stopped=True), report={**REPORT, "scope": "state"}), "report: scope"),
        (
            replace(fired(stopped=True), report={**REPORT, "timelines": None}),
            "report: nodes whose time lines are empty",
        ),
        (
            replace(fired(stopped=True), report={**REPORT, "timelines": BLANK}),
            "report: nodes whose time lines are empty",
        ),
        (with_alert(fired(stopped=True), cost="about USD 0.00 of the USD 0.00 spent"), "alerts tell what it has cost"),
        (with_alert(fired(stopped=True), cost=None), "alerts tell what it has cost"),
        (replace(fired(stopped=True), page_uri="s3://other"), "alerts lead to the report"),
        (
            with_row(fired(stopped=True), "LowGPUUtilization", CostLost=None),
            "LowGPUUtilization: columns of what it means that are empty",
        ),
        (with_row(fired(stopped=True), "ProfilerReport", Status="OK"), "ProfilerReport: Status"),
        (with_row(fired(stopped=True), "LowGPUUtilization", Status="OK"), "LowGPUUtilization: Status"),
        (with_row(fired(stopped=True), "LowGPUUtilization", Action=REFUSED), "LowGPUUtilization: Action"),
        (with_row(fired(stopped=True), "LowGPUUtilization", AlertId="f2"), "LowGPUUtilization: AlertId"),
        (with_row(fired(stopped=True), "LowGPUUtilization", ReportUri="s3://other"), "LowGPUUtilization: ReportUri"),
        (replace(fired(stopped=True), rows={}), "LowGPUUtilization: Status"),
    ],
)
def test_single_fault_of_the_stopped_job_is_named(seen: JobSeen, what: str) -> None:
    assert any(name.startswith(what) for name in missed(stopped_job(seen)))


def with_cause(seen: JobSeen, *, stopped: bool) -> JobSeen:
    """Return the job with the alert of its cause too, after the symptom's."""
    symptom = seen.rows["LowGPUUtilization"]
    cause = {**seen.alerts[0], "rule": "Dataloader", "action": REFUSED, "stop": {"made": stopped}}
    report = {**REPORT, "fired": ["LowGPUUtilization", "Dataloader"], "findings": [{"rule": "Dataloader"}]}
    return replace(
        seen,
        alerts=(*seen.alerts, cause),
        rows={**seen.rows, "Dataloader": {**symptom, "Action": REFUSED}},
        report=report,
    )


def test_exactly_one_of_cause_and_symptom_stops_the_job() -> None:
    assert missed(stopped_job(with_cause(fired(stopped=True), stopped=False))) == []
    assert missed(reported_job(with_cause(fired(stopped=False), stopped=False))) == []
    assert "alerts say that the job was stopped" in missed(stopped_job(with_cause(fired(stopped=True), stopped=True)))


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (replace(fired(stopped=False), stop_calls=({"error": None},)), "StopTrainingJob calls, by their error"),
        (replace(fired(stopped=False), stop_calls=({"error": "Denied"},)), "StopTrainingJob calls, by their error"),
        (replace(fired(stopped=False), status="Stopped"), "TrainingJobStatus"),
        (replace(fired(stopped=False), alerts=fired(stopped=True).alerts), "alerts say that the job was stopped"),
        (with_row(fired(stopped=False), "LowGPUUtilization", Action=STOPPED), "LowGPUUtilization: Action"),
        (
            with_row(fired(stopped=False), "LowGPUUtilization", Action="Training job not stopped: the switch is off."),
            "LowGPUUtilization: Action",
        ),
    ],
)
def test_single_fault_of_the_guarded_job_is_named(seen: JobSeen, what: str) -> None:
    assert what in missed(reported_job(seen))


@pytest.mark.parametrize("status", ["FIRED", "ERROR", "WARMING_UP", "WAITING_FOR_DATA", None])
def test_rule_that_is_not_quiet_on_the_healthy_job_is_named(status: str | None) -> None:
    seen = with_row(quiet(), "StepOutlier", Status=status)

    (miss,) = [check for check in quiet_job(seen) if not check.holds]

    assert miss.what == "rules that are not quiet"
    assert miss.seen == {"StepOutlier": status}


def test_alert_or_stop_of_the_healthy_job_is_a_miss() -> None:
    seen = replace(quiet(), alerts=({"rule": "CPUBottleneck"},), stop_calls=({"error": None},), report=None)

    assert missed(quiet_job(seen)) == [
        "alerts, by rule",
        "StopTrainingJob calls, by their error",
        "report in the bucket",
        "report is final",
        "report: rules that fired",
        "report: scope",
        "report: nodes whose time lines are empty",
    ]


def test_failed_execution_or_dead_letter_is_a_miss() -> None:
    assert missed(stack([], {"queue": 0})) == []

    checks = stack(["report-1"], {"queue": 2})

    assert [check.seen for check in checks if not check.holds] == [["report-1"], {"queue": 2}]


def test_shown_miss_has_expected_and_observed_values() -> None:
    assert str(Check("job", "TrainingJobStatus", "Stopped", "Stopped")) == "job: TrainingJobStatus: Stopped"
    assert str(Check("job", "alerts", ["A"], [])) == "job: alerts: expected ['A'], seen []"


def test_line_of_a_job_says_what_was_shown_or_missed() -> None:
    seen, healthy = fired(stopped=True), quiet()

    assert shown(seen, stopped_job(seen), ended="it was stopped") == (
        "job: LowGPUUtilization fired, an alert was sent, and it was stopped"
    )
    assert shown(healthy, quiet_job(healthy), ended="it ran to its end") == (
        "job: no rule fired, no alert was sent, and it ran to its end"
    )
    running = replace(seen, status="InProgress")
    checks = stopped_job(running)
    assert shown(running, checks, ended="it was stopped") == (
        f"job: not shown, 1 of {len(checks)} expectations were missed"
    )
