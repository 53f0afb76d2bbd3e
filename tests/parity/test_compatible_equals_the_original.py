"""What ``compatible`` replays of recorded profiles, against what the original's ProfilerReport wrote for them."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.parity.recording import Case, unpack
from trainguard.managed.replay import replay

RECORDING = Path(__file__).parent / "recorded_cases.xz"
CASES = (
    "cpu_bottleneck",
    "dl_few",
    "dl_many",
    "exact_ticks",
    "fluctuate",
    "healthy",
    "idle_gpu",
    "imbalance",
    "io_bottleneck",
    "low_gpu",
    "mem_jump",
    "mem_ramp",
    "mem_saw_low_patience",
    "ms100",
    "no_framework",
    "small_batch",
    "steps_eval",
    "steps_late",
    "steps_outlier",
    "steps_outlier_mode",
    "trigger_all",
    "two_nodes",
    "two_procs",
)


@cache
def recorded() -> dict[str, Case]:
    return {case.name: case for case in unpack(RECORDING.read_bytes())}


def differences(expected: Any, actual: Any, path: str) -> list[str]:
    """Say where two JSON values differ: keys and their order, texts and whole numbers exactly, others to 1e-9."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if list(expected) != list(actual):
            return [f"{path}: keys {list(actual)}, expected {list(expected)}"]
        return [text for key in expected for text in differences(expected[key], actual[key], f"{path}.{key}")]
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return [f"{path}: {len(actual)} items, expected {len(expected)}"]
        pairs = enumerate(zip(expected, actual, strict=True))
        return [text for index, pair in pairs for text in differences(*pair, f"{path}[{index}]")]
    same = expected == actual and isinstance(expected, bool) == isinstance(actual, bool)
    if not same and isinstance(expected, float) and isinstance(actual, float):
        same = math.isclose(expected, actual, rel_tol=1e-9, abs_tol=0.0)
    return [] if same else [f"{path}: {actual!r}, expected {expected!r}"]


def test_recording_holds_these_cases() -> None:
    assert tuple(sorted(recorded())) == CASES


@pytest.mark.parametrize("name", CASES)
def test_replayed_reports_equal_the_originals(name: str) -> None:
    case = recorded()[name]

    replayed = replay(case.names(), case.read, case.settings)

    reports = json.loads(json.dumps(replayed.reports))
    assert set(reports) == set(case.expected)
    assert [text for rule in reports for text in differences(case.expected[rule], reports[rule], rule)] == []
