"""Points as text of Prometheus, format 0.0.4, by OpenTelemetry's rules; and the server that Prometheus reads."""

import http.server
import re
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trainguard_collector.exports.points import COUNTER, GAUGE, Metric, Point
from trainguard_collector.settings import SettingError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MOST_AT_ONCE = 8
_ANSWER_S = 5.0
_UNITS = {"By": "bytes", "W": "watts", "Cel": "celsius"}
_ADDRESS = re.compile(r"(?:(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>\d{1,5})")


def address_of(text: str) -> "tuple[str, int]":
    """Return host and port of ``TRAINGUARD_PROMETHEUS``; this machine alone reads a port without a host."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > 65_535:
        raise SettingError("TRAINGUARD_PROMETHEUS", text[:100], "a port such as 9400, or 0.0.0.0:9400")
    return (found["host"] or "127.0.0.1").strip("[]"), int(found["port"])


def text(points: Iterable[Point], labels: "Mapping[str, str]", resource: "Mapping[str, str]") -> str:
    """Return the exposition; ``labels`` are those of each sample, ``resource`` those of ``target_info``."""
    families: dict[str, tuple[Metric, list[str]]] = {}
    for point in points:
        name = metric_name(point.metric)
        lines = families.setdefault(name, (point.metric, []))[1]
        value = str(int(point.value)) if point.metric.is_whole else repr(float(point.value))
        lines.append(f"{name}{_labels({**labels, **point.attributes})} {value}")
    parts = [f"# HELP target_info Target metadata\n# TYPE target_info gauge\ntarget_info{_labels(resource)} 1\n"]
    for name, (metric, lines) in sorted(families.items()):
        about = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
        kind = "counter" if metric.kind == COUNTER else "gauge"
        unit = _unit(metric)
        said = f"# UNIT {name} {unit}\n" if unit else ""
        parts.append(f"# HELP {name} {about}\n# TYPE {name} {kind}\n{said}" + "".join(f"{line}\n" for line in lines))
    return "".join(parts)


def metric_name(metric: Metric) -> str:
    unit = _unit(metric)
    name = _plain(metric.name)
    if unit and unit not in name.split("_"):
        name = f"{name}_{unit}"
    return f"{name}_total" if metric.kind == COUNTER and not name.endswith("_total") else name


def _unit(metric: Metric) -> str:
    return "ratio" if metric.unit == "1" and metric.kind == GAUGE else _UNITS.get(metric.unit, "")


def _plain(name: str) -> str:
    plain = re.sub(r"_+", "_", re.sub(r"[^a-zA-Z0-9_]", "_", name))
    return f"_{plain}" if plain[:1].isdigit() else plain


def _labels(attributes: "Mapping[str, object]") -> str:
    """Return labels in braces; values of attributes whose names become one are joined, as the rules say."""
    found: dict[str, list[str]] = {}
    for name in sorted(attributes):
        if name:
            found.setdefault(_plain(name), []).append(str(attributes[name]))
    values = {name: ";".join(each) for name, each in found.items()}
    escaped = (
        '{}="{}"'.format(name, value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"'))
        for name, value in values.items()
    )
    return "{" + ",".join(escaped) + "}"


class Server(http.server.ThreadingHTTPServer):
    """Answers ``/metrics`` in threads that end with the process; a full house is turned away."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: "tuple[str, int]", body: Callable[[], str]) -> None:
        self.body = body
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Answer)

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="prometheus", daemon=True).start()

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # that of HTTP asks for the host's name, which may take long
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        late = threading.Timer(_ANSWER_S, _cut, [request])  # however slowly its bytes come
        late.daemon = True
        late.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a reader that leaves is no fault of the training."""


def _cut(request: Any) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "trainguard-collector", ""
    timeout = _ANSWER_S

    def do_GET(self) -> None:
        if self.path.split("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = self.server.body().encode("utf-8", "replace")
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log into the training's."""
