"""Points to a collector of OpenTelemetry: OTLP 1 over HTTP as JSON, with the variables of its specification."""

import gzip
import json
import random
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Optional
from urllib.parse import unquote, urlsplit

from trainguard_collector.exports.points import COUNTER, GAUGE, Point
from trainguard_collector.settings import SettingError

_PREFIX = "OTEL_EXPORTER_OTLP_"
_INTERVAL_S, _TIMEOUT_S, _LONGEST_WAIT_S = 15.0, 10.0, 300.0
_MOST_ANSWER = 65_536
_CUMULATIVE = 2


class Target(NamedTuple):
    """Where the points go; ``url``, ``headers`` and ``resource`` may hold secrets, and are in no message."""

    url: str
    headers: "dict[str, str]"
    interval_s: float
    timeout_s: float
    is_compressed: bool
    certificate: str


def target_of(environment: "Mapping[str, str]") -> Target:
    """Return what ``TRAINGUARD_OTLP`` (1 or a URL) and OpenTelemetry's variables say. Raises SettingError."""
    given = environment["TRAINGUARD_OTLP"].strip()
    whole = environment.get(f"{_PREFIX}METRICS_ENDPOINT", "").strip() if given == "1" else ""
    base = environment.get(f"{_PREFIX}ENDPOINT", "").strip() or "http://localhost:4318" if given == "1" else given
    url = whole or f"{base.rstrip('/')}/v1/metrics"
    if not _is_url(url):  # its value may hold a password
        raise SettingError("TRAINGUARD_OTLP", "no URL", "http://host:4318, or 1 for OTEL_EXPORTER_OTLP_ENDPOINT")
    return Target(
        url,
        {"User-Agent": "trainguard-collector", **pairs(_of(environment, "HEADERS"))},
        _seconds(environment, "OTEL_METRIC_EXPORT_INTERVAL", _INTERVAL_S),
        min(_seconds(environment, f"{_PREFIX}TIMEOUT", _TIMEOUT_S, f"{_PREFIX}METRICS_TIMEOUT"), 60.0),
        _of(environment, "COMPRESSION") == "gzip",
        _of(environment, "CERTIFICATE"),
    )


def resource_of(environment: "Mapping[str, str]", own: "Mapping[str, str]") -> "dict[str, str]":
    """Return the resource's attributes: ours, those of the environment over them, the service's name over all."""
    found = {**own, **pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""))}
    name = environment.get("OTEL_SERVICE_NAME", "")
    return {**found, "service.name": name} if name else found


def pairs(text: str) -> "dict[str, str]":
    """Return ``key=value,key=value``, decoded; nothing where any of it cannot be read, as the specification says."""
    found: dict[str, str] = {}
    for part in filter(str.strip, text.split(",")):
        name, is_pair, value = part.partition("=")
        if not (is_pair and name.strip()):
            return {}
        try:
            found[unquote(name.strip(), errors="strict")] = unquote(value.strip(), errors="strict")
        except UnicodeDecodeError:
            return {}
    return found


def request(points: Iterable[Point], resource: "Mapping[str, str]", version: str) -> "dict[str, Any]":
    """Return an ``ExportMetricsServiceRequest``; integers of 64 bits are texts in JSON of protocol buffers."""
    metrics: dict[str, dict[str, Any]] = {}
    for point in points:
        metric = point.metric
        made = metrics.get(metric.name)
        if made is None:
            kind = "gauge" if metric.kind == GAUGE else "sum"
            of_sum = {"aggregationTemporality": _CUMULATIVE, "isMonotonic": metric.kind == COUNTER}
            data = {"dataPoints": [], **(of_sum if kind == "sum" else {})}
            made = {"name": metric.name, "description": metric.help, "unit": metric.unit, kind: data}
            metrics[metric.name] = made
        value = {"asInt": str(int(point.value))} if metric.is_whole else {"asDouble": float(point.value)}
        start = {} if point.since is None else {"startTimeUnixNano": _nano(point.since)}
        one = {"attributes": _attributes(point.attributes), **start, "timeUnixNano": _nano(point.at), **value}
        made["gauge" if metric.kind == GAUGE else "sum"]["dataPoints"].append(one)
    scope = {"scope": {"name": "trainguard_collector", "version": version}, "metrics": list(metrics.values())}
    return {"resourceMetrics": [{"resource": {"attributes": _attributes(resource)}, "scopeMetrics": [scope]}]}


class Pusher:
    """Sends the newest points at an interval, in a thread; waits longer after failures, which are counted."""

    def __init__(self, target: Target, body: "Callable[[], dict[str, Any]]", say: Callable[[str], None]) -> None:
        self._target, self._body, self._say = target, body, say
        context = ssl.create_default_context(cafile=target.certificate) if target.certificate else None
        # The headers go where the user says, and follow no answer to another host.
        self._opener = urllib.request.build_opener(_Stay(), urllib.request.HTTPSHandler(context=context))
        self._over = threading.Event()
        self._in_a_row = 0
        self.failures = 0
        self.fault: Optional[str] = None
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Send once more; `join` waits for it."""
        self._over.set()

    def join(self, within_s: float) -> None:
        self._thread.join(within_s)

    def push(self) -> bool:
        """Send once; whether all was taken."""
        try:
            rejected = self._send(json.dumps(self._body(), separators=(",", ":")).encode())
            fault = f"{rejected} points rejected" if rejected else None
        except OSError as failure:  # its text has an errno or a status, never a header
            fault = f"{type(failure).__name__}: {failure}"[:200]
        except Exception as failure:
            fault = type(failure).__name__
        if fault is None:
            self._in_a_row = 0
            return True
        self._in_a_row += 1
        self.failures += 1
        if self.fault is None:
            self._say(f"OTLP: {fault}; it is tried again, and said once")
        self.fault = fault
        return False

    def _run(self) -> None:
        while not self._over.wait(self.wait_s()):
            self.push()
        self.push()

    def wait_s(self) -> float:
        longest = max(_LONGEST_WAIT_S, self._target.interval_s)
        wait_s = min(self._target.interval_s * 2.0 ** min(self._in_a_row, 16), longest)
        return wait_s * random.uniform(0.5, 1.0) if self._in_a_row else wait_s  # noqa: S311 - spreads retries, keeps no secret

    def _send(self, body: bytes) -> int:
        target = self._target
        headers = {**target.headers, "Content-Type": "application/json"}
        if target.is_compressed:
            body, headers["Content-Encoding"] = gzip.compress(body, 5), "gzip"
        asked = urllib.request.Request(target.url, body, headers, method="POST")  # noqa: S310 - http and https alone
        with self._opener.open(asked, timeout=target.timeout_s) as answer:
            until = time.monotonic() + target.timeout_s
            text = b""
            while len(text) < _MOST_ANSWER and time.monotonic() < until and (piece := answer.read1(8192)):
                text += piece
        try:
            return int(json.loads(text)["partialSuccess"]["rejectedDataPoints"])
        except (ValueError, TypeError, LookupError):
            return 0  # an empty answer is a full success


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
        )
    except ValueError:
        return False


def _of(environment: "Mapping[str, str]", name: str) -> str:
    return environment.get(f"{_PREFIX}METRICS_{name}") or environment.get(f"{_PREFIX}{name}", "")


def _seconds(environment: "Mapping[str, str]", name: str, default: float, first: str = "") -> float:
    """Return milliseconds of a variable as seconds; the default for what is no positive number."""
    text = environment.get(first, "") or environment.get(name, "")
    return int(text) / 1000.0 if text.isdecimal() and int(text) else default


def _nano(at: float) -> str:
    return str(int(at * 1e9))


def _attributes(found: "Mapping[str, Any]") -> "list[dict[str, Any]]":
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in found.items()
    ]
