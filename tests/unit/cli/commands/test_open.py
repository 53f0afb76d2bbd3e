"""`trainguard open`: the link, what it is signed with, and what is said where there is none."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.session import Session

from tests.support.faults import Fault
from tests.support.small_job import JOB
from tests.unit.cli.seen import Deployed, deployed, job, judged
from trainguard.core.records import JobStatus

__all__ = ["deployed"]
KEY = f"{JOB}/rule-output/TrainGuardReport/report"


@pytest.fixture
def reported(deployed: Deployed) -> Deployed:
    """Return a deployment with a report of the small job."""
    deployed.world.objects.put("profiles", f"{KEY}.html", b"<html>", "text/html")
    return deployed


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what a browser is opened with."""
    opened: list[str] = []

    def opens(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr("webbrowser.open", opens)
    return opened


def test_printed_link_is_signed_for_an_hour_in_the_right_region(
    reported: Deployed,
) -> None:
    result = reported.run("open", JOB)
    assert (result.exit_code, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    link = urlsplit(result.stdout.strip())
    query = {name: values[0] for name, values in parse_qs(link.query).items()}
    assert (link.scheme, link.netloc) == ("https", "profiles.s3.us-east-1.amazonaws.com")
    assert link.path == f"/{KEY}.html"
    assert (query["X-Amz-Algorithm"], query["X-Amz-Expires"]) == ("AWS4-HMAC-SHA256", "3600")
    assert query["X-Amz-Credential"].endswith("/us-east-1/s3/aws4_request")
    assert query["response-content-type"] == "text/html; charset=utf-8"
    assert query["response-content-disposition"] == "inline"


def test_link_of_a_job_below_a_prefix_includes_the_prefix(reported: Deployed) -> None:
    reported.add(job("deep", prefix="team a/"))
    reported.world.objects.put("profiles", "team a/deep/rule-output/TrainGuardReport/report.json", b"{}", "")
    result = reported.run("open", "deep", "--json-report")
    link = urlsplit(result.stdout.strip())
    assert link.path == "/team%20a/deep/rule-output/TrainGuardReport/report.json"
    assert parse_qs(link.query)["response-content-type"] == ["application/json; charset=utf-8"]


def test_json_document_has_the_expiry_of_the_link(reported: Deployed) -> None:
    document = json.loads(reported.run("open", JOB, "--expires", "12h", "--json").stdout)
    assert list(document) == ["schema_version", "job", "url", "uri", "expires_at", "credentials_end_it"]
    assert document["uri"] == f"s3://profiles/{KEY}.html"
    assert document["expires_at"] == "2026-11-21T20:17:00.000Z"
    assert "X-Amz-Expires=43200" in document["url"]
    assert document["credentials_end_it"] is False


@pytest.mark.parametrize(("span", "code"), [("1s", 0), ("7d", 0), ("8d", 2), ("0s", 2), ("soon", 2)])
def test_given_a_span_when_signed_then_what_s3_knows_is_taken(reported: Deployed, span: str, code: int) -> None:
    result = reported.run("open", JOB, "--expires", span)
    assert result.exit_code == code
    assert (result.stdout == "") == (code == 2)


def test_too_long_span_is_refused_as_typed_with_the_maximum(
    reported: Deployed,
) -> None:
    told = reported.run("open", JOB, "--expires", "9d").stderr
    assert "--expires is 9d" in told
    assert "1s to 7d" in told


def test_missing_report_says_when_there_will_be_one(deployed: Deployed) -> None:
    result = deployed.run("open", JOB)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"job {JOB} has no report.html yet in s3://profiles/{KEY}.html" in result.stderr
    assert f"when a rule fires and at the job's end; `trainguard report {JOB}` makes one now" in result.stderr
    deployed.world.jobs.update_status(replace(judged()[0], status=JobStatus.COMPLETED, active=False))
    assert "It is written at the job's end" in deployed.run("open", JOB).stderr


def test_forbidden_report_prints_no_link(reported: Deployed) -> None:
    reported.world.faults.schedule("ReadableObjects.get", Fault.FAIL_BEFORE)
    result = reported.run("open", JOB)
    assert (result.exit_code, result.stdout) == (2, "")


def test_misspelled_job_suggests_the_nearest(reported: Deployed) -> None:
    result = reported.run("open", "small")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "perhaps you mean small-job" in result.stderr


def test_terminal_opens_the_browser_and_hides_the_link(reported: Deployed, browser: list[str]) -> None:
    shown = reported.shown("open", JOB, columns=200)
    assert len(browser) == 1
    assert "X-Amz-Signature" in browser[0]
    assert "X-Amz" not in shown
    assert "the link works for 60 min" in shown


@pytest.mark.parametrize("words", [("--print",), ("--json",)])
def test_link_only_option_opens_no_browser_on_a_terminal(
    reported: Deployed, browser: list[str], words: tuple[str, ...]
) -> None:
    assert "X-Amz-Signature" in reported.shown("open", JOB, *words, columns=80).replace("\n", "")
    assert browser == []


def test_given_no_terminal_when_opened_then_no_browser_is_opened(reported: Deployed, browser: list[str]) -> None:
    assert reported.run("open", JOB).exit_code == 0
    assert browser == []


def test_terminal_without_a_browser_shows_the_link_on_one_line(
    reported: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    lines = reported.shown("open", JOB, columns=80).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("https://")


def _lasting() -> Credentials:
    return Credentials("key", "secret")


def _temporary() -> Credentials:
    return Credentials("key", "secret", "token")


def _refreshable(minutes: float) -> RefreshableCredentials:
    return RefreshableCredentials(
        "key", "secret", "token", datetime.now(UTC) + timedelta(minutes=minutes), dict, "test"
    )


@pytest.fixture
def signing(monkeypatch: pytest.MonkeyPatch) -> list[Credentials]:
    """Let links be signed with the credentials that a test puts into the list."""
    given: list[Credentials] = []
    monkeypatch.setattr(Session, "get_credentials", lambda _: given[0])
    return given


@pytest.mark.parametrize(
    ("made_now", "ended", "said"),
    [
        (_lasting, False, ""),
        (_temporary, None, "The credentials are temporary"),
        (partial(_refreshable, 30.0), True, "expire before it does"),
        (partial(_refreshable, 90.0), False, ""),
    ],
    ids=["lasting", "temporary", "sooner", "later"],
)
def test_expiring_credentials_add_a_note_about_the_link(
    reported: Deployed, signing: list[Credentials], made_now: Callable[[], Credentials], ended: bool | None, said: str
) -> None:
    signing.append(made_now())
    result = reported.run("open", JOB, "--json")
    assert json.loads(result.stdout)["credentials_end_it"] is ended
    assert said in result.stderr
    assert bool(said) == bool(result.stderr)


def test_replay_outside_any_bucket_says_where_its_report_is(
    reported: Deployed,
) -> None:
    reported.add(job(f"{JOB}@replay-x", bucket=""))
    result = reported.run("open", f"{JOB}@replay-x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "has no bucket" in result.stderr
    assert "`--out` says where" in result.stderr
