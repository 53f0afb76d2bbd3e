"""Writes small jobs with further series of their GPUs: what a GPU shows in each minute, a sample every ten seconds."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

START = 1_780_272_000.0
EVERY_S, NODE = 10.0, "algo-1"

# Values by metric; None, or a metric that is absent, is not sampled.
Shows = Mapping[str, float | None]


def write_device_job(shows: Callable[[int, int, int], Shows], root: Path, *, gpus: int, minutes: int) -> Path:
    """Write the folder of a job: ``shows`` says what a GPU shows in a minute, and in which of its six samples."""
    folder = root / "devices"
    hour = folder / "profiler-output" / "system" / "incremental" / "2026060100"
    hour.mkdir(parents=True)
    for minute in range(minutes):
        lines = []
        for sample in range(round(60.0 / EVERY_S)):
            at = START + 60.0 * minute + EVERY_S * (sample + 0.5)
            lines.append(_line("cpu", "cpu0", "CPUUtilization", 20.0, at))
            for gpu in range(gpus):
                for metric, value in shows(gpu, minute, sample).items():
                    if value is not None:
                        lines.append(_of_gpu(f"gpu{gpu}", metric, value, at))
        (hour / f"{round(START) + 60 * minute}.{NODE}.json").write_text("".join(lines))
    (folder / "profiler-output" / "system" / "training_job_end.ts").write_bytes(b"")
    about = {
        "schema_version": 1,
        "name": folder.name,
        "status": "Completed",
        "instance_count": 1,
        "started_at": START,
        "ended_at": START + 60.0 * minutes,
        "profiling_interval_ms": round(1_000.0 * EVERY_S),
        "framework_metrics": False,
    }
    (folder / "job.json").write_text(json.dumps(about))
    return folder


def _of_gpu(gpu: str, metric: str, value: float, at: float) -> str:
    if metric in {"GPUUtilization", "GPUMemoryUtilization"}:
        return _line("gpu", gpu, metric, value, at)
    return _line("gpu", f"{gpu}.{metric}", "", value, at)


def _line(kind: str, name: str, dimension: str, value: float, at: float) -> str:
    about = {"Type": kind, "Name": name, "Dimension": dimension, "Value": value, "NodeId": NODE, "Timestamp": at}
    return json.dumps(about) + "\n"
