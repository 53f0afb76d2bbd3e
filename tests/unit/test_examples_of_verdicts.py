"""The examples that ask for verdicts, each against a stub of the other side that behaves as that side does."""

import gc
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asking
import batch_terminate
import kubernetes_controller as controller
import pytest
import skypilot_idleness
import slurm_epilog

from tests.support.json_service import json_service
from tests.support.signature_v4 import signed_for

EXAMPLES = Path(__file__).parents[2] / "examples" / "act_on_verdict"


def document(job: str, **changes: object) -> dict[str, object]:
    """Return a verdict on a job that runs and does nothing; its time is in seconds from when it is served."""
    return {"job": job, "verdict": "idle", "certainty": "high", "active": True, "generated_at": 0.0, **changes}


def served(found: Any) -> Any:
    """Return a document with the time at which it is made."""
    if not isinstance(found, dict) or not isinstance(found.get("generated_at"), float):
        return found
    return {**found, "generated_at": earlier(-found["generated_at"])}


def earlier(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


@pytest.fixture(autouse=True)
def without_collection() -> Iterator[None]:
    """A timeout that arrives while a callback of garbage collection runs would be lost in it."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Serve what is put in, by job, as the endpoint does: requests must be signed for it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    known: dict[str, Any] = {}

    def answer(path: str, query: Any) -> tuple[int, Any]:
        if signed_for(requests[-1], "secret") != ("eu-west-1", "lambda"):
            return 403, {"Message": "Forbidden"}
        found = known.get(query.get("job", ""))
        return found() if callable(found) else (200 if path == "/verdict" else 404, served(found))

    with json_service(answer) as (url, requests):
        monkeypatch.setenv(asking.URL_VARIABLE, f"{url}/")
        yield known


def slow() -> tuple[int, Any]:
    time.sleep(2.0)
    return 200, served(document("a"))


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (document("a"), "idle"),
        (document("a", certainty="medium"), "active"),
        (document("a", verdict="unknown"), "active"),
        (document("a", active=False), "active"),
        (document("a", generated_at=-600.0), "active"),
        (document("a", generated_at=600.0), "active"),
        (document("a", generated_at="yesterday"), "active"),
        (document("b"), "active"),
        (b"<html>", "active"),
        (b"[" * 100_000, "active"),
        ([], "active"),
        (lambda: (503, {"message": "a table did not answer"}), "active"),
    ],
)
def test_skypilot_treats_only_a_sure_and_fresh_answer_as_idle(
    answer: Any, status: str, verdicts: dict[str, Any]
) -> None:
    verdicts["a"] = answer
    assert skypilot_idleness.idleness(["a"], 10.0)["status"] == status


def test_skypilot_waits_no_longer_than_its_time(verdicts: dict[str, Any]) -> None:
    verdicts["a"] = slow
    began = time.monotonic()
    assert skypilot_idleness.idleness(["a"], 0.3)["status"] == "active"
    assert time.monotonic() - began < 1.8


def test_skypilot_requires_every_job_to_be_idle(
    verdicts: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts["a"], verdicts["team/b"] = document("a"), document("team/b", verdict="healthy")
    assert skypilot_idleness.main(["a", "team/b"]) == 0
    assert json.loads(capsys.readouterr().out) == {"status": "active", "reason": "team/b: healthy"}
    verdicts["team/b"] = document("team/b")
    assert skypilot_idleness.idleness(["a", "team/b"], 5.0)["status"] == "idle"
    assert skypilot_idleness.idleness([], 5.0)["status"] == "active"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert skypilot_idleness.idleness(["a"], 5.0)["status"] == "active"
    monkeypatch.setenv(asking.URL_VARIABLE, "http://verdicts.example.com")
    assert skypilot_idleness.idleness(["a"], 5.0)["status"] == "active"


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Put stubs of commands, as shell scripts, on a path of their own."""
    for name, script in scripts.items():
        stub = folder / name
        stub.write_text(f"#!/bin/sh\n{script}\n")
        stub.chmod(stub.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


def test_document_of_the_command_counts_unless_it_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = json.dumps(
        served(document("bert", verdict="wasted", lost=3.5, spent=10.0, currency="USD", active=False, why="a\nb"))
    )
    (tmp_path / "said").write_text(said)
    commands(
        tmp_path,
        monkeypatch,
        trainguard=f'[ "$*" = "verdict --json -- bert-17" ] && sed s/bert/bert-17/ {tmp_path}/said',
        scontrol=f'for word in "$@"; do echo "$word"; done > {tmp_path}/called; exit 1',
    )
    environment = {**os.environ, "SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "bert"}
    call = [sys.executable, str(EXAMPLES / "slurm_epilog.py")]
    assert subprocess.run(call, env=environment, check=False).returncode == 0
    written = ["update", "JobId=17", "AdminComment=TrainGuard: wasted, USD 3.50 of 10.00 lost. a b"]
    assert (tmp_path / "called").read_text().splitlines() == written
    commands(tmp_path, monkeypatch, trainguard="sleep 20")
    began = time.monotonic()
    assert asking.ask("bert-17", timeout_s=0.3) is None
    assert time.monotonic() - began < 15.0


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"SLURM_JOB_ID": "17; rm", "SLURM_JOB_NAME": "bert"}, document("bert-17; rm", verdict="wasted")),
        ({"SLURM_JOB_NAME": "bert"}, document("bert-", verdict="wasted")),
        ({"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "bert"}, document("bert-17", verdict="unknown")),
        ({"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "bert"}, document("bert-17", generated_at=-900.0)),
        ({"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "bert"}, b"no JSON"),
    ],
)
def test_epilog_without_a_message_writes_nothing_and_succeeds(
    environment: dict[str, str], said: Any, verdicts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path, monkeypatch, scontrol=f"touch {tmp_path}/called")
    verdicts.update(dict.fromkeys(("bert-17", "bert-", "bert-17; rm"), said))
    assert slurm_epilog.main(environment) == 0
    assert not (tmp_path / "called").exists()


class Cluster:
    """The API of Kubernetes as far as Jobs go: pages, labels, merge patches, versions, deletions with conditions."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []

    def add(self, name: str, *, active: int = 1, labels: dict[str, str] | None = None, **annotations: str) -> None:
        marked = {"trainguard/stop": "allowed"} if labels is None else labels
        about = {"namespace": "ml", "name": name, "uid": f"u-{name}", "resourceVersion": "1", "labels": marked}
        notes = {f"trainguard/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.jobs[name] = {
            "metadata": {**about, "annotations": notes},
            "spec": {"suspend": False},
            "status": {"active": active},
        }

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if method == "GET":
            key, _, value = query["labelSelector"].partition("=")
            names = [name for name, each in self.jobs.items() if each["metadata"]["labels"].get(key) == value]
            left = [name for name in sorted(names) if name > query.get("continue", "")]
            more = left[0] if len(left) > 1 else ""
            return 200, {"items": [self.jobs[name] for name in left[:1]], "metadata": {"continue": more}}
        name = path.rpartition("/")[2]
        self.calls.append(f"{method} {name}")
        job = self.jobs[name]
        only = body["metadata"] if method == "PATCH" else body["preconditions"]
        if only["resourceVersion"] != job["metadata"]["resourceVersion"]:
            return 409, {"reason": "Conflict"}
        if method == "DELETE":
            return 200, self.jobs.pop(name)
        notes = {**job["metadata"]["annotations"], **body["metadata"]["annotations"]}
        job["metadata"]["annotations"] = {key: value for key, value in notes.items() if value is not None}
        job["spec"].update(body.get("spec", {}))
        return 200, job


@contextmanager
def kubernetes(cluster: Cluster) -> Iterator[controller.Api]:
    """Serve a cluster; requests need its token."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            status, said = 401, {"reason": "Unauthorized"}
            if self.headers["Authorization"] == "Bearer t0k":
                status, said = cluster.answer(self.command, parts.path, query, json.loads(sent or b"null"))
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PATCH = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield controller.Api(f"http://127.0.0.1:{server.server_address[1]}", "t0k")
    finally:
        server.shutdown()


def test_idle_cluster_job_is_marked_and_ended_after_the_grace(
    verdicts: dict[str, Any],
) -> None:
    cluster = Cluster()
    cluster.add("idle")
    cluster.add("busy")
    cluster.add("again", idle_since=earlier(5_000))
    cluster.add("exempt", stop_exempt="yes", idle_since=earlier(5_000))
    cluster.add("other", labels={})
    cluster.add("ended", active=0, idle_since=earlier(5_000))
    verdicts.update({f"ml/{name}": document(f"ml/{name}") for name in ("idle", "exempt", "other", "ended")})
    verdicts["ml/busy"] = document("ml/busy", verdict="healthy")
    with kubernetes(cluster) as api:
        controller.look_around(api, grace_s=900.0, delete=False)
        assert cluster.calls == ["PATCH again", "PATCH idle"]
        assert not any(each["spec"]["suspend"] for each in cluster.jobs.values())
        controller.look_around(api, grace_s=900.0, delete=False)
        assert cluster.calls == ["PATCH again", "PATCH idle"]
        controller.look_around(api, grace_s=0.0, delete=False)
    assert [name for name, job in cluster.jobs.items() if job["spec"]["suspend"]] == ["idle"]


def test_refusing_cluster_ends_nothing_and_others_continue(
    verdicts: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster()
    for name in ("changed", "gone"):
        cluster.add(name, idle_since=earlier(5_000), job=name)
        verdicts[name] = document(name)
    with kubernetes(cluster) as api:
        (listed, _) = list(api.jobs())
        cluster.jobs["changed"]["metadata"]["resourceVersion"] = "2"
        with pytest.raises(controller.KubernetesError, match="409"):
            controller.look_at(api, listed, grace_s=900.0, delete=True, now=time.time())
        controller.look_around(api, grace_s=900.0, delete=True)
        controller.look_around(controller.Api(f"http://127.0.0.1:{api._parts.port}"), grace_s=0.0, delete=True)
    assert cluster.jobs == {}
    assert "Jobs are not listed: GET /apis/batch/v1/jobs" in capsys.readouterr().out


def test_only_an_idle_queue_job_with_consent_is_terminated(
    verdicts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = {"trainguard:stop-on-fire": "allowed"}
    jobs = {
        "1": {"tags": allowed, "status": "RUNNING"},
        "2": {"tags": {**allowed, "trainguard:stop-exempt": ""}, "status": "RUNNING"},
        "3": {"tags": {}, "status": "RUNNING"},
        "4": {"tags": allowed, "status": "SUCCEEDED"},
        "5": {"tags": {**allowed, "trainguard:job": "team/bert"}, "status": "RUNNING"},
        "6": {"tags": allowed, "status": "RUNNING"},
    }
    verdicts.update({f"job-{number}": document(f"job-{number}") for number in "1234"})
    verdicts["team/bert"] = document("team/bert")
    verdicts["job-6"] = document("job-6", generated_at=-900.0)
    terminated: list[str] = []

    def answer(path: str, _: Any) -> tuple[int, Any]:
        asked = json.loads(requests[-1].body)
        if path == "/v1/listjobs":
            page = list("123") if "nextToken" not in asked else list("456")
            return 200, {
                "jobSummaryList": [{"jobId": each, "jobName": f"job-{each}"} for each in page],
                **({"nextToken": "more"} if "nextToken" not in asked else {}),
            }
        if path == "/v1/describejobs":
            return 200, {"jobs": [{"jobId": each, "jobName": f"job-{each}", **jobs[each]} for each in asked["jobs"]]}
        terminated.append(asked["jobId"])
        return (500 if path != "/v1/terminatejob" else 200), {}

    with json_service(answer) as (url, requests):
        monkeypatch.setenv("AWS_ENDPOINT_URL_BATCH", url)
        assert batch_terminate.main(["--queue", "gpus", "--dry-run"]) == 0
        assert terminated == []
        assert batch_terminate.main(["--queue", "gpus"]) == 0
    assert terminated == ["1", "5"]
