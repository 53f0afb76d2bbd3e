"""``trainguard open``: a link to a job's report that works without credentials, for a while."""

import webbrowser
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainguard.aws.aws_errors import translated
from trainguard.cli.output.rendering import Line
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import iso
from trainguard.cli.services.deployment import Deployment
from trainguard.cli.services.names import known_job
from trainguard.core.errors import ObjectMissingError, RequestError
from trainguard.core.layout import REPORT_PAGE
from trainguard.core.units import show_duration

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_NOTES: Mapping[bool | None, Sequence[str]] = {
    True: ("The credentials that signed the link expire before it does: it works until then.",),
    None: ("The credentials are temporary: the link ends with them, if that is earlier.",),
    False: (),
}


def link_result(
    deployment: Deployment, job: str, name: str, *, expires_s: float, browses: bool, now: float
) -> CommandResult:
    """Sign a link to the file ``name`` of a job's report, and open it where a browser is there and ``browses``.

    ``credentials_end_it``: the link ends before ``expires_at``, with its credentials; None where that is unknown.
    Raises RequestError without a report, PortUnavailableError.
    """
    record = known_job(deployment.stores.jobs, job)
    if not record.bucket:
        raise RequestError(
            f"job {record.job} has no bucket: it is a replay of a profile that lay elsewhere",
            "Its report is where `trainguard replay` wrote it; `--out` says where that is.",
        )
    key, kind = record.root.report + name, "text/html" if name == REPORT_PAGE else "application/json"
    try:
        # Reading one byte needs the link's permissions, so that a printed link works.
        deployment.stores.objects.get(record.bucket, key, 0)
    except ObjectMissingError as fault:
        when = "when a rule fires and at the job's end" if record.active else "at the job's end"
        raise RequestError(
            f"job {record.job} has no {name} yet in s3://{record.bucket}/{key}",
            f"It is written {when}; `trainguard report {record.job}` makes one now.",
        ) from fault
    with translated("S3", "sign"):
        url = deployment.clients.s3_links.generate_presigned_url(
            "get_object",
            Params={
                "Bucket": record.bucket,
                "Key": key,
                "ResponseContentType": f"{kind}; charset=utf-8",
                "ResponseContentDisposition": "inline",
            },
            ExpiresIn=int(expires_s),
        )
        credentials = deployment.clients.session.get_credentials()
    ended_by, uri = _ended_by(credentials, int(expires_s)), f"s3://{record.bucket}/{key}"
    document = {
        "job": record.job,
        "url": url,
        "uri": uri,
        "expires_at": iso(now + int(expires_s)),
        "credentials_end_it": ended_by,
    }
    line = Line(url, whole=True)
    if browses and webbrowser.open(url):
        line = Line(f"Opened {uri} in the browser; the link works for {show_duration(expires_s)}.")
    return CommandResult(document=document, blocks=[line], notes=_NOTES[ended_by])


def _ended_by(credentials: "Credentials | None", expires_s: int) -> bool | None:
    from botocore.credentials import RefreshableCredentials

    if isinstance(credentials, RefreshableCredentials):
        return credentials.refresh_needed(refresh_in=expires_s)
    return None if credentials is not None and credentials.token else False
