"""What Prometheus reads, over a real socket."""

import http.client
import socket
from collections.abc import Iterator

import pytest

from tests.collector.exports.exposition import parse
from trainguard_collector.exports.outlets import Outlets
from trainguard_collector.exports.points import COUNTER, GAUGE, UP_DOWN, Metric, Point
from trainguard_collector.exports.prometheus import address_of, metric_name, text
from trainguard_collector.metrics import Sample
from trainguard_collector.names import Identity
from trainguard_collector.settings import SettingError

HOSTILE = 'a"b\\c\nd{}=,# HELP x\r\u2028'
SAMPLES = [
    Sample("gpu", "gpu0", "GPUUtilization", 40.0),
    Sample("gpu", "gpu1", "GPUUtilization", 80.0),
    Sample("gpu", "gpu0.ECCCorrectedErrors", "", 3.0),
    Sample("gpu", "gpu0.Unanswered", "", 0.0),
]


@pytest.fixture(scope="module")
def outlets() -> Iterator[Outlets]:
    outlets = Outlets({"TRAINGUARD_PROMETHEUS": "0"}, Identity("bert-1", HOSTILE), 0.5)
    assert outlets.server is not None
    yield outlets
    outlets.server.shutdown()
    outlets.server.server_close()


def ask(outlets: Outlets, path: str = "/metrics", method: str = "GET") -> tuple[int, str | None, str]:
    assert outlets.server is not None
    connection = http.client.HTTPConnection("127.0.0.1", outlets.server.server_port, timeout=5)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, answer.getheader("Content-Type"), answer.read().decode()
    connection.close()
    return found


def test_scrape_is_whole_and_by_the_rules_of_opentelemetry(outlets: Outlets) -> None:
    outlets.take(SAMPLES, 1.0, float("inf"), lambda: {"gpu0": {"hw.id": HOSTILE}})
    status, kind, body = ask(outlets)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = parse(body)
    own = {"job": "bert-1", "node": HOSTILE, "hw_type": "gpu"}
    gpu0, gpu1 = ({**own, "hw_id": id_, "hw_name": name} for id_, name in ((HOSTILE, "gpu0"), ("gpu1", "gpu1")))
    del found[next(key for key in found if key[0] == "target_info")]
    assert {
        (name, frozenset(labels.items())): value
        for name, labels, value in (
            ("hw_gpu_utilization_ratio", {**gpu0, "hw_gpu_task": "general"}, 0.4),
            ("hw_gpu_utilization_ratio", {**gpu1, "hw_gpu_task": "general"}, 0.8),
            ("hw_errors_total", {**gpu0, "error_type": "corrected"}, 3.0),
            ("hw_status", {**gpu0, "hw_state": "ok"}, 1.0),
            ("hw_status", {**gpu0, "hw_state": "failed"}, 0.0),
        )
    } == found


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (Metric("hw.gpu.utilization", GAUGE, "1", ""), "hw_gpu_utilization_ratio"),
        (Metric("hw.gpu.memory.usage", UP_DOWN, "By", ""), "hw_gpu_memory_usage_bytes"),
        (Metric("hw.gpu.io", COUNTER, "By", ""), "hw_gpu_io_bytes_total"),
        (Metric("hw.errors", COUNTER, "{error}", ""), "hw_errors_total"),
        (Metric("hw.temperature", GAUGE, "Cel", ""), "hw_temperature_celsius"),
        (Metric("hw.power", GAUGE, "W", ""), "hw_power_watts"),
        (Metric("hw.status", UP_DOWN, "1", ""), "hw_status"),
    ],
)
def test_name_of_a_metric(metric: Metric, name: str) -> None:
    assert metric_name(metric) == name


def test_attributes_of_one_label_are_joined() -> None:
    resource = {"a.b": "2", "a_b": "1", "9\n}": HOSTILE, "__name__": "x", "": "left out"}
    found = parse(text([Point(Metric("m", GAUGE, "1", "two\nlines\\"), {}, 0.5, 0.0)], {}, resource))
    assert found == {
        ("target_info", frozenset({("a_b", "2;1"), ("_9_", HOSTILE), ("_name_", "x")})): 1.0,
        ("m_ratio", frozenset()): 0.5,
    }


def test_other_paths_and_methods_are_refused(outlets: Outlets) -> None:
    assert [ask(outlets, path)[0] for path in ("/", "/../etc/passwd")] == [404, 404]
    assert [ask(outlets, method=method)[0] for method in ("POST", "DELETE")] == [501, 501]


def test_silent_readers_hold_up_to_eight_places_for_a_while(outlets: Outlets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainguard_collector.exports.prometheus._ANSWER_S", 0.5)
    assert outlets.server is not None
    silent = [socket.create_connection(("127.0.0.1", outlets.server.server_port)) for _ in range(8)]
    with socket.create_connection(("127.0.0.1", outlets.server.server_port), timeout=5) as ninth:
        assert ninth.recv(1) == b""
    for each in silent:
        each.settimeout(2.0)
        assert each.recv(1) == b""
        each.close()
    assert ask(outlets)[0] == 200


def test_taken_port_is_said_once_and_no_more(outlets: Outlets, capfd: pytest.CaptureFixture[str]) -> None:
    assert outlets.server is not None
    taken = f"127.0.0.1:{outlets.server.server_port}"
    second = Outlets({"TRAINGUARD_PROMETHEUS": taken}, Identity("bert-2", "n"), 0.5)
    second.take(SAMPLES, 1.0, 1.0, dict)
    said = capfd.readouterr().err
    assert (said.count("\n"), taken in said, second.server) == (1, True, None)
    assert taken in second.faults["prometheus"]


def test_address_is_this_machine_unless_a_host_is_given() -> None:
    assert address_of("9400") == ("127.0.0.1", 9400)
    assert address_of("0.0.0.0:9400") == ("0.0.0.0", 9400)  # noqa: S104 - as a user gives it
    assert address_of("[::1]:9400") == ("::1", 9400)
    for wrong in ("", "http://x:1", "x", "70000", "::1:9400"):
        with pytest.raises(SettingError):
            address_of(wrong)
