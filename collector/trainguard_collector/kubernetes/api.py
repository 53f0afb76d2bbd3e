"""Kubernetes' API: the pods of one node."""

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional
from urllib.parse import quote

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_S = 15.0
# A node has some hundred pods.
_MOST_BYTES = 64 * 1024 * 1024


class ApiError(Exception):
    """The API gives no list of pods; the message says which request failed, and how."""


class Api:
    """Lists pods; the token is read each time, as the kubelet renews it. ``context`` is None for plain HTTP."""

    def __init__(self, host: str, port: int, token: Path, context: Optional[ssl.SSLContext]) -> None:
        self._host, self._port, self._token, self._context = host, port, token, context

    @classmethod
    def of_pod(cls, environment: Mapping[str, str], account: Path = ACCOUNT) -> "Api":
        """Return the API of the cluster in which this process runs; raises KeyError and OSError outside of one."""
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        host, port = environment["KUBERNETES_SERVICE_HOST"], int(environment.get("KUBERNETES_SERVICE_PORT") or 443)
        return cls(host, port, account / "token", context)

    def pods(self, node: str, namespaces: Sequence[str] = ()) -> "list[Mapping[str, Any]]":
        """Return the node's pods, of some namespaces or of all; raises ApiError."""
        below = [f"/api/v1/namespaces/{quote(each, safe='')}/pods" for each in namespaces] or ["/api/v1/pods"]
        # Version 0 lets the server answer from its memory.
        query = f"?fieldSelector={quote(f'spec.nodeName={node}', safe='')}&resourceVersion=0"
        return [pod for path in below for pod in self._items(path + query)]

    def _items(self, path: str) -> "list[Mapping[str, Any]]":
        try:
            status, body = self._get(path)
            found = json.loads(body) if status == http.client.OK else {}
        except (OSError, http.client.HTTPException, ValueError) as fault:
            raise ApiError(f"GET {path}: {type(fault).__name__}: {fault}") from fault
        items = found.get("items") if isinstance(found, dict) else None
        if not isinstance(items, list):
            raise ApiError(f"GET {path}: status {status}, {body[:200].decode('utf-8', 'replace')}")
        return [each for each in items if isinstance(each, dict)]

    def _get(self, path: str) -> "tuple[int, bytes]":
        if self._context is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=self._context)
        try:
            token = self._token.read_text("ascii").strip()
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
            answer = connection.getresponse()
            body = answer.read(_MOST_BYTES + 1)
        finally:
            connection.close()
        if len(body) > _MOST_BYTES:
            raise ValueError(f"over {_MOST_BYTES:,} bytes")
        return answer.status, body
