"""Lines of log groups in CloudWatch Logs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code, translated
from trainguard.core.errors import ProfileSourceError
from trainguard.formats.runs.scalar_lines import LogLine

if TYPE_CHECKING:
    from trainguard.aws.clients import LogsClient

_SERVICE = "CloudWatch Logs"
_MS = 1_000.0
MOST_PAGES = 200
"""A page has up to 10,000 lines or 1 MB."""


class CloudWatchLogs:
    """Reads lines."""

    def __init__(self, *, client: "LogsClient") -> None:
        self._client = client

    def lines(self, group: str, stream: str, start: float, end: float) -> Iterator[LogLine]:
        """Yield lines of streams with a prefix, ``start`` included; raises ProfileSourceError, PortUnavailableError."""
        request = {
            "logGroupName": group,
            "logStreamNamePrefix": stream,
            "startTime": int(start * _MS),
            "endTime": int(end * _MS) - 1,
        }
        for _ in range(MOST_PAGES):
            with translated(_SERVICE, "FilterLogEvents"):
                try:
                    page = self._client.filter_log_events(**request)
                except ClientError as fault:
                    if error_code(fault) in {"ResourceNotFoundException", "AccessDeniedException"}:
                        raise ProfileSourceError(
                            group, f"{error_code(fault)}: expected a readable log group"
                        ) from fault
                    raise
            for event in page.get("events", []):
                yield LogLine(event["timestamp"] / _MS, event["message"])
            token = page.get("nextToken")
            if not token:
                return
            request["nextToken"] = token
        raise ProfileSourceError(
            group, f"more than {MOST_PAGES} pages of lines in {end - start:.0f} s, expected one job"
        )
