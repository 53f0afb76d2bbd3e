"""Kubernetes' API server and Slurm's commands, as far as the agent uses them."""

import copy
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 2


class ApiServer(ThreadingHTTPServer):
    """Objects by their paths. ``broken`` are statuses with which the next requests are answered.

    With ``loses`` an answer is lost after its effect; ``before_patch`` is called before one takes effect.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, dict[str, Any]] = {}
        self.broken: list[int] = []
        self.loses = False
        self.before_patch: list[Any] = []
        self.patches: list[tuple[str, Any]] = []
        self._version = 0

    def put(self, path: str, found: dict[str, Any]) -> None:
        """Store an object under its list's path, as another version."""
        self._version += 1
        metadata = {"uid": f"uid-{found['metadata']['name']}", **found["metadata"]}
        stored = {**found, "metadata": {**metadata, "resourceVersion": str(self._version)}}
        self.objects[f"{path}/{metadata['name']}"] = copy.deepcopy(stored)

    def listed(self, path: str, query: dict[str, list[str]]) -> dict[str, Any]:
        """Return a page of a list; of all namespaces where the path names none."""
        group, _, kind = path.rpartition("/")
        found = [each for place, each in self.objects.items() if _is_in(place, group, kind)]
        for selector in query.get("labelSelector", []):
            name, _, value = selector.partition("=")
            found = [each for each in found if (each["metadata"].get("labels") or {}).get(name) == value]
        for selector in query.get("fieldSelector", []):
            node = dict(part.split("=") for part in selector.split(","))["spec.nodeName"]
            found = [each for each in found if each["spec"]["nodeName"] == node]
        start = int(query.get("continue", ["0"])[0])
        more = {"continue": str(start + PAGE)} if start + PAGE < len(found) else {}
        return {"items": found[start : start + PAGE], "metadata": more}

    def patch(self, path: str, change: dict[str, Any]) -> int:
        for action in self.before_patch:
            action()
        self.before_patch = []
        found = self.objects.get(path)
        if found is None:
            return 404
        wanted = change["metadata"]
        if any(wanted[name] != found["metadata"][name] for name in ("uid", "resourceVersion")):
            return 409
        self.patches.append((path, change))
        merged = _merged(found, change)
        self.put(path.rpartition("/")[0], merged)
        return 200


def _is_in(place: str, group: str, kind: str) -> bool:
    parts = place.split("/")[:-1]
    return parts[-1] == kind and place.startswith(f"{group}/")


def _merged(found: Any, change: Any) -> Any:
    if not isinstance(change, dict) or not isinstance(found, dict):
        return change
    return {**found, **{name: _merged(found.get(name), value) for name, value in change.items()}}


class Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        found = self.server.objects.get(parts.path)
        listed = self.server.listed(parts.path, parse_qs(parts.query)) if found is None else found
        is_list = parts.path.rpartition("/")[2] in {"jobs", "workloads", "nodes", "pods"}
        self._answer(200 if found is not None or is_list else 404, listed)

    def do_PATCH(self) -> None:
        change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        assert self.headers["Authorization"] == "Bearer a-token"
        if self.server.broken:
            self._answer(0, {})
            return
        status = self.server.patch(self.path, change)
        if self.server.loses:
            self.server.loses = False
            self.close_connection = True
            return
        self._answer(status, {})

    def _answer(self, status: int, body: Any) -> None:
        self.send_response(self.server.broken.pop(0) if self.server.broken else status)
        data = json.dumps(body).encode()
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def api_server() -> Iterator[ApiServer]:
    server = ApiServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


SCONTROL = r"""#!/bin/sh
cd "$(dirname "$0")" || exit 9
echo "scontrol $*" >> calls
[ -f down ] && { echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
case "$1 $2" in
"show job"|"show node")
  if [ "$3" = -o ]; then cat "$2"-* 2>/dev/null; exit 0; fi
  [ -f "$2-$3" ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
  cat "$2-$3"; exit 0;;
"requeue "*) sed -i 's/JobState=RUNNING/JobState=PENDING/; s/Restarts=0/Restarts=1/' "job-$2";;
"update JobId"*) id=${2#JobId=}; sed -i "s/ AdminComment=.*//; s/\$/ $3/" "job-$id"
  exit 0;;
"update NodeName"*) id=${2#NodeName=}
  sed -i "s/State=[A-Z]*/State=IDLE+${3#State=} $4/; s/ Comment=.*/ $5/" "node-$id";;
esac
[ -f loses ] && { rm loses; exit 1; }
exit 0
"""
SCANCEL = r"""#!/bin/sh
cd "$(dirname "$0")" || exit 9
echo "scancel $*" >> calls
sed -i 's/JobState=RUNNING/JobState=CANCELLED/' "job-$1"
[ -f loses ] && { rm loses; exit 1; }
exit 0
"""


class SlurmCommands:
    """A folder with ``scontrol`` and ``scancel``; files ``down`` and ``loses`` there are faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (("scontrol", SCONTROL), ("scancel", SCANCEL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.path = f"{folder}{os.pathsep}{os.environ['PATH']}"

    def put(self, kind: str, name: str, line: str) -> None:
        (self.folder / f"{kind}-{name}").write_text(f"{line}\n")

    @property
    def acts(self) -> list[str]:
        """Return the commands that changed something."""
        calls = (self.folder / "calls").read_text().splitlines()
        return [each for each in calls if not each.startswith("scontrol show")]
