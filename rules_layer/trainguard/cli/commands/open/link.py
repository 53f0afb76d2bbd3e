"""``trainguard open``: a link to a job's report that works without credentials, for a while."""

from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.aws_errors import translated
from trainguard.cli.output.result import SCHEMA_VERSION
from trainguard.cli.output.rows import iso
from trainguard.cli.services.deployment import Connection
from trainguard.cli.services.names import known_job
from trainguard.core.errors import ObjectMissingError, RequestError

if TYPE_CHECKING:
    from botocore.credentials import Credentials


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link; ``credentials_end_it``: it ends before ``expires_at``, with its credentials; None where unknown."""

    schema_version: str = SCHEMA_VERSION
    job: str
    url: str
    uri: str
    expires_at: str
    credentials_end_it: bool | None


def sign(connection: Connection, job: str, expires_s: float, *, of_page: bool, now: float) -> Link:
    """Sign a link to a job's report or ``report.json``; raises RequestError without a report, PortUnavailableError."""
    record = known_job(connection.stores.jobs, job)
    if not record.bucket:
        raise RequestError(
            f"job {record.job} has no bucket: it is a replay of a profile that lay elsewhere",
            "Its report is where `trainguard replay` wrote it; `--out` says where that is.",
        )
    name, kind = ("report.html", "text/html") if of_page else ("report.json", "application/json")
    key = record.root.report + name
    try:
        # Reading one byte needs the link's permissions, so that a printed link works.
        connection.stores.objects.get(record.bucket, key, 0)
    except ObjectMissingError as fault:
        when = "when a rule fires and at the job's end" if record.active else "at the job's end"
        raise RequestError(
            f"job {record.job} has no {name} yet in s3://{record.bucket}/{key}",
            f"It is written {when}; `trainguard report {record.job}` makes one now.",
        ) from fault
    with translated("S3", "sign"):
        url = connection.clients.s3_links.generate_presigned_url(
            "get_object",
            Params={
                "Bucket": record.bucket,
                "Key": key,
                "ResponseContentType": f"{kind}; charset=utf-8",
                "ResponseContentDisposition": "inline",
            },
            ExpiresIn=int(expires_s),
        )
        credentials = connection.clients.session.get_credentials()
    return Link(
        job=record.job,
        url=url,
        uri=f"s3://{record.bucket}/{key}",
        expires_at=str(iso(now + int(expires_s))),
        credentials_end_it=_ended_by(credentials, int(expires_s)),
    )


def _ended_by(credentials: "Credentials | None", expires_s: int) -> bool | None:
    from botocore.credentials import RefreshableCredentials

    if isinstance(credentials, RefreshableCredentials):
        return credentials.refresh_needed(refresh_in=expires_s)
    return None if credentials is not None and credentials.token else False


def notes_on(link: Link) -> list[str]:
    """Say when the link ends with the credentials that signed it."""
    if link.credentials_end_it:
        return ["The credentials that signed the link expire before it does: it works until then."]
    if link.credentials_end_it is None:
        return ["The credentials are temporary: the link ends with them, if that is earlier."]
    return []
