"""The alert says truly what was done, fits SNS's limits and carries hostile text unharmed."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.finding import FINDING_FIELDS, EpisodeEntry, Fact, Finding
from trainguard.core.job_policy import AlertPolicy, JobPolicy, QuietHours
from trainguard.core.records import AlertKind, JobRecord, OutboxEntry
from trainguard.core.timestamps import epoch_of, iso_time
from trainguard.engine.outbox import fire_payload
from trainguard.report.document import encode_schema
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.document import alert_schema
from trainguard.stack.actions.request import AlertRequest, FireInput, StopDecision, StopResult

PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas" / "alert-1.json"
FIRE: dict[str, Any] = {
    "job": "bert",
    "job_arn": "arn:aws:sagemaker:eu-west-1:111122223333:training-job/bert",
    "rule": "LowGPUUtilization",
    "fire_id": "f" * 20,
    "episode": 0,
    "node": "algo-1",
    "reason": "gpu1 is low.",
    "fired_at": "2026-11-21T08:20:00.000Z",
    "report_uri": "s3://profiles/bert/rule-output/TrainGuardReport/report.json",
    "report_page": "s3://profiles/bert/rule-output/TrainGuardReport/report.html",
    "report_link": "https://eu-west-1.console.aws.amazon.com/s3/object/profiles?region=eu-west-1&prefix=bert/report.html",
    "measured": 34.0,
    "threshold": 70.0,
}


def alert_input(**fire: Any) -> FireInput:
    """Return what an alert is about; fields of its finding and entry stand among the others, as in an input."""
    finding = Finding(**{name: fire.pop(name) for name in FINDING_FIELDS if name in fire})
    names = ("fire_id", "episode", "kind", "previous_severity", "lasted_s")
    own = {name: fire.pop(name) for name in names if name in fire}
    return FireInput(entry=OutboxEntry(finding=finding, enqueued_at=epoch_of(fire.pop("fired_at")), **own), **fire)


def alert(
    *,
    stop: Any = False,
    decision: Any = "refused",
    why: Any = "its owner has not opted in",
    made: Any = False,
    error: Any = None,
    stop_at: Any = None,
    now: float = 0.0,
    **fire: Any,
) -> Any:
    request = AlertRequest(
        alert_input(**(FIRE | fire)), StopDecision(stop, decision, why, stop_at), StopResult(made, error)
    )
    return compose_alert(request, now=now)


def test_executed_stop_is_in_text_document_and_row() -> None:
    composed = alert(stop=True, decision="stop", why="the tag allows it", made=True)
    assert composed.action == "Training job stopped: the tag allows it."
    assert composed.action in composed.text
    assert composed.document["stop"]["made"] is True
    assert composed.attributes["Stopped"] == "true"


def test_failed_stop_is_not_announced_as_executed() -> None:
    composed = alert(stop=True, decision="stop", why="the tag allows it", made=False, error="AccessDenied: no")
    assert composed.action == "Stopping the training job failed: AccessDenied: no"
    assert composed.document["stop_error"] == "AccessDenied: no"
    assert composed.attributes["Stopped"] == "false"


def test_given_a_refusal_when_composed_then_it_says_why() -> None:
    assert alert().action == "Training job not stopped: its owner has not opted in."


def test_machine_readable_alert_has_id_report_and_numbers() -> None:
    document = alert().document
    assert document["alert_id"] == FIRE["fire_id"]
    assert document["report_uri"] == FIRE["report_uri"]
    assert (document["report_page"], document["report_link"]) == (FIRE["report_page"], FIRE["report_link"])
    assert document["report_command"] == "trainguard open bert"
    assert (document["measured"], document["threshold"], document["schema_version"]) == (34.0, 70.0, "1")


def test_alert_text_has_a_line_for_each_way_to_the_report() -> None:
    assert (
        f"\nReport: {FIRE['report_page']}\nOpen it in the console: {FIRE['report_link']}\n"
        "Or with a link: trainguard open bert\n"
    ) in alert().text


def test_fire_without_a_page_names_document_path_and_command() -> None:
    text = alert(report_page=None, report_link=None).text
    assert f"\nReport: {FIRE['report_uri']}\nOr with a link: trainguard open bert\n" in text


def test_text_and_document_have_severity_advice_and_cost() -> None:
    composed = alert(severity="high", advice="Prefetch.", cost="about USD 12.40 of 20.10 so far")
    assert "\nWhat to do: Prefetch.\nSeverity: high\nLost: about USD 12.40 of 20.10 so far\nAction: " in composed.text
    told = {name: composed.document[name] for name in ("severity", "advice", "cost")}
    assert told == {"severity": "high", "advice": "Prefetch.", "cost": "about USD 12.40 of 20.10 so far"}
    assert composed.subject == alert().subject


@pytest.mark.parametrize("name", ["search", None])
def test_alert_document_names_the_tuning_job_of_its_job(name: str | None) -> None:
    job = JobRecord("bert", FIRE["job_arn"], "profiles", "", tuning_job=name)
    entry = OutboxEntry("f", 0, 1_795_248_000.0, Finding(FIRE["rule"], "algo-1", "low.", 34.0, 70.0))
    told = compose_alert(AlertRequest(FireInput.read(fire_payload(entry, job))), now=0.0)
    assert told.document["tuning_job"] == name


def test_fire_of_an_older_version_omits_its_missing_fields() -> None:
    composed = alert(severity=None, advice=None, cost=None)
    assert composed.text == alert().text
    assert "None" not in composed.text


def test_text_stays_short_whatever_the_length_of_advice() -> None:
    assert len(alert(advice="x" * 100_000).text) < 2_000


@given(st.text(max_size=300), st.text(max_size=100), st.sampled_from(AlertKind))
def test_subject_is_short_printable_ascii_for_any_names(job: Any, rule: Any, kind: AlertKind) -> None:
    subject = alert(job=job, rule=rule, kind=kind).subject
    assert 0 < len(subject) < 100
    assert subject.isascii()
    assert subject.isprintable()


def test_published_alert_has_filterable_attributes() -> None:
    assert alert(severity="high").attributes == {
        "AlertId": FIRE["fire_id"],
        "Job": "bert",
        "Rule": "LowGPUUtilization",
        "Kind": "fire",
        "Severity": "high",
        "Stopped": "false",
    }
    assert alert().attributes["Severity"] == "unknown"


def test_all_fields_of_document_version_one_remain() -> None:
    first = {
        "schema_version", "alert_id", "job", "job_arn", "rule", "episode", "node", "fired_at", "reason", "severity",
        "advice", "cost", "measured", "threshold", "stop", "stop_error", "action", "report_uri", "report_page",
        "report_link", "report_command",
    }  # fmt: skip
    for kind in AlertKind:
        document = alert(kind=kind).document
        assert first <= set(document)
        assert {"made", "decision", "why"} <= set(document["stop"])
        assert document["kind"] == kind.value


def test_escalation_has_both_severities_and_no_stop() -> None:
    told = alert(kind=AlertKind.ESCALATION, alert_id="f-high", severity="high", previous_severity="low")
    assert told.subject == "TrainGuard: LowGPUUtilization now high on bert"
    assert told.text.startswith("LowGPUUtilization is now high on training job bert; it was low.\n")
    assert told.action == "Severity grew from low to high."
    assert "not stopped" not in told.text
    assert (told.document["alert_id"], told.document["fire_id"]) == ("f-high", FIRE["fire_id"])
    assert (told.document["previous_severity"], told.attributes["Kind"]) == ("low", "escalation")


def test_resolved_finding_has_its_duration_and_cost() -> None:
    told = alert(kind=AlertKind.CLEARED, alert_id="f-cleared", lasted_s=2_520.0, cost="about USD 3.10", advice="Do.")
    assert told.subject == "TrainGuard: LowGPUUtilization is over on bert"
    assert told.action == "The finding is over after 42 min."
    assert told.text.startswith("LowGPUUtilization is over on training job bert after 42 min.\n")
    assert "\nLost: about USD 3.10\n" in told.text
    assert "What to do" not in told.text
    assert told.document["lasted_s"] == 2_520.0


def test_pending_stop_says_when_it_is_due_and_how_to_avert_it() -> None:
    when = "2026-11-21T08:30:00.000Z"
    told = alert(kind=AlertKind.WARNING, decision="grace", why="its grace time has begun", stop_at=when)
    assert told.subject == "TrainGuard: LowGPUUtilization will stop bert"
    assert f"which will be stopped at {when}.\n" in told.text
    assert "\nTo keep it running: remove its tag trainguard:stop-on-fire from the job" in told.text
    assert told.action == f"Training job will be stopped at {when}: its grace time has begun."
    assert told.document["stop"] == {
        "made": False, "decision": "grace", "why": "its grace time has begun", "stop_at": when,
    }  # fmt: skip
    assert told.alert_id == f"{FIRE['fire_id']}-warning"


def test_notice_of_faulty_settings_names_them_and_no_report() -> None:
    told = alert(kind=AlertKind.NOTICE, rule="Settings", reason="LowGPUUtilization_patience is 'x'.")
    assert told.subject == "TrainGuard: faulty settings of bert"
    assert told.text.startswith(
        "The settings of training job bert have faults.\n\nLowGPUUtilization_patience is 'x'.\n"
    )
    assert "Report:" not in told.text


def test_limit_that_will_be_missed_is_no_rule_and_stops_nothing() -> None:
    told = alert(
        kind=AlertKind.DEADLINE, rule="TimeLimit", reason="The last step is forecast for noon.", severity="high"
    )
    assert told.subject == "TrainGuard: bert will miss its time limit"
    assert told.text.startswith(
        "Training job bert will not be done at its time limit.\n\nThe last step is forecast for"
    )
    assert (told.action, told.attributes["Kind"]) == ("The training job runs on until its limit.", "deadline")
    assert "\nSeverity: high\n" in told.text
    assert "\nFound at: " in told.text


def test_staged_or_muted_rule_is_noted_in_its_row_and_not_sent() -> None:
    staged = alert(policy=JobPolicy(alerts=AlertPolicy(staged=(FIRE["rule"],))))
    muted = alert(policy=JobPolicy(alerts=AlertPolicy(muted=(FIRE["rule"],))))
    assert staged.action == "staged: nobody paged"
    assert muted.action == "muted: no alert sent. Training job not stopped: its owner has not opted in."
    assert [each.routing.withheld is None for each in (staged, muted, alert())] == [False, False, True]
    assert (staged.document["withheld"], alert().document["withheld"]) == ("staged: nobody paged", None)


def test_quiet_hours_show_the_send_time_in_row_and_document() -> None:
    night = QuietHours(days=("thu",), start="00:00", end="07:00")
    told = alert(policy=JobPolicy(alerts=AlertPolicy(quiet_hours=(night,))))
    morning = "1970-01-01T07:00:00.000Z"
    assert told.waiting.startswith(f"alert waits until {morning} (quiet hours). Training job not stopped: ")
    assert (told.document["waits_until"], iso_time(told.routing.wait_until)) == (morning, morning)
    assert alert().routing.wait_until is None


def test_mail_and_document_say_when_and_where_an_episode_held() -> None:
    held = EpisodeEntry(
        start="2026-01-31T12:00:00.000Z", end=None, node="algo-2", nodes=["algo-2"], gpus=["gpu3"], measured=31.0
    )
    told = alert(episodes=(held.episode,))

    assert "Held: since 2026-01-31 12:00 UTC on algo-2, gpu3" in told.text.splitlines()
    assert told.document["episodes"] == [msgspec.to_builtins(held)]


def test_payload_of_a_version_without_episodes_omits_them() -> None:
    told = alert()

    assert "Held:" not in told.text
    assert told.document["episodes"] == []


def test_run_pages_with_plain_https_are_in_text_and_document() -> None:
    links = {
        "MLflow": "https://mlflow.example.com/#/runs/a1",
        "run": "https://a/<script>",
        "Weights & Biases": "http://a",
        "evil": "https://b",
    }
    composed = alert(run_links=links)
    assert composed.document["run_links"] == {"MLflow": "https://mlflow.example.com/#/runs/a1"}
    assert "\nRun in MLflow: https://mlflow.example.com/#/runs/a1\n" in composed.text
    assert "Run:" not in composed.text
    assert alert().document["run_links"] == {}


FACT = Fact(name="mean_utilization", value=23.0, unit="%", series="GPUUtilization", node="algo-1", start=1.0, end=2.0)


@pytest.mark.parametrize("kind", AlertKind)
def test_alert_of_each_kind_matches_the_published_schema(kind: AlertKind) -> None:
    schema = json.loads(PUBLISHED.read_bytes())
    told = [
        alert(kind=kind),
        alert(kind=kind, severity="low", previous_severity="low", lasted_s=3.0, cost="USD 3", advice="Do."),
        alert(kind=kind, measured=None, threshold=None, report_link=None, made=None, error="no", facts=(FACT,)),
    ]
    for each in told:
        jsonschema.validate(json.loads(msgspec.json.encode(each.document)), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(msgspec.json.encode(told[0].document)) | {"episode": "0"}, schema)
    assert encode_schema(alert_schema()) == PUBLISHED.read_bytes(), (
        "python -m trainguard.stack.actions.document > docs/schemas/alert-1.json renews it"
    )


@pytest.mark.parametrize(
    ("kind", "allowed", "done"),
    [
        ("workload", "suspend", "Workload of the training job suspended: allowed."),
        ("workload", "requeue", "Workload of the training job requeued: allowed."),
        ("node", "replace", "Node of the training job marked for replacement: allowed."),
        ("node", "an unknown one", "Node of the training job stopped: allowed."),
    ],
)
def test_action_on_a_cluster_is_named_for_what_it_is(kind: str, allowed: str, done: str) -> None:
    decision = StopDecision(True, "stop", "allowed", kind=kind, action=allowed)
    made = compose_alert(AlertRequest(alert_input(**FIRE), decision, StopResult(made=True)), now=0.0)
    assert made.action == done
    failed = AlertRequest(alert_input(**FIRE), decision, StopResult(made=False, error="it is exempt"))
    assert compose_alert(failed, now=0.0).action.endswith(": it is exempt.")
    warned = AlertRequest(alert_input(**FIRE | {"kind": AlertKind.WARNING}), decision)
    assert "take back its owner's opt-in" in compose_alert(warned, now=0.0).text
