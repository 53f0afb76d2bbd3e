"""A week's digest: which jobs are in it, what it says about them, and that foreign text stays text."""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.fleets import HOUR_S, MONDAY, Rows, found, hostile, job, many, quiet, with_rows
from trainguard.aws.sns_digest import publish_digest
from trainguard.core.records import JobRecord, JobStatus
from trainguard.report.fleet.weekly_digest import (
    JOBS_SHOWN,
    OWNERS_SHOWN,
    WeeklyDigest,
    chat,
    fleet_of_week,
    last_week,
    mail,
    subject,
    weekly_digest,
)

WEEK = datetime.fromtimestamp(MONDAY, UTC)
WEEK_S = 7 * 24 * HOUR_S
AFTER = MONDAY + WEEK_S
NOW = AFTER + 8 * HOUR_S
FLEET = fleet_of_week(WEEK, stack="TrainGuard", region="eu-west-1")
HOSTILE = "x\r\nBcc: a@b.c\u202e<!channel> https://evil.example [click](https://evil.example) =cmd()"


def digest_of(*jobs: tuple[JobRecord, Rows]) -> WeeklyDigest:
    return weekly_digest(FLEET, jobs, monday=WEEK, now=NOW)


@pytest.mark.parametrize(
    ("at", "monday"),
    [
        ("2026-11-30T00:00:00+00:00", "2026-11-23"),
        ("2026-11-29T23:59:59+00:00", "2026-11-16"),
        ("2026-11-30T08:00:00+00:00", "2026-11-23"),
        ("2027-01-04T08:00:00+00:00", "2026-12-28"),
    ],
)
def test_digest_week_is_the_last_complete_one(at: str, monday: str) -> None:
    assert last_week(datetime.fromisoformat(at).timestamp()).date().isoformat() == monday


@pytest.mark.parametrize(
    ("ended", "counts"),
    [(MONDAY - 0.001, False), (MONDAY, True), (MONDAY + WEEK_S - 0.001, True), (AFTER, False)],
)
def test_ended_job_counts_in_the_week_of_its_end_alone(ended: float, counts: bool) -> None:
    of = replace(job(began=ended - 10 * HOUR_S), last_object_at=ended, ended_at=ended)
    before = weekly_digest(
        fleet_of_week(WEEK - timedelta(days=7), stack="", region=""),
        [with_rows(of, found(of))],
        monday=WEEK - timedelta(days=7),
        now=NOW,
    )
    assert digest_of(with_rows(of, found(of))).ended.jobs == counts
    assert before.ended.jobs == (ended < MONDAY)


def test_given_jobs_when_summed_up_then_those_that_run_are_apart() -> None:
    ended, runs = job("ended"), job("runs", status=JobStatus.IN_PROGRESS)
    closing = replace(job("closing"), active=True)
    silent = replace(job("silent", status=JobStatus.UNKNOWN), active=False, ended_at=None)
    fine = [with_rows(each, quiet(each, "LowGPUUtilization")) for each in (closing, silent)]
    digest = digest_of(with_rows(ended, found(ended)), with_rows(runs, found(runs, wasted=10.0)), *fine)
    assert (digest.ended.jobs, digest.ended.lost, digest.running.jobs, digest.running.lost) == (3, 22.95, 1, 3.83)
    text = mail(digest)
    assert "3 jobs ended; 1 of 3 evaluated have findings. They lost at least USD 22.95 of 114.75, 20 % of the" in text
    assert "1 job runs now; 1 of 1 evaluated have findings. They lost at least USD 3.83 of 38.25" in text


def test_only_owners_with_findings_are_named() -> None:
    ann = replace(job("a"), owners={"user": "ann", "team": "nlp"})
    bob = replace(job("b"), owners={"user": "bob"})
    digest = digest_of(with_rows(ann, found(ann)), with_rows(bob))
    assert [(each.kind, each.name, each.lost, each.weeks) for each in digest.owners] == [
        ("user", "ann", 22.95, []),
        ("team", "nlp", 22.95, []),
    ]
    assert "By user:\n- ann: USD 22.95 of 38.25; 1 of 1 job with findings" in mail(digest)


@pytest.mark.parametrize(
    ("jobs", "said", "line"),
    [
        ([], "no job ended", "No job ended, so nothing is known to be wasted."),
        ([with_rows(job())], "nothing found", "1 job ended; no rule has fired on the 1 that were evaluated."),
        ([with_rows(job(), judged=0)], "no verdict on any job", "1 job ended; no rule could judge any of them."),
        (
            [with_rows(job(instance_type=None), found(job()))],
            "1 job with findings",
            "1 of 1 evaluated have findings, 60 % of the instance hours. No price is known of any of them.",
        ),
        (
            [with_rows(job(), found(job())), with_rows(job("b", instance_type=None))],
            "USD 22.95 wasted",
            "No price is known of 1 job.",
        ),
    ],
    ids=["nothing", "healthy", "unjudged", "unpriced", "partly-priced"],
)
def test_unknown_parts_of_a_week_are_no_all_clear(jobs: list[tuple[JobRecord, Rows]], said: str, line: str) -> None:
    digest = digest_of(*jobs)
    assert subject(digest) == f"TrainGuard: {said} in the week of 2026-11-23 (TrainGuard, eu-west-1)"
    assert line in mail(digest)


def test_digest_of_many_jobs_is_bounded_and_says_what_it_omits() -> None:
    digest = digest_of(*many(2_000))
    assert len(digest.jobs) == JOBS_SHOWN
    assert len([each for each in digest.owners if each.kind == "user"]) == OWNERS_SHOWN
    assert f"- {digest.ended.with_findings - JOBS_SHOWN} more jobs with findings" in mail(digest)
    assert len(mail(digest)) < 10_000


def test_given_hostile_names_when_told_then_nothing_in_them_acts() -> None:
    of, rows = hostile(HOSTILE)
    digest = digest_of((of, rows))
    for text in (mail(digest), json.dumps(chat(digest), ensure_ascii=False)):
        assert "https://" not in text
        assert "\u202e" not in text
        assert "<!channel>" not in text or text == mail(digest)
    assert not any(line.startswith("Bcc") for line in mail(digest).splitlines())
    assert subject(digest).isascii()
    assert "\n" not in subject(digest)
    assert len(subject(digest)) < 100


@dataclass
class Topics:
    """A client of SNS that notes what is published."""

    published: list[dict[str, Any]] = field(default_factory=list)

    def publish(self, **request: Any) -> None:
        self.published.append(request)


def test_mail_gets_words_and_machines_the_document() -> None:
    topics: Any = Topics()
    digest = digest_of()
    publish_digest(digest, topics, alerts="alerts", chats="chat")
    chats, alerts = topics.published
    assert (chats["TopicArn"], alerts["TopicArn"], alerts["MessageStructure"]) == ("chat", "alerts", "json")
    forms = json.loads(alerts["Message"])
    assert forms.keys() == {"default", "email", "sqs", "lambda", "http", "https"}
    assert forms["default"] == forms["email"] == mail(digest)
    assert {json.loads(forms[name])["kind"] for name in ("sqs", "lambda", "http", "https")} == {"digest"}
