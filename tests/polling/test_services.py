"""The services that a deployment reads: those that its operator lists, with the token of their host."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError
from botocore.paginate import Paginator

from tests.polling.test_poll import job
from tests.support.cluster import AT, Cluster
from tests.support.json_service import json_service
from tests.support.memory import MemoryWorld
from trainguard.aws.live_sources import MOST_PAGES, ServiceSources, log_lines, permitted_services
from trainguard.aws.source_services import tokens_by_host
from trainguard.core.errors import ProfileSourceError
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import OUTSIDE_ARN, JobStatus
from trainguard.formats.runs.named import named_source
from trainguard.formats.runs.run import SourceRun
from trainguard.formats.runs.scalar_lines import LogLine
from trainguard.stack.polling.poll import Asked


@dataclass
class Lines:
    """A log group of two jobs."""

    asked: list[tuple[str, str]] = field(default_factory=list)

    def lines(self, group: str, stream: str, start: float, end: float) -> Iterator[LogLine]:
        self.asked.append((group, stream))
        yield from ((at, f"loss: {at - AT}") for at in (AT, AT + 61.0) if start <= at < end)


def services(listed: str, lines: Lines | None = None, tokens: Mapping[str, str] | None = None) -> ServiceSources:
    world = MemoryWorld()
    world.training_jobs.set(
        TrainingJobDescription(
            job="bert",
            arn=job().arn,
            status=JobStatus.IN_PROGRESS,
            secondary_status=None,
            instance_type=None,
            instance_count=None,
            created_at=None,
            started_at=None,
            ended_at=None,
            profiling_interval_ms=None,
            framework_profiling=False,
            tags={},
            metric_definitions=(("own:loss", r"loss: ([0-9.]+)"), ("broken", "(")),
        )
    )
    return ServiceSources(
        permitted_services(listed),
        lines=(lines or Lines()).lines,
        training_jobs=world.training_jobs,
        headers=tokens_by_host(tokens or {}),
    )


def asked_for(text: str, *, outside: bool = False) -> Asked:
    source = named_source(text)
    assert source is not None
    record = job(arn=f"{OUTSIDE_ARN}bert") if outside else job()
    return Asked(record, source, AT, AT + 120.0, {})


def read(sources: ServiceSources, text: str, *, outside: bool = False) -> SourceRun:
    return sources.read(asked_for(text, outside=outside))


def test_listed_prometheus_gives_samples_of_the_time_alone() -> None:
    cluster = Cluster()
    cluster.node("ip-10-0-0-1", 35.0)
    with json_service(cluster.answer) as (url, requests):
        host = urlsplit(url).hostname or ""
        sources = services(f"prometheus+{url}", tokens={host: "s3cret", "elsewhere": "other"})
        run = read(sources, "prometheus pod=bert-0 step=30")
    assert [each.at for each in run.snapshots["ip-10-0-0-1"]] == [AT, AT + 30.0, AT + 60.0, AT + 90.0]
    assert {asked.headers["Authorization"] for asked in requests} == {"Bearer s3cret"}


@pytest.mark.parametrize(
    ("listed", "text", "why"),
    [
        ("logs+/a", "prometheus pod=a", "of a kind that this stack does not read"),
        ("prometheus+https://a prometheus+https://b", "prometheus pod=a", "names no service of several"),
        ("prometheus+https://a", "prometheus https://evil pod=a", "is not read by this stack"),
        ("prometheus+https://a", "prometheus https://a.evil pod=a", "is not read by this stack"),
        ("logs+/aws/sagemaker/TrainingJobs", "logs /aws/lambda/secret", "is not read by this stack"),
    ],
)
def test_unlisted_service_is_refused(listed: str, text: str, why: str) -> None:
    with pytest.raises(ProfileSourceError, match=why):
        read(services(listed), text)


def test_training_job_log_has_its_metrics_and_names_a_broken_one() -> None:
    lines = Lines()
    asked = asked_for("logs")
    answer = services("logs+/aws/sagemaker/TrainingJobs", lines).read(asked)
    assert lines.asked == [("/aws/sagemaker/TrainingJobs", "bert/")]
    assert [(row.step, row.values) for row in answer.scalars] == [(0, {"own:loss": 0.0}), (1, {"own:loss": 61.0})]
    assert asked.counted == {"own:loss": 2}
    assert len(answer.bad) == 1


def test_outside_job_log_has_scalars_in_common_forms() -> None:
    lines = Lines()
    answer = read(services("logs+/aws/batch/job", lines), "logs stream=train/default/", outside=True)
    assert lines.asked == [("/aws/batch/job", "train/default/")]
    assert [row.values for row in answer.scalars] == [{"loss": 0.0}, {"loss": 61.0}]


def test_outside_job_log_is_read_by_its_own_expressions() -> None:
    own = r"logs stream=train/ metric=custom:loss:\s([0-9.]+) metric=broken:("
    answer = read(services("logs+/aws/batch/job", Lines()), own, outside=True)
    assert [dict(row.values) for row in answer.scalars] == [{"custom": 0.0}, {"custom": 61.0}]
    assert any("metric 'broken'" in why for why in answer.bad)


@dataclass
class Pages:
    """CloudWatch Logs, which answers in pages."""

    count: int = 3
    code: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)

    def get_paginator(self, operation: str) -> Any:
        keys = {"input_token": "nextToken", "output_token": "nextToken", "result_key": "events"}
        method, model = cast("Any", getattr(self, operation)), cast("Any", None)
        return Paginator(method, keys, model)

    def filter_log_events(self, **request: object) -> dict[str, Any]:
        self.requests.append(dict(request))
        if self.code:
            raise ClientError({"Error": {"Code": self.code, "Message": "no"}}, "FilterLogEvents")
        number = len(self.requests)
        events = [{"timestamp": int(AT * 1_000) + number, "message": f"loss: {number}"}]
        return {"events": events} | ({"nextToken": str(number)} if number < self.count else {})


def test_log_pages_give_all_lines_in_order() -> None:
    pages = Pages()
    found = list(log_lines(pages, "/a", "bert/", AT, AT + 60.0))
    assert [text for _, text in found] == ["loss: 1", "loss: 2", "loss: 3"]
    assert pages.requests[0] == {
        "logGroupName": "/a",
        "logStreamNamePrefix": "bert/",
        "startTime": int(AT * 1_000),
        "endTime": int(AT * 1_000) + 59_999,
    }
    assert [asked.get("nextToken") for asked in pages.requests] == [None, "1", "2"]


def test_given_a_log_that_never_ends_when_read_then_reading_does() -> None:
    with pytest.raises(ProfileSourceError, match=f"more than {MOST_PAGES} pages"):
        list(log_lines(Pages(count=10**6), "/a", "bert/", AT, AT + 60.0))


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException"])
def test_unreadable_log_group_is_named(code: str) -> None:
    with pytest.raises(ProfileSourceError, match=f"/a.*{code}"):
        list(log_lines(Pages(code=code), "/a", "bert/", AT, AT + 60.0))
