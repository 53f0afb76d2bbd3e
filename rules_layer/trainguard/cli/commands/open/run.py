"""``trainguard open``: a link to a job's report that works without credentials, for a while."""

import time
import webbrowser
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from trainguard.adapters.aws_errors import translated
from trainguard.cli.output.blocks import Line
from trainguard.cli.output.result import SCHEMA_VERSION, CommandResult, print_result
from trainguard.cli.output.rows import iso
from trainguard.cli.output.terminal import stdout_console
from trainguard.cli.services.deployment import Connection, Where, connect
from trainguard.cli.services.names import unknown_job
from trainguard.errors import ObjectMissingError, RequestError
from trainguard.rules.units import show_duration

if TYPE_CHECKING:
    from botocore.credentials import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """What was asked for; ``as_report`` takes ``report.json`` instead of the page."""

    where: Where
    job: str
    expires_s: float = 3_600.0
    only_print: bool = False
    as_report: bool = False
    as_json: bool = False


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link to a report.

    ``credentials_end_it`` says whether the link ends before ``expires_at``, with the credentials that signed it; None
    where they are temporary and do not say when they end.
    """

    schema_version: str = SCHEMA_VERSION
    job: str
    url: str
    uri: str
    expires_at: str
    credentials_end_it: bool | None


def open_command(request: OpenRequest) -> int:
    """Print a link, or open it in a browser; return the exit code."""

    def make() -> CommandResult:
        link = sign(connect(request.where), request, now=time.time())
        notes = _notes(link)
        browses = not (request.only_print or request.as_json) and stdout_console().is_terminal
        if browses and webbrowser.open(link.url):
            lasts = f"the link works for {show_duration(request.expires_s)}"
            return CommandResult(
                document=link, blocks=[Line(f"Opened {link.uri} in the browser; {lasts}.")], notes=notes
            )
        return CommandResult(document=link, blocks=[Line(link.url, whole=True)], notes=notes)

    return print_result(make, as_json=request.as_json)


def sign(connection: Connection, request: OpenRequest, *, now: float) -> Link:
    """Sign a link to a job's report.

    Raises
    ------
    RequestError
        When there is no report yet.
    UnknownNameError, UnknownJobError
        When there is no such job.
    PortUnavailableError
        When the report may not be read, or S3 did not answer.
    """
    record = connection.stores.jobs.load(request.job)
    if record is None:
        raise unknown_job(request.job, connection.stores.jobs)
    if not record.bucket:
        raise RequestError(
            f"job {record.job} has no bucket: it is a replay of a profile that lay elsewhere",
            "Its report is where `trainguard replay` wrote it; `--out` says where that is.",
        )
    name, kind = ("report.json", "application/json") if request.as_report else ("report.html", "text/html")
    key = record.root.report + name
    try:
        # Reading one byte takes what the link will take, so that a link which is printed works.
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
            ExpiresIn=int(request.expires_s),
        )
        credentials = connection.clients.session.get_credentials()
    return Link(
        job=record.job,
        url=url,
        uri=f"s3://{record.bucket}/{key}",
        expires_at=str(iso(now + int(request.expires_s))),
        credentials_end_it=_ended_by(credentials, int(request.expires_s)),
    )


def _ended_by(credentials: "Credentials | None", expires_s: int) -> bool | None:
    from botocore.credentials import RefreshableCredentials

    if isinstance(credentials, RefreshableCredentials):
        return credentials.refresh_needed(refresh_in=expires_s)
    return None if credentials is not None and credentials.token else False


def _notes(link: Link) -> list[str]:
    if link.credentials_end_it:
        return ["The credentials that signed the link expire before it does: it works until then."]
    if link.credentials_end_it is None:
        return ["The credentials are temporary: the link ends with them, if that is earlier."]
    return []
