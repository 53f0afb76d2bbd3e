"""A stub of the query API of Prometheus, which evaluates what is asked for over known data."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

AT = 1_800_000_000.0
# The same at all times, or by the time in epoch seconds; None where a series has no sample.
Value = float | Callable[[float], float | None]

_QUERY = re.compile(r"(?:100 (?:- 100 )?\* )?(?:100 - 100 \* )?(?:rate\()?(?P<name>\w+)\{(?P<matchers>.*?)\}")
_MATCHER = re.compile(r'(\w+)(=~|=)"((?:[^"\\]|\\.)*)"')


@dataclass
class Cluster:
    """Series with their labels; answers range queries as Prometheus does."""

    series: list[tuple[str, dict[str, str], Value]] = field(default_factory=list)

    def add(self, name: str, value: Value, **labels: str) -> None:
        self.series.append((name, labels, value))

    def node(self, name: str, gpu: Value, *, gpus: int = 2, cores: int = 2) -> None:
        """Add a node with dcgm-exporter and node exporter; CPU values are those of the whole expression."""
        for number in range(gpus):
            labels = {"gpu": str(number), "Hostname": name, "pod": "bert-0"}
            self.add("DCGM_FI_DEV_GPU_UTIL", gpu, **labels)
            self.add("DCGM_FI_DEV_FB_USED", 1_024.0, **labels)
        for core in range(cores):
            for mode, value in (("idle", 95.0), ("iowait", 1.0)):
                self.add("node_cpu_seconds_total", value, cpu=str(core), mode=mode, Hostname=name)
        self.add("node_memory_MemAvailable_bytes", 40.0, Hostname=name)

    def answer(self, path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        assert path.endswith("/api/v1/query_range")
        asked = _QUERY.match(query["query"])
        assert asked is not None, query["query"]
        matchers = [(name, kind, json.loads(f'"{text}"')) for name, kind, text in _MATCHER.findall(asked["matchers"])]
        start, end, step = (float(query[name]) for name in ("start", "end", "step"))
        count = int((end - start) / step + 1e-6) + 1
        assert count <= 11_000
        result: list[Any] = []
        for name, labels, value in self.series:
            if name != asked["name"] or not all(_agrees(labels.get(label, ""), *rest) for label, *rest in matchers):
                continue
            times = [start + number * step for number in range(count)]
            found = [(at, value(at) if callable(value) else value) for at in times]
            values = [[at, str(each)] for at, each in found if each is not None]
            if values:
                result.append({"metric": {"__name__": name, **labels}, "values": values})
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}


def _agrees(value: str, kind: str, pattern: str) -> bool:
    return value == pattern if kind == "=" else re.fullmatch(pattern, value) is not None
