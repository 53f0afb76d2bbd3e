"""What random alerts tell in their documents, how long they are, when they go out, and when a stop is refused.

Words of alerts have their tests in `tests/unit/actions`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.answers.recorded import compare, digest
from tests.support.fires import fire_of
from trainguard.core.finding import Episode, Finding, Severity
from trainguard.core.job_policy import DAYS, AlertPolicy, JobPolicy, QuietHours, StopPolicy
from trainguard.core.records import JOB_NODE, AlertKind, JobRecord, OutboxEntry, RuleRow, Status
from trainguard.core.timestamps import iso_time
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest, FireInput, Resend, StopDecision, StopResult
from trainguard.stack.actions.stop import StopPreconditions, stop_objection

FOLDER = Path(__file__).with_name("alerts")
ALERTS, STOPS = 60, 200
# SNS takes no longer one.
LONGEST_SUBJECT = 100

WORDS = frozenset({"reason", "advice", "cost", "action", "subject", "text", "clause", "stop"})
# A Saturday, 08:00 UTC.
NOW = 1_795_248_000.0

RULE = "LowGPUUtilization"
JOB = "arn:aws:sagemaker:eu-west-1:111122223333:training-job/bert"


class Draw:
    """Random values, of which some are missing."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def one_of(self, *values: Any) -> Any:
        """Return one of some values."""
        return values[int(self._random.integers(len(values)))]

    def words(self, *lengths: int) -> Any:
        """Return a text of one of some lengths; None where that is 0."""
        length = self.one_of(*lengths)
        return ("so, it is said. " * (length // 16 + 1))[:length] or None


def random_policy(draw: Draw) -> JobPolicy:
    """Return who is to be disturbed, and when."""
    start, end = draw.one_of(
        ("07:00", "09:00"), ("08:00", "08:01"), ("22:00", "08:00"), ("08:01", "07:59"), ("08:00",) * 2
    )
    days = draw.one_of(DAYS, DAYS[5:], DAYS[:5], DAYS[4:5])
    hours = QuietHours(days=days, start=start, end=end, timezone=draw.one_of("UTC", "Europe/Berlin"))
    quiet = draw.one_of((), (hours,), (hours, QuietHours(days=DAYS, start="06:00", end="08:30")))
    rules = draw.one_of((), (), (RULE,)), draw.one_of((), (), (RULE,))
    alerts = AlertPolicy(staged=rules[0] if draw.one_of(True, False) else (), muted=rules[1], quiet_hours=quiet)
    return JobPolicy(alerts=alerts, stops=StopPolicy(grace_s=draw.one_of(0.0, 600.0, 1_200.0)))


def random_request(seed: int) -> AlertRequest:
    """Return all that an alert is made of; texts are as long as they may be, or longer."""
    draw = Draw(seed)
    kind = list(AlertKind)[seed % len(AlertKind)]
    episode = Episode(NOW - 7_200.0, draw.one_of(None, NOW), draw.one_of((), ("algo-1",)), wasted_s=60.0)
    finding = Finding(
        rule=RULE,
        node=draw.one_of(None, "algo-1"),
        reason=draw.words(40, 1_199, 1_200, 1_201, 3_999, 4_001) + draw.one_of("", "\nAnd more."),
        measured=draw.one_of(None, 34.0),
        severity=draw.one_of(None, *Severity),
        advice=draw.words(0, 30, 999, 1_000, 1_001),
        cost=draw.words(0, 30),
        episodes=draw.one_of((), (episode,), (episode, episode)),
    )
    fire = FireInput(
        job=draw.one_of("bert", "b" * 63, "x" * 120 + "é"),
        job_arn=JOB,
        report_uri="s3://profiles/bert/report.json",
        alert_id=draw.one_of(None, "a" * 20),
        report_page=draw.one_of(None, "s3://profiles/bert/report.html"),
        report_link=draw.one_of(None, "https://eu-west-1.console.aws.amazon.com/s3/object/profiles"),
        entry=OutboxEntry(
            "f" * 20,
            seed % 3,
            NOW - 60.0,
            finding,
            kind=kind,
            previous_severity=draw.one_of(None, "low"),
            lasted_s=draw.one_of(None, 59.0, 3_600.0),
        ),
        faults=draw.one_of([], ["a fault"]),
        policy=random_policy(draw),
        resend=draw.one_of(None, None, Resend("another", 1)),
        run_links=draw.one_of({}, {"wandb": "https://wandb.ai/a/b", "run": "https://example.com/run"}),
    )
    stop_at = NOW + draw.one_of(0.0, 299.0, 300.0, 600.0, 601.0)
    said = draw.one_of("stop", "grace", "refused")
    decision = StopDecision(said == "stop", said, "the tag allows it", draw.one_of(None, iso_time(stop_at)))
    return AlertRequest(fire, decision, StopResult(draw.one_of(True, False, None), draw.words(0, 20, 1_000, 1_001)))


def test_texts_of_random_alerts_match_the_reviewed() -> None:
    answers = {}
    for seed in range(ALERTS):
        alert = compose_alert(random_request(seed), now=NOW)
        told = alert.document
        wait_until = alert.routing.wait_until
        routing = {
            "send": alert.routing.withheld is None,
            "waitUntil": None if wait_until is None else iso_time(wait_until),
        }
        quoted = {name: len(told[name]) for name in ("reason", "advice", "cost") if told.get(name)}
        values = digest({name: value for name, value in told.items() if name not in WORDS})
        answers[f"alert {seed}"] = {"values": values, **routing, **quoted}
        assert len(alert.subject) <= LONGEST_SUBJECT
        assert all((alert.subject, alert.text, alert.action))
    compare(answers, FOLDER / "alerts.json")


def random_row(draw: Draw, node: str | None, fired_at: float) -> RuleRow:
    """Return a row as it may be by then."""
    through = draw.one_of(None, fired_at, *(fired_at + each for each in (-1.0, 1.0, 300.0, 301.0)))
    through = draw.one_of(through, *(NOW + each for each in (-1_800.0, -1_801.0, 300.0, 301.0)))
    status = draw.one_of(Status.FIRED, Status.FIRED, Status.OK)
    row = RuleRow("bert", Finding(RULE, node, "low."), status, evaluated_through=through)
    return replace(row, fire_id=draw.one_of("f1", "f1", "f1", "f1", "f2", None))


def is_refused(seed: int) -> bool:
    """Return whether anything is said against a random stop."""
    draw = Draw(seed)
    fired_at = NOW - draw.one_of(0.0, 90.0, 899.0, 900.0, 901.0, 1_800.0, 1_801.0, -300.0, -301.0)
    node = draw.one_of(JOB_NODE, "algo-1")
    episode, attempt = draw.one_of(*[0] * 9, 1), draw.one_of("first", "final")
    case = fire_of("bert", JOB, RULE, at=fired_at, episode=episode, node=node, attempt=attempt)
    job = JobRecord("bert", JOB, "profiles", "", episodes=draw.one_of({}, {RULE: 0}, {"CPUBottleneck": 1}))
    rows = random_row(draw, None, fired_at), random_row(draw, "algo-1", fired_at)
    row, node_row = draw.one_of(*[rows[0]] * 9, None), draw.one_of(rows[1], None)
    return stop_objection(case, StopPreconditions(draw.one_of(*[job] * 9, None), row, node_row), NOW) is not None


def test_random_stops_are_refused_as_before() -> None:
    compare({"refused": "".join(".x"[is_refused(seed)] for seed in range(STOPS))}, FOLDER / "stops.json")
