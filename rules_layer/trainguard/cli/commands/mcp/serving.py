"""Serves agents over stdio, or over HTTP on this machine; elsewhere with a bearer token alone."""

import hmac
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from trainguard.core.errors import RequestError

if TYPE_CHECKING:
    from mcp.server import Server
    from starlette.applications import Starlette

PATH = "/mcp"
_LEAST_TOKEN = 16
_LOCAL = "localhost"


class _Bearer:
    """Knows one token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        if not hmac.compare_digest(token.encode(), self._token):
            return None
        return AccessToken(token=token, client_id="bearer", scopes=[])


def serve_stdio(server: "Server[Any]") -> None:
    async def run() -> None:
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    anyio.run(run)


def http_app(server: "Server[Any]", host: str, token: str, hosts: Sequence[str], *, acts: bool = False) -> "Starlette":
    """Return the application; raises RequestError where others could call it without a token, or by any name.

    One that ``acts`` needs the token on this machine, too: all its users reach the port.
    """
    is_local = _is_local(host)
    if acts and len(token) < _LEAST_TOKEN:
        raise RequestError(
            f"--http with --allow-brake or --allow-stop has no token of {_LEAST_TOKEN} characters",
            "Set TRAINGUARD_MCP_TOKEN, or serve over stdio.",
        )
    if not is_local and len(token) < _LEAST_TOKEN:
        raise RequestError(
            f"--host {host} is no address of this machine alone, and there is no token of {_LEAST_TOKEN} characters",
            "Set TRAINGUARD_MCP_TOKEN, or leave out --host.",
        )
    if not is_local and not hosts:
        raise RequestError(
            f"--host {host} is given without a name by which clients call it",
            "Name it: --allowed-host mcp.example.com:8765.",
        )
    names = ["127.0.0.1:*", f"{_LOCAL}:*", "[::1]:*"] if is_local else []
    known = [*names, *hosts, *(f"{each}:*" for each in hosts if ":" not in each)]
    security = TransportSecuritySettings(
        allowed_hosts=known, allowed_origins=[f"{scheme}://{each}" for each in known for scheme in ("http", "https")]
    )
    auth: dict[str, Any] = {}
    if token:
        settings = AuthSettings(issuer_url=f"http://{_LOCAL}", resource_server_url=None)  # type: ignore[arg-type]
        auth = {"auth": settings, "token_verifier": _Bearer(token)}
    return server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        transport_security=security,
        host=host,
        **auth,
    )


def serve_http(app: "Starlette", host: str, port: int) -> None:
    import uvicorn

    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False)


def _is_local(host: str) -> bool:
    try:
        return host == _LOCAL or ip_address(host).is_loopback
    except ValueError:
        return False
