"""The services that a deployment reads for jobs: those that its operator lists, and no other."""

import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter
from types import FrameType
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code, translated
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.environment import Environment
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.aws.sagemaker import SageMakerTrainingJobs
from trainguard.aws.source_services import Headers, mlflow_api, no_headers, prometheus_api, tokens_by_host
from trainguard.core.errors import ProfileSourceError
from trainguard.core.ports import Journal, TrainingJobs
from trainguard.core.records import JobRecord
from trainguard.formats.runs.mlflow.server import read_server_run
from trainguard.formats.runs.named import NamedSource
from trainguard.formats.runs.prometheus.job import read_job
from trainguard.formats.runs.prometheus.queries import QueryRange
from trainguard.formats.runs.run import SourceRun
from trainguard.formats.runs.scalar_lines import LogLine, ScalarLines, SlowSearchError, definitions_of
from trainguard.stack.polling.poll import Asked, SourcePoll
from trainguard.stack.polling.run_files import RunFiles

LONGEST_S = 1.0

# Of all searches of one poll.
MOST_S = 20.0


class GuardedSearch:
    """`re.Pattern.search` with a limit of time; ``longest_s`` is of one search, ``most_s`` of all, seconds."""

    def __init__(self, longest_s: float = LONGEST_S, most_s: float = MOST_S) -> None:
        self._longest_s = longest_s
        self._left_s = most_s

    def __call__(self, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        """Search; raises SlowSearchError when it takes too long, or where nothing could end it."""
        within_s = min(self._longest_s, self._left_s)
        if within_s <= 0.0 or threading.current_thread() is not threading.main_thread():
            raise SlowSearchError
        before = signal.signal(signal.SIGALRM, _ended)
        begun = perf_counter()
        try:
            signal.setitimer(signal.ITIMER_REAL, within_s)
            return pattern.search(text)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
            self._left_s -= perf_counter() - begun


def _ended(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise SlowSearchError


_SERVICE = "CloudWatch Logs"
_MS = 1_000.0
# A page has up to 10,000 lines or 1 MB.
MOST_PAGES = 200


# Returns the lines of a group, of streams with a prefix, from a time on and before another one; epoch seconds.
Lines = Callable[[str, str, float, float], Iterable[LogLine]]


def log_lines(client: Any, group: str, stream: str, start: float, end: float) -> Iterator[LogLine]:
    """Yield lines of a log group as `Lines` does; raises ProfileSourceError, PortUnavailableError."""
    request = {
        "logGroupName": group,
        "logStreamNamePrefix": stream,
        "startTime": int(start * _MS),
        "endTime": int(end * _MS) - 1,
    }
    with translated(_SERVICE, "FilterLogEvents"):
        try:
            for number, page in enumerate(client.get_paginator("filter_log_events").paginate(**request)):
                if number == MOST_PAGES:
                    break
                for event in page.get("events", []):
                    yield event["timestamp"] / _MS, event["message"]
            else:
                return
        except ClientError as fault:
            if error_code(fault) in {"ResourceNotFoundException", "AccessDeniedException"}:
                raise ProfileSourceError(group, f"{error_code(fault)}: expected a readable log group") from fault
            raise
    raise ProfileSourceError(group, f"more than {MOST_PAGES} pages of lines in {end - start:.0f} s, expected one job")


def permitted_services(text: str) -> tuple[tuple[str, str], ...]:
    """Read kinds and servers of an operator's list, such as ``prometheus+https://host:9090 logs+/aws/batch/job``."""
    pairs = (word.partition("+") for word in text.split())
    return tuple((kind, server.rstrip("/")) for kind, _, server in pairs)


@dataclass(frozen=True, slots=True)
class ServiceSources:
    """Reads a job's source from its service, if the operator permits it; ``headers`` are tokens by host."""

    permitted: Sequence[tuple[str, str]]
    lines: Lines
    training_jobs: TrainingJobs
    headers: Headers = no_headers
    _definitions: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def read(self, asked: Asked) -> SourceRun:
        readers = {"logs": self._logs, "prometheus": self._prometheus}
        return readers.get(asked.source.kind, self._mlflow)(asked, self._server(asked.source))

    def _server(self, source: NamedSource) -> str:
        listed = [server for kind, server in self.permitted if kind == source.kind]
        if source.server:
            if source.server.rstrip("/") in listed:
                return source.server.rstrip("/")
            raise ProfileSourceError(source.server, f"is not read by this stack, which reads {_shown(listed)}")
        if len(listed) == 1:
            return listed[0]
        why = "names no service of several" if listed else "is of a kind that this stack does not read"
        raise ProfileSourceError(source.kind, f"{why}: live_sources has {_shown(listed)}")

    def _prometheus(self, asked: Asked, server: str) -> SourceRun:
        api = prometheus_api(server, server, self.headers)
        step_s = asked.source.step_s
        over = QueryRange(asked.start, asked.end - step_s, step_s)
        source, job = asked.source, asked.job
        return read_job(api, job.job, source.matchers, over, source.node_label, since=job.started_at)

    def _mlflow(self, asked: Asked, server: str) -> SourceRun:
        shown = "" if server.startswith("arn:") else server
        return read_server_run(mlflow_api(server, server, self.headers), shown, asked.source.run)

    def _logs(self, asked: Asked, group: str) -> SourceRun:
        job = asked.job
        definitions, faults = definitions_of((*asked.source.metrics, *self._defined(job)))
        reader = ScalarLines(definitions, asked.counted, GuardedSearch())
        run = SourceRun(job.job, _SERVICE)
        stream = asked.source.stream or f"{job.root.job}/"
        run.scalars = reader.read(self.lines(group, stream, asked.start, asked.end))
        for why, count in reader.bad.items():
            run.refuse(why, count)
        for fault in faults:
            run.refuse(fault)
        return run

    def _defined(self, job: JobRecord) -> tuple[tuple[str, str], ...]:
        if job.is_outside:
            return ()
        if job.arn not in self._definitions:
            described = self.training_jobs.describe(job.root.job)
            self._definitions[job.arn] = () if described is None else described.metric_definitions
        return self._definitions[job.arn]


def _shown(listed: Sequence[str]) -> str:
    return ", ".join(listed) or "none of the kind"


TOKENS_SECRET = "LIVE_SOURCE_SECRET"  # noqa: S105  # The name of a variable.


def polls(
    environment: Environment, environ: Mapping[str, str], *, clients: Clients, journal: Journal
) -> tuple[SourcePoll, RunFiles]:
    """Return the poller of services, and the reader of run files."""
    objects = S3ProfileObjects(client=clients.s3)
    sources = ServiceSources(
        permitted_services(environment.live_sources),
        lines=lambda *asked: log_lines(clients.logs, *asked),
        training_jobs=SageMakerTrainingJobs(client=lambda: clients.sagemaker),
        headers=_headers(clients, environ.get(TOKENS_SECRET, "")),
    )
    jobs = DynamoJobs(client=clients.dynamodb, table=environment.jobs_table)
    return SourcePoll(jobs, objects, sources.read, journal), RunFiles(objects, journal)


def _headers(clients: Clients, secret: str) -> Headers:
    """Return the tokens of a secret, a JSON object by host; it is read when a host is first asked."""
    if not secret:
        return no_headers

    @cache
    def tokens() -> Mapping[str, object]:
        with translated("Secrets Manager", "GetSecretValue"):
            text = clients.secrets.get_secret_value(SecretId=secret)["SecretString"]
        try:
            return msgspec.json.decode(text, type=dict[str, object])
        except msgspec.DecodeError as fault:
            raise ProfileSourceError(secret, "is no JSON object of tokens by host") from fault

    def headers(host: str) -> Mapping[str, str]:
        return tokens_by_host({name: token for name, token in tokens().items() if isinstance(token, str)})(host)

    return headers
