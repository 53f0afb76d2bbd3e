"""Where a report lies, for machines and for people."""

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from trainguard.core.layout import ProfileRoot

REPORT_JSON = "report.json"
REPORT_PAGE = "report.html"
KERNEL_PAGE = "kernels.html"

_CONSOLES = {
    "aws": "https://{region}.console.aws.amazon.com",
    "aws-us-gov": "https://console.amazonaws-us-gov.com",
    "aws-cn": "https://console.amazonaws.cn",
}


@dataclass(frozen=True, slots=True)
class ReportLinks:
    """S3 URIs of ``report.json`` and ``report.html``, and the console's page; None where the ARN does not name one."""

    document: str
    page: str
    console: str | None


def report_links(*, job: str, arn: str, bucket: str, prefix: str) -> ReportLinks:
    """Return where the report of a job lies."""
    folder = ProfileRoot.of_job(prefix, job).report
    place = f"s3://{bucket}/{folder}"
    return ReportLinks(place + REPORT_JSON, place + REPORT_PAGE, _console(arn, bucket, folder + REPORT_PAGE))


def kernel_page_link(*, job: str, arn: str, bucket: str, prefix: str) -> str | None:
    """Return the console's page of a job's ``kernels.html``; None where the job's ARN does not say which console."""
    return _console(arn, bucket, ProfileRoot.of_job(prefix, job).report + KERNEL_PAGE)


def open_command(job: str) -> str:
    """Return the command that opens a report without the console."""
    return f"trainguard open {job}"


def _console(arn: str, bucket: str, key: str) -> str | None:
    parts = arn.split(":")
    console = _CONSOLES.get(parts[1]) if len(parts) > 3 and parts[3] else None
    if console is None:
        return None
    region = quote(parts[3], safe="")
    query = urlencode({"region": parts[3], "prefix": key}, quote_via=quote, safe="/")
    return f"{console.format(region=region)}/s3/object/{quote(bucket, safe='')}?{query}"
