"""The signature that AWS computes for a request that came, by the specification of Signature Version 4."""

import hashlib
import hmac
import re
from urllib.parse import quote, unquote, urlsplit

from tests.support.json_service import Asked

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), "
    r"SignedHeaders=(?P<signed>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)


def signed_for(request: Asked, secret: str) -> tuple[str, str] | None:
    """Return the Region and the service that a request is signed for; None where its signature is wrong."""
    headers = {name.lower(): " ".join(value.split()) for name, value in request.headers.items()}
    match = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if match is None:
        return None
    parts = urlsplit(request.target)
    signed = match["signed"].split(";")
    canonical = "\n".join(
        [
            request.method,
            quote(parts.path, safe="/-_.~"),
            _canonical_query(parts.query),
            *(f"{name}:{headers[name]}" for name in signed),
            "",
            match["signed"],
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    day, region, service, last = match["scope"].split("/")
    to_sign = "\n".join(
        ["AWS4-HMAC-SHA256", headers["x-amz-date"], match["scope"], hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, last):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    expected = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    return (region, service) if hmac.compare_digest(expected, match["signature"]) else None


def _canonical_query(query: str) -> str:
    """Return a query as the service writes it: a plus sign in it stands for a space, which is written %20."""
    pairs = [part.partition("=") for part in query.split("&") if part]
    plain = [(unquote(name.replace("+", " ")), unquote(value.replace("+", " "))) for name, _, value in pairs]
    written = [(quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in plain]
    return "&".join(f"{name}={value}" for name, value in sorted(written))
