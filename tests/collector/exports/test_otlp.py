"""Points to a receiver of OTLP, over a real socket."""

import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collector.runs import Runs
from trainguard_collector.exports.otlp import Pusher, pairs, request, resource_of, target_of
from trainguard_collector.exports.outlets import Outlets
from trainguard_collector.exports.points import COUNTER, GAUGE, Metric, Point
from trainguard_collector.metrics import Sample
from trainguard_collector.names import Identity
from trainguard_collector.settings import SettingError

SECRET = "s3cr3t-of-the-header"


class Receiver(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.status, self.answer = 200, b"{}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.got.append((self.path, {key.lower(): value for key, value in self.headers.items()}, body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    do_GET = do_POST  # noqa: N815 - the name is http.server's

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.shutdown()
    receiver.server_close()


def pusher(environment: dict[str, str], said: list[str]) -> Pusher:
    return Pusher(target_of(environment), lambda: {"resourceMetrics": []}, said.append)


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"TRAINGUARD_OTLP": "https://c:4318/"}, "https://c:4318/v1/metrics"),
        ({"TRAINGUARD_OTLP": "1"}, "http://localhost:4318/v1/metrics"),
        ({"TRAINGUARD_OTLP": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c/base/"}, "http://c/base/v1/metrics"),
        (
            {
                "TRAINGUARD_OTLP": "1",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m/as/it/is",
            },
            "http://m/as/it/is",
        ),
    ],
)
def test_endpoint_is_that_of_the_specification(environment: dict[str, str], url: str) -> None:
    assert target_of(environment).url == url


@pytest.mark.parametrize("wrong", ["c:4318", "file:///etc/passwd", "http://", f"http://u:{SECRET}@c", "http://c:99999"])
def test_what_is_no_endpoint_is_said_without_its_value(wrong: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SettingError):
        target_of({"TRAINGUARD_OTLP": wrong})
    outlets = Outlets({"TRAINGUARD_OTLP": wrong}, Identity("bert-1", "n"), 0.5)
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert SECRET not in said + outlets.faults["otlp"]


def test_pairs_are_decoded_or_all_left_out() -> None:
    assert pairs(" a=1, b%2Cc = x%20y%3D ,,d=e=f") == {"a": "1", "b,c": "x y=", "d": "e=f"}
    assert pairs("a=1,b") == pairs("a=%ff") == pairs("=1") == pairs("") == {}
    environment = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=r,team=vision", "OTEL_SERVICE_NAME": "s"}
    assert resource_of(environment, {"service.name": "own"}) == {"service.name": "s", "team": "vision"}


def test_request_is_json_of_the_protocol() -> None:
    made = [
        Point(Metric("hw.gpu.io", COUNTER, "By", "Bytes."), {"hw.id": "g", "cpu.logical_number": 3}, 2.0**53, 2.5, 1.5),
        Point(Metric("hw.power", GAUGE, "W", "Power."), {}, 1.5, 2.5),
        Point(Metric("hw.power", GAUGE, "W", "Power."), {}, 2.5, 2.5),
    ]
    (of_resource,) = request(made, {"service.name": "s"}, "1.0.0")["resourceMetrics"]
    assert of_resource["resource"] == {"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]}
    (scope,) = of_resource["scopeMetrics"]
    assert scope["scope"] == {"name": "trainguard_collector", "version": "1.0.0"}
    io, power = scope["metrics"]
    assert io == {
        "name": "hw.gpu.io",
        "description": "Bytes.",
        "unit": "By",
        "sum": {
            "aggregationTemporality": 2,
            "isMonotonic": True,
            "dataPoints": [
                {
                    "attributes": [
                        {"key": "hw.id", "value": {"stringValue": "g"}},
                        {"key": "cpu.logical_number", "value": {"intValue": "3"}},
                    ],
                    "startTimeUnixNano": "1500000000",
                    "timeUnixNano": "2500000000",
                    "asInt": "9007199254740992",
                }
            ],
        },
    }
    assert [each["asDouble"] for each in power["gauge"]["dataPoints"]] == [1.5, 2.5]


def test_newest_samples_arrive_with_headers_and_at_the_end(receiver: Receiver) -> None:
    environment = {
        "TRAINGUARD_OTLP": receiver.url,
        "OTEL_METRIC_EXPORT_INTERVAL": "20",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=other",
        "OTEL_EXPORTER_OTLP_METRICS_HEADERS": f"api-key={SECRET}%3D",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_RESOURCE_ATTRIBUTES": "team=vision",
    }
    outlets = Outlets(environment, Identity("bert-1", "node-1"), 0.5)
    outlets.take([Sample("gpu", "gpu0", "GPUUtilization", 40.0)], 1.0, float("inf"), dict)
    outlets.close()
    outlets.join()
    path, headers, body = receiver.got[-1]
    assert (path, headers["content-type"], headers["api-key"]) == (
        "/v1/metrics",
        "application/json",
        f"{SECRET}=",
    )
    (of_resource,) = json.loads(gzip.decompress(body))["resourceMetrics"]
    resource = {each["key"]: each["value"]["stringValue"] for each in of_resource["resource"]["attributes"]}
    assert (resource["trainguard.job"], resource["trainguard.node"], resource["team"]) == ("bert-1", "node-1", "vision")
    (metric,) = of_resource["scopeMetrics"][0]["metrics"]
    assert metric["gauge"]["dataPoints"][0]["asDouble"] == 0.4
    assert outlets.faults == {}


def test_sampler_of_a_command_pushes_although_the_port_is_taken(receiver: Receiver, tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.environment.update(
        TRAINGUARD_PROMETHEUS=str(receiver.server_port),
        TRAINGUARD_OTLP=receiver.url,
        OTEL_EXPORTER_OTLP_HEADERS=f"api-key={SECRET}",
    )
    process = runs.wrap("sleep", "1")
    arguments = " ".join(runs.sampler(process).cmdline())
    said = process.communicate()[1]
    assert (said.count("no prometheus"), process.returncode) == (1, 0)
    assert "Address already in use" in str(runs.status["errors"])
    _, headers, body = receiver.got[-1]
    assert headers["api-key"] == SECRET
    assert SECRET not in f"{said} {arguments} {runs.status}"
    metrics = json.loads(body)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    assert {"system.cpu.utilization", "system.memory.utilization"} <= {each["name"] for each in metrics}


def wrong_answers() -> "list[tuple[int, bytes]]":
    rejected = b'{"partialSuccess": {"rejectedDataPoints": "4", "errorMessage": "no"}}'
    return [(503, b""), (401, b"{}"), (302, b""), (200, rejected)]


@pytest.mark.parametrize(("status", "answer"), wrong_answers())
def test_failures_are_counted_and_said_once(receiver: Receiver, status: int, answer: bytes) -> None:
    said: list[str] = []
    sends = pusher({"TRAINGUARD_OTLP": receiver.url, "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={SECRET}"}, said)
    receiver.status, receiver.answer = status, answer
    assert [sends.push(), sends.push()] == [False, False]
    assert (sends.failures, len(said), len(receiver.got)) == (2, 1, 2)
    assert {path for path, _, _ in receiver.got} == {"/v1/metrics"}
    receiver.status, receiver.answer = 200, b""
    assert sends.push()
    assert sends.failures == 2


@pytest.mark.parametrize("header", [f"api-key=a%0Ab{SECRET}", f"api%20key%0A={SECRET}", f"key=%E2%82%AC{SECRET}"])
def test_no_message_has_a_header(receiver: Receiver, header: str) -> None:
    said: list[str] = []
    sends = pusher({"TRAINGUARD_OTLP": receiver.url, "OTEL_EXPORTER_OTLP_HEADERS": header}, said)
    sends.push()
    assert SECRET not in f"{said} {sends.fault}"


def test_wait_grows_after_failures_and_is_the_interval_otherwise() -> None:
    waits: list[Any] = []
    sends = pusher({"TRAINGUARD_OTLP": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}, [])
    for _ in range(8):
        waits.append(sends.wait_s())
        sends.push()
    assert waits[0] == 15.0
    assert all(7.5 * 2.0**n <= wait <= 15.0 * 2.0**n for n, wait in enumerate(waits[1:5], 1))
    assert 150.0 <= waits[-1] <= 300.0
