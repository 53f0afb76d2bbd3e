"""The journal as CloudWatch reads it: a function, and a rule or a severity, are the only dimensions."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainguard.aws.fault_points import FAULT_FIELD
from trainguard.aws.observability import (
    BY_RULE,
    BY_SEVERITY,
    MOST_OF_JOB,
    MOST_OF_KIND,
    QUIET,
    ROUTINE,
    SUMMED_EVERY_S,
    WINDOW_S,
    LineBudget,
    PowertoolsJournal,
    metric_name,
)

WORDS = st.sampled_from(["fires_started", "objects_applied", "late", "rule_errors", "stops_made", "canary_failed"])
WHERE = st.dictionaries(
    st.sampled_from(["job", "node", "key", "rule", "severity", "reason"]), st.text(min_size=1, max_size=20)
)


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PowertoolsJournal, Metrics]]:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "TrainGuard")
    metrics = Metrics(service="scheduler", namespace="TrainGuard")
    yield PowertoolsJournal(logger=Logger(service="scheduler", level="CRITICAL"), metrics=metrics), metrics
    metrics.clear_metrics()


def emitted(journal: tuple[PowertoolsJournal, Metrics], printed: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return all documents in the embedded metric format."""
    _, metrics = journal
    held = [dict(metrics.serialize_metric_set())] if metrics.metric_set else []
    metrics.clear_metrics()
    return [*(json.loads(line) for line in printed.readouterr().out.splitlines() if "_aws" in line), *held]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(WORDS, WHERE)
def test_metrics_have_only_function_and_rule_dimensions(
    journal: tuple[PowertoolsJournal, Metrics], capsys: pytest.CaptureFixture[str], what: str, where: dict[str, str]
) -> None:
    capsys.readouterr()
    journal[0].count(what, 1, **where)
    for document in emitted(journal, capsys):
        for directive in document["_aws"]["CloudWatchMetrics"]:
            names = {metric["Name"] for metric in directive["Metrics"]}
            of_rule, of_severity = (names & {*map(metric_name, each.values())} for each in (BY_RULE, BY_SEVERITY))
            further = (["RuleName"] if of_rule else []) + (["Severity"] if of_severity else [])
            assert directive["Dimensions"] == [["service", *further]]
            assert len(further) < 2
            assert directive["Namespace"] == "TrainGuard"
        assert document["service"] == "scheduler"


def test_counted_fire_has_its_function_rule_and_severity(
    journal: tuple[PowertoolsJournal, Metrics], capsys: pytest.CaptureFixture[str]
) -> None:
    journal[0].count("fires_started", job="j", rule="BatchSize", severity="high")
    of_rule, of_severity, of_function = emitted(journal, capsys)
    assert (of_rule["FiresOfRule"], of_rule["RuleName"]) == ([1.0], "BatchSize")
    assert (of_severity["FiresOfSeverity"], of_severity["Severity"]) == ([1.0], "high")
    assert "RuleName" not in of_severity
    assert of_function["FiresStarted"] == [1.0]
    assert not {"RuleName", "Severity"} & of_function.keys()


def test_money_is_counted_with_its_cents(
    journal: tuple[PowertoolsJournal, Metrics], capsys: pytest.CaptureFixture[str]
) -> None:
    journal[0].count("money_lost", 12.34, job="j", rule="BatchSize")
    of_rule, of_function = emitted(journal, capsys)
    assert (of_rule["MoneyLostOfRule"], of_function["MoneyLost"]) == ([12.34], [12.34])


def test_given_a_time_when_measured_then_it_is_in_seconds(
    journal: tuple[PowertoolsJournal, Metrics], capsys: pytest.CaptureFixture[str]
) -> None:
    journal[0].measure("evaluation_lag_seconds", 31.5)
    (document,) = emitted(journal, capsys)
    (metric,) = document["_aws"]["CloudWatchMetrics"][0]["Metrics"]
    assert (metric["Name"], metric["Unit"]) == ("EvaluationLagSeconds", "Seconds")
    assert document["EvaluationLagSeconds"] == [31.5]


def test_given_what_is_quiet_when_compared_then_it_is_routine() -> None:
    assert QUIET < ROUTINE


def test_endless_events_give_few_lines_and_full_metrics(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "TrainGuard")
    at = 0.0
    metrics = Metrics(service="limited", namespace="TrainGuard")
    metrics.clear_metrics()
    journal = PowertoolsJournal(
        logger=Logger(service="limited", level="INFO"), metrics=metrics, budget=LineBudget(lambda: at)
    )

    def lines_of(*jobs: str) -> Counter[str]:
        capsys.readouterr()
        for job in jobs:
            journal.count("foreign_keys", job=job, reason="hostile")
        printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        counted = sum(sum(each["ForeignKeys"]) for each in printed if "_aws" in each)
        held: dict[str, Any] = dict(metrics.serialize_metric_set()) if metrics.metric_set else {"ForeignKeys": []}
        metrics.clear_metrics()
        assert counted + sum(held["ForeignKeys"]) == len(jobs)
        return Counter(each["message"] for each in printed if "message" in each)

    assert lines_of(*["one"] * 500) == {"foreign_keys": MOST_OF_JOB, "lines_withheld": 1}
    assert lines_of(*map(str, range(5_000))) == {"foreign_keys": MOST_OF_KIND - MOST_OF_JOB}
    at += SUMMED_EVERY_S
    assert lines_of("", "another") == {"lines_withheld": 1}
    assert lines_of("", "another") == {}
    at += WINDOW_S
    assert lines_of("one", "") == {"foreign_keys": 2}


def test_withheld_lines_of_an_hour_keep_points_each_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = 0.0
    metrics = Metrics(service="faulty", namespace="TrainGuard")
    journal = PowertoolsJournal(
        logger=Logger(service="faulty", level="INFO"), metrics=metrics, budget=LineBudget(lambda: at)
    )
    points = []
    for _ in range(55):
        for _ in range(20):
            journal.count("port_failures", job="job")
            at += 3.0
        printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        points.append(sum(each.get(FAULT_FIELD, 0) for each in printed if "message" in each))
    metrics.clear_metrics()
    assert all(points)
    assert sum(points) == pytest.approx(55 * 20, abs=20)
