"""The demonstration of the collector: the loop that stands in for a GPU, and what must have been seen."""

import importlib
import struct
from pathlib import Path

import numpy as np
import pytest

from demo.collect.run import FIRING_RULE, judge, verdict
from demo.collect.train import Loader, Network

NOTHING_LOST = {"dropped_minutes": 0, "lost_snapshots": 0, "failed_uploads": 0, "outcome": "Completed"}


def test_given_batches_when_trained_then_the_loss_falls(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    loader, network = Loader(tmp_path, random), Network(random)
    losses = [network.step(*loader.batch(number)) for number in range(40)]
    assert np.mean(losses[-8:]) < 0.7 * np.mean(losses[:8])


def test_network_computing_half_the_time_is_a_half_busy_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = importlib.import_module("demo.collect.stand_in.pynvml")
    device, now = tmp_path / "device", 100.0
    monkeypatch.setenv("DEMO_DEVICE", str(device))
    monkeypatch.setattr("time.monotonic", lambda: now)
    bindings._seen.clear()
    bindings._seen.append((now, 0.0))
    shares = []
    for number in range(1, 21):
        now = 100.0 + 0.2 * number
        device.write_bytes(struct.pack("dd", 0.1 * number, 0.0))
        shares.append(bindings.nvmlDeviceGetUtilizationRates(0).gpu)
    assert shares == [50] * 20
    now += 0.2
    device.write_bytes(struct.pack("dd", 2.0, now - 0.2))  # it is computing
    assert bindings.nvmlDeviceGetUtilizationRates(0).gpu == 60


def test_observed_loss_or_missing_finding_is_a_miss() -> None:
    rows, alerts = {FIRING_RULE: {"Status": "FIRED"}}, [{"rule": "CPUBottleneck"}, {"rule": FIRING_RULE}]
    report = {"fired": [FIRING_RULE], "verdict": {"health": "ill", "change": "repair", "cost": None}}
    good = judge("job", rows=rows, report=report, alerts=alerts, status=NOTHING_LOST)
    assert all(check.holds for check in good)
    assert verdict(report) == "ill\nrepair"
    lossy = judge("job", rows=rows, report=report, alerts=alerts, status={**NOTHING_LOST, "dropped_minutes": 1})
    assert [check.what for check in lossy if not check.holds] == ["what the collector lost"]
    none = judge("job", rows={}, report=None, alerts=[], status={})
    assert not any(check.holds for check in none)
