"""Lines of log groups in CloudWatch Logs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.adapters.aws_errors import error_code, translated
from trainguard.errors import ProfileSourceError
from trainguard.sources.logs.scalar_lines import LogLine

if TYPE_CHECKING:
    from trainguard.adapters.clients import LogsClient

_SERVICE = "CloudWatch Logs"
_MS = 1_000.0
MOST_PAGES = 200
"""Of an answer: a page has up to 10,000 lines or 1 MB."""


class CloudWatchLogs:
    """Reads lines.

    Parameters
    ----------
    client : LogsClient
        Low-level client.
    """

    def __init__(self, *, client: "LogsClient") -> None:
        self._client = client

    def lines(self, group: str, stream: str, start: float, end: float) -> Iterator[LogLine]:
        """Yield the lines of the streams whose names begin with ``stream``, from ``start`` on and before ``end``.

        Raises
        ------
        ProfileSourceError
            When there is no such group, the function may not read it, or it holds more than is read.
        PortUnavailableError
            When CloudWatch does not answer.
        """
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
