"""JSON over HTTP, with a token, a password or a signature; credentials follow no redirect to another host."""

import base64
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, HTTPClientError
from botocore.httpsession import URLLib3Session
from botocore.session import Session

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


@dataclass(frozen=True, slots=True)
class Signing:
    """Signs requests (SigV4) for a service of a Region with the credentials of a session."""

    session: Session
    service: str
    region: str

    def sign(self, request: AWSRequest) -> None:
        """Add the signature; raises PortUnavailableError without credentials."""
        credentials = self.session.get_credentials()
        if credentials is None:
            raise PortUnavailableError(self.service, "sign", "there are no AWS credentials")
        SigV4Auth(credentials, self.service, self.region).add_auth(request)


def _session() -> URLLib3Session:
    return URLLib3Session(timeout=(_CONNECT_S, _READ_S))  # type: ignore[arg-type]  # The stubs know one number alone.


@dataclass(frozen=True, slots=True)
class HttpJson:
    """A service below a URL; ``base`` is ``http(s)://host/path``, without credentials."""

    base: str
    headers: Mapping[str, str] = field(default_factory=dict)
    signing: Signing | None = None
    _http: URLLib3Session = field(default_factory=_session, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.base)
        if parts.username or parts.password:
            raise ProfileSourceError(
                parts.hostname or "", "has credentials in its URL, expected none: see docs/sources.md"
            )

    @property
    def place(self) -> str:
        """The URL."""
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
        if self.signing is not None:
            self.signing.sign(request)
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
    """Return the header of a token."""
    return {"Authorization": f"Bearer {token}"}


def basic(user: str, password: str) -> Mapping[str, str]:
    """Return the header of a user and a password."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
