"""A controller that suspends, or deletes, Jobs of Kubernetes on which no GPU works, by TrainGuard's verdicts.

    python kubernetes_controller.py --every 600 --grace 900

It lists the Jobs that are labelled ``trainguard/stop=allowed`` through the API, with the token of its service account
(``list``, ``patch``, and ``delete`` for ``--delete``). The annotation ``trainguard/job`` says how TrainGuard calls a
Job, by default ``namespace/name``. A Job with an annotation ``trainguard/stop-exempt`` is never touched. A Job that
idles is first marked with the time, ``trainguard/idle-since``, and ended once it has idled for the grace beyond that.
Any other answer takes the mark off.
"""

import argparse
import json
import os
import ssl
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from asking import ask, is_idle

SELECTOR = "trainguard/stop=allowed"
JOB, EXEMPT, SINCE = "trainguard/job", "trainguard/stop-exempt", "trainguard/idle-since"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 20.0
_MERGE = "application/merge-patch+json"


class KubernetesError(Exception):
    """The API did not do what it was asked for."""


class Api:
    """The API of a cluster, at ``url``."""

    def __init__(self, url: str, token: str = "", authority: Path | None = None) -> None:
        self._parts, self._token, self._authority = urlsplit(url), token, authority

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """Return what the API answers; KubernetesError where it refuses."""
        connection = self._connection()
        headers = {"Accept": "application/json", "Content-Type": kind}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, f"{self._parts.path.rstrip('/')}{path}", sent, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise KubernetesError(f"{method} {path}: status {answer.status}")
            return json.loads(text)
        except (OSError, ValueError, HTTPException) as fault:
            raise KubernetesError(f"{method} {path}: {fault}") from fault
        finally:
            connection.close()

    def jobs(self) -> Iterator[dict[str, Any]]:
        """Yield the Jobs that may be ended, page by page."""
        query = {"labelSelector": SELECTOR, "limit": "200"}
        while True:
            page = self.call("GET", f"/apis/batch/v1/jobs?{urlencode(query)}")
            yield from page["items"]
            if not (more := page["metadata"].get("continue")):
                return
            query["continue"] = more

    def _connection(self) -> HTTPConnection:
        if self._parts.scheme == "https":
            trusted = ssl.create_default_context(cafile=None if self._authority is None else str(self._authority))
            return HTTPSConnection(self._parts.netloc, timeout=TIMEOUT_S, context=trusted)
        return HTTPConnection(self._parts.netloc, timeout=TIMEOUT_S)


def look_at(api: Api, job: dict[str, Any], *, grace_s: float, delete: bool, now: float) -> str | None:
    """Ask about one Job and act; return what was done."""
    about, notes = job["metadata"], job["metadata"].get("annotations") or {}
    runs = job.get("status", {}).get("active", 0) and not job.get("spec", {}).get("suspend")
    if not runs or EXEMPT in notes:
        return None
    name = f"{about['namespace']}/{about['name']}"
    since = _time(notes.get(SINCE))
    if not is_idle(ask(notes.get(JOB, name), timeout_s=TIMEOUT_S)):
        return None if SINCE not in notes else _mark(api, about, None, f"{name}: works again")
    if since is None:
        at = datetime.fromtimestamp(now, UTC).isoformat()
        return _mark(api, about, at, f"{name}: is idle, and is ended in {grace_s:g} s if it stays so")
    return None if now - since < grace_s else _end(api, about, name, delete=delete)


def _mark(api: Api, about: dict[str, Any], since: str | None, said: str) -> str:
    api.call("PATCH", _path(about), _patch(about, since=since), _MERGE)
    return said


def _end(api: Api, about: dict[str, Any], name: str, *, delete: bool) -> str:
    """Suspend or delete a Job, unless it has changed since it was listed."""
    if delete:
        only = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
        api.call("DELETE", _path(about), {"propagationPolicy": "Background", "preconditions": only})
        return f"{name}: deleted"
    api.call("PATCH", _path(about), {**_patch(about, since=None), "spec": {"suspend": True}}, _MERGE)
    return f"{name}: suspended"


def _path(about: dict[str, Any]) -> str:
    return f"/apis/batch/v1/namespaces/{about['namespace']}/jobs/{about['name']}"


def _patch(about: dict[str, Any], *, since: str | None) -> dict[str, Any]:
    """Return a patch of the mark that is refused where the Job has changed since it was listed."""
    return {"metadata": {"resourceVersion": about["resourceVersion"], "annotations": {SINCE: since}}}


def _time(text: str | None) -> float | None:
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def look_around(api: Api, *, grace_s: float, delete: bool) -> None:
    """Look at each Job once; one that cannot be changed costs no other its turn."""
    try:
        for job in api.jobs():
            try:
                done = look_at(api, job, grace_s=grace_s, delete=delete, now=time.time())
            except (KubernetesError, KeyError, TypeError) as fault:
                done = f"not changed: {fault}"
            if done is not None:
                sys.stdout.write(f"{done}\n")
    except (KubernetesError, KeyError, TypeError) as fault:
        sys.stdout.write(f"Jobs are not listed: {fault}\n")
    sys.stdout.flush()


def main(words: list[str]) -> int:
    """Look around for ever, or once; return the exit code."""
    parser = argparse.ArgumentParser(description="Suspend or delete idle Jobs of Kubernetes by TrainGuard's verdicts.")
    parser.add_argument("--every", type=float, default=0.0, help="seconds between two looks; by default one look")
    parser.add_argument("--grace", type=float, default=900.0, help="seconds between the mark and the end")
    parser.add_argument("--delete", action="store_true", help="delete Jobs instead of suspending them")
    asked = parser.parse_args(words)
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
    url = os.environ.get("KUBERNETES_API", f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}")
    while True:
        token = ACCOUNT / "token"  # It is renewed every hour.
        known = token.read_text().strip() if token.is_file() else ""
        authority = ACCOUNT / "ca.crt"
        look_around(
            Api(url, known, authority if authority.is_file() else None), grace_s=asked.grace, delete=asked.delete
        )
        if not asked.every:
            return 0
        time.sleep(asked.every)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
