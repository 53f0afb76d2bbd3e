"""The alert says truly what was done, fits SNS's limits and carries hostile text unharmed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainguard.actions.alert import AlertRequest, Decision, Fire, StopResult, compose_alert

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


def alert(
    *,
    stop: Any = False,
    decision: Any = "refused",
    why: Any = "its owner has not opted in",
    made: Any = False,
    error: Any = None,
    **fire: Any,
) -> Any:
    request = AlertRequest(Fire(**(FIRE | fire)), Decision(stop, decision, why), StopResult(made, error))
    return compose_alert(request)


def test_given_a_stop_that_was_made_when_composed_then_text_document_and_row_say_so() -> None:
    composed = alert(stop=True, decision="stop", why="the tag allows it", made=True)
    assert composed.action == "Training job stopped: the tag allows it."
    assert composed.action in composed.text
    assert composed.document["stop"]["made"] is True
    assert composed.attributes["Stopped"] == "true"


def test_given_a_stop_that_failed_when_composed_then_nobody_is_told_that_it_was_made() -> None:
    composed = alert(stop=True, decision="stop", why="the tag allows it", made=False, error="AccessDenied: no")
    assert composed.action == "Stopping the training job failed: AccessDenied: no"
    assert composed.document["stop_error"] == "AccessDenied: no"
    assert composed.attributes["Stopped"] == "false"


def test_given_a_refusal_when_composed_then_it_says_why() -> None:
    assert alert().action == "Training job not stopped: its owner has not opted in."


def test_given_an_alert_when_read_by_a_machine_then_id_report_and_numbers_are_there() -> None:
    document = alert().document
    assert document["alert_id"] == FIRE["fire_id"]
    assert document["report_uri"] == FIRE["report_uri"]
    assert (document["report_page"], document["report_link"]) == (FIRE["report_page"], FIRE["report_link"])
    assert document["report_command"] == "trainguard open bert"
    assert (document["measured"], document["threshold"], document["schema_version"]) == (34.0, 70.0, "1")


def test_given_an_alert_when_read_by_a_person_then_each_way_to_the_report_has_a_line() -> None:
    assert (
        f"\nReport: {FIRE['report_page']}\nOpen it in the console: {FIRE['report_link']}\n"
        "Or by a link of its own: trainguard open bert\n"
    ) in alert().text


def test_given_a_fire_that_knows_no_page_when_composed_then_the_document_s_place_and_the_command_are_told() -> None:
    text = alert(report_page=None, report_link=None).text
    assert f"\nReport: {FIRE['report_uri']}\nOr by a link of its own: trainguard open bert\n" in text


def test_given_what_a_fire_means_when_composed_then_text_and_document_say_severity_advice_and_cost() -> None:
    composed = alert(severity="high", advice="Prefetch.", cost="about USD 12.40 of 20.10 so far")
    assert "\nWhat to do: Prefetch.\nSeverity: high\nLost: about USD 12.40 of 20.10 so far\nAction: " in composed.text
    told = {name: composed.document[name] for name in ("severity", "advice", "cost")}
    assert told == {"severity": "high", "advice": "Prefetch.", "cost": "about USD 12.40 of 20.10 so far"}
    assert composed.subject == alert().subject


def test_given_a_fire_of_an_older_version_when_composed_then_what_it_does_not_say_is_left_out() -> None:
    composed = alert(severity=None, advice=None, cost=None)
    assert composed.text == alert().text
    assert "None" not in composed.text


def test_given_advice_of_any_length_when_composed_then_the_text_stays_short() -> None:
    assert len(alert(advice="x" * 100_000).text) < 2_000


@given(st.text(max_size=300), st.text(max_size=100))
def test_given_any_job_and_rule_name_when_composed_then_the_subject_is_short_printable_ascii(
    job: Any, rule: Any
) -> None:
    subject = alert(job=job, rule=rule).subject
    assert 0 < len(subject) < 100
    assert subject.isascii()
    assert subject.isprintable()
