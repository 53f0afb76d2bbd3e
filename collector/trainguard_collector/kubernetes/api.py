"""Kubernetes' API, with the pod's own account."""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Optional
from urllib.parse import quote, urlencode, urlsplit

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_S = 15.0
_PAGE = 500
# A node has some hundred pods.
_MOST_BYTES = 64 * 1024 * 1024


class ApiError(OSError):
    """The API does not answer as it should; the message says which request failed, and how."""


class Api:
    """The cluster's API server, by its URL; each request raises ApiError."""

    def __init__(self, server: str, account: Path = ACCOUNT) -> None:
        self._parts, self._token = urlsplit(server), account / "token"
        authority = account / "ca.crt"
        self._tls = ssl.create_default_context(cafile=str(authority)) if self._parts.scheme == "https" else None

    @classmethod
    def of_pod(cls, environment: Mapping[str, str], account: Path = ACCOUNT) -> "Api":
        """Return the API of the cluster in which this process runs; raises KeyError and OSError outside of one."""
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT") or 443
        return cls(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", account)

    def pods(self, node: str, namespaces: Sequence[str] = ()) -> "list[Mapping[str, Any]]":
        """Return the node's pods, of some namespaces or of all."""
        found: list[Mapping[str, Any]] = []
        for path in [f"/api/v1/namespaces/{quote(each, safe='')}/pods" for each in namespaces] or ["/api/v1/pods"]:
            # Version 0 lets the server answer from its memory.
            listed = self.get(path, fieldSelector=f"spec.nodeName={node}", resourceVersion=0) or {}
            if not isinstance(listed.get("items"), list):
                raise ApiError(f"GET {path}: there is no list of pods")
            found += [each for each in listed["items"] if isinstance(each, dict)]
        return found

    def get(self, path: str, **query: Any) -> "Optional[dict[str, Any]]":
        """Return an object or a list; None when there is none."""
        return self._send("GET", f"{path}?{urlencode(query)}" if query else path, none=(404,))

    def items(self, path: str, **query: Any) -> "Iterator[dict[str, Any]]":
        """Iterate over a list, page by page; over nothing where the cluster has no such kind."""
        more = ""
        while True:
            page = self.get(path, limit=_PAGE, **({"continue": more} if more else {}), **query) or {}
            yield from page.get("items") or ()
            more = (page.get("metadata") or {}).get("continue") or ""
            if not more:
                return

    def patch(self, path: str, change: "dict[str, Any]") -> bool:
        """Change an object; return whether it was, not where it is gone, or another than the change is of."""
        return self._send("PATCH", path, change, none=(404, 409)) is not None

    def _send(
        self, method: str, path: str, change: "Optional[dict[str, Any]]" = None, *, none: Sequence[int]
    ) -> "Optional[dict[str, Any]]":
        """Return the answer, None for some statuses."""
        host, port = self._parts.hostname or "", self._parts.port
        if self._tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=self._tls)
        try:
            # The kubelet renews the token while this process runs.
            headers = {"Authorization": f"Bearer {self._token.read_text('ascii').strip()}"}
            headers |= {"Accept": "application/json", "Content-Type": "application/merge-patch+json"}
            connection.request(method, path, None if change is None else json.dumps(change), headers)
            answer = connection.getresponse()
            body = answer.read(_MOST_BYTES + 1)
            if len(body) > _MOST_BYTES:
                raise ValueError(f"over {_MOST_BYTES:,} bytes")
            found = json.loads(body) if answer.status == http.client.OK else None
        except (OSError, http.client.HTTPException, ValueError) as fault:
            raise ApiError(f"{method} {path}: {type(fault).__name__}: {fault}") from fault
        finally:
            connection.close()
        if answer.status in none:
            return None
        if not isinstance(found, dict):
            raise ApiError(f"{method} {path}: status {answer.status}, {body[:200].decode('utf-8', 'replace')}")
        return found


def epoch_of(text: object) -> Optional[float]:
    """Return a time of the API in epoch seconds; None for anything else."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
