"""Asks TrainGuard for its verdict on a job, by its command or its HTTPS endpoint, and says whether to act on it.

An answer that does not come in time, cannot be read, is of another job, is old, or is of a job that has ended, is none:
the job counts as active.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

OLDEST_S, AHEAD_S = 300.0, 60.0
"""A document that is older, or so far ahead of the clock, is none."""

TIMEOUT_S = 20.0
MOST_BYTES = 1_000_000
URL_VARIABLE = "TRAINGUARD_VERDICT_URL"
_HERE = frozenset({"localhost", "127.0.0.1"})
_REGION = re.compile(r"[a-z0-9]+\.lambda-url\.(?P<region>[a-z0-9-]+)\.on\.aws")


def ask(job: str, *, timeout_s: float = TIMEOUT_S, now: float | None = None) -> dict[str, Any] | None:
    """Return the verdict on a job; None where there is none within ``timeout_s`` seconds.

    Parameters
    ----------
    job : str
        Its name, as ``trainguard verdict`` takes it.
    timeout_s : float
        For everything together.
    now : float, optional
        Epoch seconds; by default the time at which the answer is there.
    """
    url = os.environ.get(URL_VARIABLE)
    try:
        with _within(timeout_s):
            text = _over_https(url, job, timeout_s) if url else _by_command(job)
            document = json.loads(text)
    except (OSError, ValueError, RecursionError, HTTPException, subprocess.SubprocessError):
        return None
    at = time.time() if now is None else now
    return document if isinstance(document, dict) and is_fresh(document, job, at) else None


def is_fresh(document: Mapping[str, Any], job: str | None, now: float) -> bool:
    """Whether a document is of this job, and was made just now."""
    try:
        age = now - datetime.fromisoformat(document["generated_at"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return False
    return -AHEAD_S <= age <= OLDEST_S and (job is None or document.get("job") == job)


def is_idle(document: Mapping[str, Any] | None) -> bool:
    """Whether a verdict says for sure that the job runs and does nothing."""
    if document is None or document.get("active") is not True:
        return False
    return document.get("verdict") == "idle" and document.get("certainty") == "high"


def _by_command(job: str) -> str:
    # Exit code 1 is that of a job that is idle or wasted where somebody asked for it; the document decides.
    call = ["trainguard", "verdict", "--json", "--", job]
    return subprocess.run(call, capture_output=True, text=True, check=False).stdout


def _over_https(url: str, job: str, timeout_s: float) -> bytes:
    """Return the answer of the endpoint to a request that is signed for it; redirects are not followed."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https" and host not in _HERE:
        raise ValueError(f"{url} is no https address")
    path = f"{parts.path.rstrip('/')}/verdict?job={quote(job, safe='')}"
    to = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = to(parts.netloc, timeout=timeout_s)
    try:
        connection.request("GET", path, headers=_signature(f"{parts.scheme}://{parts.netloc}{path}", host))
        answer = connection.getresponse()
        if answer.status != 200:
            raise HTTPException(f"status {answer.status}")
        return answer.read(MOST_BYTES)
    finally:
        connection.close()


def _signature(url: str, host: str) -> dict[str, str]:
    """Return the headers that sign a request to a function URL, with the credentials of the environment."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.session import Session

    session = Session()
    credentials = session.get_credentials()
    match = _REGION.fullmatch(host)
    region = match["region"] if match else session.get_config_variable("region")
    if credentials is None or region is None:
        raise ValueError("no credentials or no Region")
    request = AWSRequest(method="GET", url=url)
    SigV4Auth(credentials, "lambda", region).add_auth(request)
    return dict(request.headers.items())


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what takes longer, also in an answer that comes byte by byte."""

    def late(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
