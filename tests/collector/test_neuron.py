"""NeuronCores by ``neuron-monitor``: a program that writes reports stands in for it."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainguard_collector.metrics import Sample
from trainguard_collector.neuron import Neuron

MONITOR = """
import json, sys, time
configuration = json.load(open(sys.argv[sys.argv.index("-c") + 1]))
for line in {lines!r}:
    print(line if line else json.dumps(configuration), flush=True)
{after}
"""


def report(*runtimes: dict[str, Any], ecc: int = 0) -> str:
    device = {"neuron_device_index": 0, "mem_ecc_corrected": 2, "mem_ecc_uncorrected": ecc, "sram_ecc_uncorrected": 1}
    hardware = {"neuron_hw_counters": {"period": 10.0, "neuron_devices": [device]}}
    return json.dumps({"neuron_runtime_data": list(runtimes), "system_data": hardware})


def runtime(busy: float, used: int) -> dict[str, Any]:
    memory = {"neuroncore_memory_usage": {"1": {"tensors": used, "model_code": 10}}}
    return {
        "report": {
            "neuroncore_counters": {"neuroncores_in_use": {"1": {"neuroncore_utilization": busy}}},
            "memory_used": {"neuron_runtime_used_bytes": {"usage_breakdown": memory}},
        }
    }


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[Neuron, dict[str, str]]]]:
    started: list[Neuron] = []

    def start(*lines: str, after: str = "time.sleep(60)") -> tuple[Neuron, dict[str, str]]:
        path = tmp_path / "monitor.py"
        path.write_text(MONITOR.format(lines=lines, after=after))
        faults: dict[str, str] = {}
        started.append(Neuron([sys.executable, str(path)], faults, 0.5))
        return started[-1], faults

    yield start
    for neuron in started:
        neuron.close()


def first(neuron: Neuron, at: float) -> list[Sample]:
    for _ in range(300):
        samples = neuron.read(at, with_slow=True)
        if samples:
            return samples
        time.sleep(0.02)
    raise AssertionError("no report came")


def values(samples: list[Sample]) -> dict[tuple[str, str], float]:
    return {(sample.name, sample.dimension): sample.value for sample in samples}


def test_given_two_programs_on_a_core_when_read_then_they_add_up(start: Any) -> None:
    neuron, faults = start(report(runtime(70.0, 1_000), runtime(20.0, 500), ecc=4))
    assert values(first(neuron, 5.0)) == {
        ("gpu1", "GPUUtilization"): 90.0,
        ("gpu1.MemoryUsedBytes", ""): 1_520.0,
        ("neuron0.ECCCorrectedErrors", ""): 2.0,
        ("neuron0.ECCUncorrectedErrors", ""): 5.0,
    }
    assert ("neuron0.ECCCorrectedErrors", "") not in values(neuron.read(5.5, with_slow=False))
    assert (len(neuron), faults) == (1, {})


def test_old_neuron_report_gives_no_values(start: Any) -> None:
    neuron, _ = start(report(runtime(70.0, 0)))
    first(neuron, 5.0)
    assert neuron.read(8.0, with_slow=False)
    assert neuron.read(8.1, with_slow=False) == []


def test_given_a_monitor_that_ends_when_read_then_it_is_reported(start: Any) -> None:
    neuron, faults = start(after="sys.exit(3)")
    for _ in range(300):
        assert neuron.read(1.0, with_slow=True) == []
        if faults:
            break
        time.sleep(0.02)
    assert faults == {"neuron-monitor": "ended with code 3"}


@pytest.mark.parametrize("line", ["rubbish", "[]", '{"neuron_runtime_data": [{"report": 7}, 5]}', '{"a": 1}'])
def test_invalid_neuron_line_gives_no_values(start: Any, line: str) -> None:
    neuron, _ = start(line)
    time.sleep(0.3)
    assert neuron.read(1.0, with_slow=True) == []


def test_monitor_configuration_requests_what_is_read(start: Any) -> None:
    neuron, faults = start("")
    for _ in range(300):
        neuron.read(1.0, with_slow=True)
        if faults:
            break
        time.sleep(0.02)
    # What it wrote back is its configuration, which is no report.
    assert faults["neuron-monitor"].startswith("no report: KeyError")


def test_no_process_is_started_without_devices(tmp_path: Path) -> None:
    faults: dict[str, str] = {}
    assert (Neuron.find(faults, 0.5, tmp_path), faults) == (None, {})
    (tmp_path / "neuron0").touch()
    assert Neuron.find(faults, 0.5, tmp_path) is None
    assert "FileNotFoundError" in faults["neuron-monitor"]
