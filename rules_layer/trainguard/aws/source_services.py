"""The services of other tools, by their addresses: who signs a request, and which token goes with it."""

import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from botocore.session import Session, get_session

from trainguard.aws.http_json import HttpJson, Signing, bearer
from trainguard.core.errors import ProfileSourceError

SERVER_ARN = re.compile(
    r"arn:aws[a-z-]*:sagemaker:(?P<region>[a-z0-9-]+):\d{12}:mlflow-(?:tracking-server|app)/[A-Za-z0-9-]+"
)

_AWS_HOST = re.compile(r"(?P<service>aps-workspaces|monitoring)\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
_SIGNED_AS = {"aps-workspaces": "aps", "monitoring": "monitoring"}
_MLFLOW_API = "api/2.0/mlflow"

Headers = Callable[[str], Mapping[str, str]]


def no_headers(host: str) -> Mapping[str, str]:
    """Return no headers."""
    del host
    return {}


def tokens_by_host(tokens: Mapping[str, str]) -> Headers:
    """Return the header of the token that belongs to a host."""
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
            signing=Signing(session or get_session(), "sagemaker-mlflow", region),
        )
    host = host_of(place, server)
    return HttpJson(f"{server.rstrip('/')}/{_MLFLOW_API}", headers=headers(host))


def prometheus_api(place: str, server: str, headers: Headers = no_headers, session: Session | None = None) -> HttpJson:
    """Return the interface of a Prometheus, of a managed one, or of CloudWatch's; as `mlflow_api` does."""
    host = host_of(place, server)
    match = _AWS_HOST.fullmatch(host)
    if match is None:
        return HttpJson(server.rstrip("/"), headers=headers(host))
    signing = Signing(session or get_session(), _SIGNED_AS[match["service"]], match["region"])
    return HttpJson(server.rstrip("/"), signing=signing)


def host_of(place: str, server: str) -> str:
    """Return the host of a URL; raises ProfileSourceError where it has none."""
    parts = urlsplit(server)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ProfileSourceError(place, f"has the server {server!r}, expected http(s)://host")
    return parts.hostname
