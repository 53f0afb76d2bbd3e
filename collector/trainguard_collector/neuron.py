"""NeuronCores of Trainium and Inferentia, by ``neuron-monitor``."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from trainguard_collector.metrics import Sample
from trainguard_collector.parentage import end_with_parent

_USUAL_PLACE = "/opt/aws/neuron/bin/neuron-monitor"
_SHORTEST_PERIOD_S = 1.0
# Without a newer report, nothing is known of the cores.
_PERIODS_KEPT = 3.0

_MOST_BYTES = 4 * 1024 * 1024
_PIECE = 65_536
_MOST_CORES = 1_024
_ECC = {
    "ECCCorrectedErrors": ("mem_ecc_corrected", "sram_ecc_corrected"),
    "ECCUncorrectedErrors": ("mem_ecc_uncorrected", "sram_ecc_uncorrected"),
}


class Neuron:
    """A running monitor; a core is a device ``gpu<n>``, with the means of the last period."""

    def __init__(self, command: Sequence[str], faults: dict[str, str], interval_s: float) -> None:
        self._faults = faults
        self._period_s = max(interval_s, _SHORTEST_PERIOD_S)
        self._left = b""
        self._report_at: Optional[float] = None
        self._fast: list[Sample] = []
        self._slow: list[Sample] = []
        self._process = _started(command, self._period_s)
        self._out = self._process.stdout.fileno() if self._process.stdout is not None else -1
        os.set_blocking(self._out, False)

    @classmethod
    def find(cls, faults: dict[str, str], interval_s: float, devices: Path = Path("/dev")) -> "Optional[Neuron]":
        """Return a running monitor, where the node has Neuron devices; `faults` gets why not."""
        if not any(devices.glob("neuron[0-9]*")):
            return None
        command = shutil.which("neuron-monitor") or _USUAL_PLACE
        try:
            return cls([command], faults, interval_s)
        except Exception as fault:
            faults["neuron-monitor"] = f"{type(fault).__name__}: {fault}"[:200]
            return None

    def __len__(self) -> int:
        return len({sample.name for sample in self._fast if sample.dimension})

    @property
    def about(self) -> dict[str, dict[str, str]]:
        return {each.name.split(".")[0]: {"hw.vendor": "AWS"} for each in self._fast + self._slow}

    def read(self, at: float, *, with_slow: bool) -> list[Sample]:
        """Return the samples of the newest report, as long as it is not old."""
        line = self._newest_line()
        if line is not None:
            self._take(line, at)
        if self._report_at is None or at - self._report_at > _PERIODS_KEPT * self._period_s:
            return []
        return self._fast + self._slow if with_slow else list(self._fast)

    def close(self) -> None:
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)

    def _newest_line(self) -> Optional[bytes]:
        while True:
            try:
                piece = os.read(self._out, _PIECE)
            except OSError:  # nothing there yet
                break
            if not piece:
                if self._process.poll() is not None:
                    self._faults["neuron-monitor"] = f"ended with code {self._process.returncode}"
                break
            self._left = (self._left + piece)[-_MOST_BYTES:]
        *whole, self._left = self._left.split(b"\n")
        return next((line for line in reversed(whole) if line.strip()), None)

    def _take(self, line: bytes, at: float) -> None:
        try:
            report = json.loads(line)
            fast, slow = _cores(report), _devices(report)
        except Exception as fault:
            self._faults["neuron-monitor"] = f"no report: {type(fault).__name__}: {fault}"[:200]
            return
        self._faults.pop("neuron-monitor", None)
        self._report_at, self._fast, self._slow = at, fast, slow


def _started(command: Sequence[str], period_s: float) -> "subprocess.Popen[bytes]":
    metrics = [{"type": "neuroncore_counters"}, {"type": "memory_used"}]
    configuration = {
        "period": f"{round(period_s)}s",
        "neuron_runtimes": [{"tag_filter": ".*", "metrics": metrics}],
        "system_metrics": [{"type": "neuron_hw_counters", "period": f"{max(round(period_s), 10)}s"}],
    }
    file = os.memfd_create("neuron-monitor.json", 0)  # nothing is left on disk, however the sampler ends
    try:
        os.write(file, json.dumps(configuration).encode())
        return subprocess.Popen(
            [*command, "-c", f"/proc/self/fd/{file}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(file,),
            preexec_fn=end_with_parent,  # noqa: PLW1509 - no other thread is running yet
        )
    finally:
        os.close(file)


def _cores(report: Mapping[str, Any]) -> list[Sample]:
    """Return samples of each core; programs that share one add up."""
    busy: dict[int, float] = {}
    used: dict[int, float] = {}
    for runtime in report["neuron_runtime_data"] or ():
        counters = _part(runtime, "report", "neuroncore_counters", "neuroncores_in_use")
        for core, about in counters.items():
            _add(busy, core, about.get("neuroncore_utilization"))
        memory = _part(
            runtime, "report", "memory_used", "neuron_runtime_used_bytes", "usage_breakdown", "neuroncore_memory_usage"
        )
        for core, parts in memory.items():
            for part in parts.values():
                _add(used, core, part)
    samples = [Sample("gpu", f"gpu{core}", "GPUUtilization", min(value, 100.0)) for core, value in busy.items()]
    return samples + [Sample("gpu", f"gpu{core}.MemoryUsedBytes", "", value) for core, value in used.items()]


def _devices(report: Mapping[str, Any]) -> list[Sample]:
    samples = []
    for device in _part(report, "system_data", "neuron_hw_counters").get("neuron_devices") or ():
        number = int(device["neuron_device_index"])
        for name, fields in _ECC.items():
            counts = [device[field] for field in fields if isinstance(device.get(field), int)]
            if counts:
                samples.append(Sample("gpu", f"neuron{number}.{name}", "", float(sum(counts))))
    return samples


def _add(totals: dict[int, float], core: str, value: object) -> None:
    number = int(core)
    if 0 <= number < _MOST_CORES and isinstance(value, (int, float)) and value >= 0:
        totals[number] = totals.get(number, 0.0) + value


def _part(of: Any, *names: str) -> dict[str, Any]:
    """Return what lies below these names, else an empty mapping."""
    for name in names:
        of = of.get(name) if isinstance(of, dict) else None
    return of if isinstance(of, dict) else {}
