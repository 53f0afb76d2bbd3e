"""The services of other tools: their addresses, who signs a request, which token goes with it; JSON over HTTP."""

import base64
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, HTTPClientError
from botocore.httpsession import URLLib3Session
from botocore.session import Session, get_session

from trainguard.core.errors import PortUnavailableError, ProfileSourceError

MAX_BYTES = 256 * 1024 * 1024

_PIECE = 1024 * 1024
_CONNECT_S, _READ_S = 5, 60
_TRIES = 3
PAUSE_S = 1.0

_LONGEST_REASON = 300
_AGAIN = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, *(each for each in HTTPStatus if each >= HTTPStatus.INTERNAL_SERVER_ERROR)}
)


def signer(session: Session, service: str, region: str) -> Callable[[AWSRequest], None]:
    """Return what signs requests (SigV4) for a service of a Region, or raises PortUnavailableError: no credentials."""

    def sign(request: AWSRequest) -> None:
        credentials = session.get_credentials()
        if credentials is None:
            raise PortUnavailableError(service, "sign", "there are no AWS credentials")
        SigV4Auth(credentials, service, region).add_auth(request)

    return sign


def _session() -> URLLib3Session:
    return URLLib3Session(timeout=(_CONNECT_S, _READ_S))  # type: ignore[arg-type]  # The stubs know one number alone.


@dataclass(frozen=True, slots=True)
class HttpJson:
    """A service below a URL; ``base`` is ``http(s)://host/path``, without credentials."""

    base: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sign: Callable[[AWSRequest], None] | None = None
    _http: URLLib3Session = field(default_factory=_session, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.base)
        if parts.username or parts.password:
            raise ProfileSourceError(
                parts.hostname or "", "has credentials in its URL, expected none: see docs/sources.md"
            )

    @property
    def place(self) -> str:
        return self.base

    def get(self, path: str, query: Mapping[str, str]) -> Any:
        """Return the JSON of an answer; a service that is overloaded is asked three times."""
        # A signature covers the query as it is sent; services compute theirs with %20 for a space, never with +.
        return self._asked(path, f"{path}?{urlencode(query, quote_via=quote)}", None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send JSON, up to three times, and return that of the answer."""
        return self._asked(path, path, msgspec.json.encode(body))

    def _asked(self, path: str, below: str, sent: bytes | None) -> Any:
        for last in (*[False] * (_TRIES - 1), True):
            try:
                status, body = self._answer(below, sent)
            except (HTTPClientError, BotoCoreError, OSError) as fault:
                if last:
                    raise PortUnavailableError(self.base, path, f"{type(fault).__name__}: {fault}") from fault
            else:
                if status not in _AGAIN:
                    return self._read(status, body)
                if last:
                    raise PortUnavailableError(self.base, path, f"status {status}")
            time.sleep(PAUSE_S)
        raise AssertionError

    def _answer(self, below: str, sent: bytes | None) -> tuple[int, bytes]:
        url = f"{self.base.rstrip('/')}/{below}"
        method, headers = ("GET", {}) if sent is None else ("POST", {"Content-Type": "application/json"})
        request = AWSRequest(method=method, url=url, headers={**headers, **self.headers}, data=sent, stream_output=True)
        if self.sign is not None:
            self.sign(request)
        response = self._http.send(request.prepare())
        body = bytearray()
        for piece in response.raw.stream(_PIECE, decode_content=True):
            body += piece
            if len(body) > MAX_BYTES:
                raise ProfileSourceError(self.base, f"an answer of more than {MAX_BYTES:,} bytes, expected one job")
        return response.status_code, bytes(body)

    def _read(self, status: int, body: bytes) -> Any:
        try:
            answer = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            answer = None
        if status != HTTPStatus.OK:
            message = answer.get("message") or answer.get("error") if isinstance(answer, dict) else None
            raise ProfileSourceError(self.base, f"status {status}: {str(message or '')[:_LONGEST_REASON]}".rstrip(": "))
        if answer is None:
            raise ProfileSourceError(self.base, f"answers {body[:40]!r}, expected JSON")
        return answer


def bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(user: str, password: str) -> Mapping[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


SERVER_ARN = re.compile(
    r"arn:aws[a-z-]*:sagemaker:(?P<region>[a-z0-9-]+):\d{12}:mlflow-(?:tracking-server|app)/[A-Za-z0-9-]+"
)

_AWS_HOST = re.compile(r"(?P<service>aps-workspaces|monitoring)\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
_SIGNED_AS = {"aps-workspaces": "aps", "monitoring": "monitoring"}
_MLFLOW_API = "api/2.0/mlflow"

Headers = Callable[[str], Mapping[str, str]]


def no_headers(host: str) -> Mapping[str, str]:
    del host
    return {}


def tokens_by_host(tokens: Mapping[str, str]) -> Headers:
    return lambda host: bearer(tokens[host]) if host in tokens else {}


def mlflow_api(place: str, server: str, headers: Headers = no_headers, session: Session | None = None) -> HttpJson:
    """Return the interface of a server of MLflow; raises ProfileSourceError for an unusable address.

    ``server`` is ``http(s)://host``, or the ARN of a managed server, whose requests ``session`` signs. ``place`` is its
    name in errors.
    """
    if match := SERVER_ARN.fullmatch(server):
        region = match["region"]
        suffix = ".cn" if region.startswith("cn-") else ""
        return HttpJson(
            f"https://{region}.experiments.sagemaker.aws{suffix}/{_MLFLOW_API}",
            headers={"x-mlflow-sm-tracking-server-arn": server},
            sign=signer(session or get_session(), "sagemaker-mlflow", region),
        )
    host = host_of(place, server)
    return HttpJson(f"{server.rstrip('/')}/{_MLFLOW_API}", headers=headers(host))


def prometheus_api(place: str, server: str, headers: Headers = no_headers, session: Session | None = None) -> HttpJson:
    """Return the interface of a Prometheus, of a managed one, or of CloudWatch's; as `mlflow_api` does."""
    host = host_of(place, server)
    match = _AWS_HOST.fullmatch(host)
    if match is None:
        return HttpJson(server.rstrip("/"), headers=headers(host))
    sign = signer(session or get_session(), _SIGNED_AS[match["service"]], match["region"])
    return HttpJson(server.rstrip("/"), sign=sign)


def host_of(place: str, server: str) -> str:
    """Return the host of a URL; raises ProfileSourceError where it has none."""
    parts = urlsplit(server)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ProfileSourceError(place, f"has the server {server!r}, expected http(s)://host")
    return parts.hostname
