"""The sampler of a Kubernetes node, against an API server of ours: a job from its pods' start to their end."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.clusters.test_pods import UID, pod
from tests.collector.runs import until
from trainguard_collector.kubernetes.api import Api, ApiError
from trainguard_collector.kubernetes.watch import NodeSampler, first_process
from trainguard_collector.process import LEFT
from trainguard_collector.settings import Settings
from trainguard_collector.spawn import NODE_SETTINGS

RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {"startedAt": "2026-11-21T08:00:00Z"}}}]}


class Server:
    """An API server that knows pods of nodes; ``asked`` has the paths of its requests."""

    def __init__(self, folder: Path) -> None:
        self.pods: list[dict[str, Any]] = []
        self.status, self.asked = 200, list[str]()
        (folder / "token").write_text("secret\n")
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                assert self.headers["Authorization"] == "Bearer secret"
                query = parse_qs(urlsplit(self.path).query)
                assert query["fieldSelector"] == ["spec.nodeName=node-1"]
                body = json.dumps({"kind": "PodList", "items": server.pods}).encode()
                self.send_response(server.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        self.api = Api(f"http://127.0.0.1:{self.http.server_port}", folder)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.http.shutdown()
    made.http.server_close()


class Started:
    """What stands for a sampler's process: the word that it got, and whether it has ended."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.code, self.said = settings, None, b""
        self.stdin = self

    def write(self, word: bytes) -> None:
        self.said += word

    def close(self) -> None:
        pass

    def poll(self) -> int | None:
        return 0 if self.said else self.code


class Node:
    """A node's sampler with processes of ours."""

    def __init__(self, server: Server, folder: Path, **variables: str) -> None:
        self.gpus: Any = {("nlp", "train-0-x7k2p"): ["GPU-1"]}
        self.started: list[Any] = []
        environment = {"TRAINGUARD_OUTPUT": str(folder / "output"), "NODE_NAME": "node-1", **variables}
        environment["TRAINGUARD_CGROUP"] = str(folder / "cgroup")

        def allocated() -> Any:
            if isinstance(self.gpus, Exception):
                raise self.gpus
            return self.gpus

        def spawn(settings: Settings) -> Any:
            self.started.append(Started(settings))
            return self.started[-1]

        self.sampler = NodeSampler(lambda: server.api.pods("node-1"), allocated, environment, spawn)


def test_pod_gets_one_sampler_with_its_gpus_and_group(server: Server, tmp_path: Path) -> None:
    node = Node(server, tmp_path, TRAINGUARD_TAGS='{"cluster": "a"}')
    group = tmp_path / "cgroup" / "kubepods.slice" / f"kubepods-pod{UID.replace('-', '_')}.slice"
    (group / "c1").mkdir(parents=True)
    (tmp_path / "cgroup/cgroup.controllers").touch()
    (group / "cgroup.procs").write_text("")
    (group / "c1/cgroup.procs").write_text("0\n417\n418\n")
    server.pods = [pod(status={**RUNNING, "qosClass": "Guaranteed"}, settings='{"evaluate": "yes"}')]
    node.sampler.look()
    node.sampler.look()
    (started,) = node.started
    found = started.settings
    assert (found.gpus, found.network_of, found.began_at, found.is_told) == (["GPU-1"], 417, 1795248000.0, True)
    assert (found.job_settings, found.tags) == ({"evaluate": "yes"}, {"cluster": "a"})
    assert first_process(tmp_path / "cgroup", ["none"]) is None


def test_sampler_ends_with_its_pod_and_is_not_started_again(server: Server, tmp_path: Path) -> None:
    node = Node(server, tmp_path)
    server.pods = [pod(status=RUNNING)]
    node.sampler.look()
    server.pods = [pod(status={"phase": "Succeeded"})]
    node.sampler.look()
    server.pods = [pod(status=RUNNING)]  # a stale answer
    node.sampler.look()
    assert [each.said for each in node.started] == [b"exit 0\n"]


def test_deleted_pod_is_stopped_and_a_silent_server_ends_nothing(server: Server, tmp_path: Path) -> None:
    node = Node(server, tmp_path)
    server.pods = [pod(status=RUNNING)]
    node.sampler.look()
    server.status = 500
    node.sampler.look()
    assert node.started[0].said == b""
    server.status, server.pods = 200, []
    node.sampler.look()
    assert node.started[0].said == b"stopped\n"


def test_sampler_that_fails_is_started_again_a_few_times(server: Server, tmp_path: Path) -> None:
    node = Node(server, tmp_path)
    server.pods = [pod(status=RUNNING)]
    for _ in range(7):
        node.sampler.look()
        node.started[-1].code = 1
    assert len(node.started) == 4


@pytest.mark.parametrize(
    ("gpus", "limits", "count"),
    [
        (OSError("no socket"), {"nvidia.com/gpu": "1"}, 0),
        ({}, {"nvidia.com/gpu": "1"}, 0),
        ({}, {"amd.com/gpu": "8"}, 1),
    ],
)
def test_pod_waits_until_it_is_known_which_gpus_it_has(
    gpus: Any, limits: dict[str, str], count: int, server: Server, tmp_path: Path
) -> None:
    node = Node(server, tmp_path)
    node.gpus = gpus
    server.pods = [pod(limits=limits, status=RUNNING)]
    node.sampler.look()
    assert len(node.started) == count
    node.gpus = {("nlp", "train-0-x7k2p"): ["GPU-1"]}
    node.sampler.look()
    assert len(node.started) == 1


@pytest.mark.parametrize(
    "annotations", [{"tags": "[1]"}, {"tags": "[" * 100_000}, {"nodes": "9" * 5_000}], ids=["kind", "depth", "number"]
)
def test_unusable_annotation_leaves_other_pods_sampled(
    annotations: dict[str, Any], server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(server, tmp_path)
    good = pod(status=RUNNING)
    bad = pod(status=RUNNING, name="bad", **annotations)
    bad["metadata"]["uid"] = "other"
    node.gpus[("nlp", "bad")] = ["GPU-2"]
    server.pods = [bad, good]
    node.sampler.look()
    node.sampler.look()
    assert [each.settings.identity.node for each in node.started] == ["train-0-x7k2p"]
    assert capsys.readouterr().err.count("nlp/bad") == 1


def test_node_that_starts_no_process_now_tries_again(server: Server, tmp_path: Path) -> None:
    node = Node(server, tmp_path)
    server.pods = [pod(status=RUNNING)]
    spawn = node.sampler._spawn

    def fails(_: Settings) -> Any:
        raise BlockingIOError("fork")

    node.sampler._spawn = fails
    node.sampler.look()
    node.sampler._spawn = spawn
    node.sampler.look()
    assert len(node.started) == 1


def test_stopped_node_sampler_leaves_its_jobs_open(server: Server, tmp_path: Path) -> None:
    node, stopping = Node(server, tmp_path), threading.Event()
    server.pods = [pod(status=RUNNING)]
    thread = threading.Thread(target=node.sampler.run, args=(stopping, tmp_path / "alive"))
    thread.start()
    until((tmp_path / "alive").exists)
    stopping.set()
    thread.join(10)
    assert [each.said for each in node.started] == [f"{LEFT}\n".encode()]


def test_only_named_namespaces_are_asked_for(server: Server) -> None:
    server.pods = [pod()]
    assert len(server.api.pods("node-1", ["a", "b/c"])) == 2
    assert [urlsplit(path).path for path in server.asked] == [
        "/api/v1/namespaces/a/pods",
        "/api/v1/namespaces/b%2Fc/pods",
    ]
    server.status = 403
    with pytest.raises(ApiError, match="status 403"):
        server.api.pods("node-1")


@pytest.mark.timeout(60)
def test_job_goes_on_under_the_next_sampler_and_ends_once(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NODE_SETTINGS, "")  # what starts a sampler sets it
    output = tmp_path / "output"
    variables = {"TRAINGUARD_OUTPUT": str(output), "NODE_NAME": "node-1", "TRAINGUARD_SPOOL": str(tmp_path / "spool")}
    variables |= {"TRAINGUARD_INTERVAL_MS": "100", "TRAINGUARD_FINISH_S": "10"}

    def node() -> NodeSampler:
        return NodeSampler(lambda: server.api.pods("node-1"), dict, variables)

    server.pods = [pod(limits={}, collect="true", status=RUNNING)]
    server.pods[0]["spec"]["containers"][0]["resources"]["limits"] = {"amd.com/gpu": "1"}
    first, stopping = node(), threading.Event()
    first.look()
    (observed,) = first.observed.values()
    folder = output / observed.settings.identity.job
    until(lambda: bool(list(folder.glob("collector/*.status.json"))))
    stopping.set()
    first.run(stopping, tmp_path / "alive")
    job = json.loads((folder / "job.json").read_bytes())
    assert (job["status"], "outcome" in status(folder)) == ("InProgress", False)
    second = node()
    second.look()
    time.sleep(1.0)
    server.pods = [{**server.pods[0], "status": {"phase": "Succeeded"}}]

    def is_over() -> bool:
        second.look()
        return not second.observed

    until(is_over)
    job = json.loads((folder / "job.json").read_bytes())
    assert (job["status"], job["platform"], status(folder)["outcome"]) == ("Completed", "kubernetes", "Completed")
    assert (folder / "profiler-output/system/training_job_end.ts").exists()


def status(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("collector/*.status.json")
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found
