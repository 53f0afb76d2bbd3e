"""Wires the function that polls the sources of jobs."""

from collections.abc import Mapping
from functools import cache

import msgspec

from trainguard.aws.aws_errors import translated
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.environment import Environment
from trainguard.aws.live_sources import ServiceSources, log_lines, permitted_services
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.aws.sagemaker import SageMakerTrainingJobs
from trainguard.aws.source_services import Headers, no_headers, tokens_by_host
from trainguard.core.errors import ProfileSourceError
from trainguard.core.ports import Journal
from trainguard.stack.polling.poll import SourcePoll
from trainguard.stack.polling.run_files import RunFiles

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
    return SourcePoll(jobs, objects, sources, journal), RunFiles(objects, journal)


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
