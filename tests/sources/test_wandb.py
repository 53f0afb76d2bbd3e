"""Run files of Weights & Biases: what is read of them, and what a broken one costs."""

import io
import json
import lzma
import math
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wandb_files import HEADER, ended, history, run, run_file, stats, typed_history
from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.runs.managed import job_file
from trainguard.formats.runs.run import CUT, RunOutcome, SeriesName, SourceRun
from trainguard.formats.runs.wandb.run_file import NO_NUMBER, NO_RECORD, WRONG_CHECKSUM, read_run_file

RECORDED = Path(__file__).parents[1] / "data" / "wandb" / "run-recorded.wandb.xz"
AT = 1_800_000_000.0
GPU = SeriesName("gpu", "gpu0", "GPUUtilization")


def read(content: bytes) -> SourceRun:
    return read_run_file("run-a.wandb", io.BytesIO(content))


def of(records: Iterable[bytes]) -> SourceRun:
    return read(run_file(records))


def test_a_file_that_wandb_wrote() -> None:
    found = read(lzma.decompress(RECORDED.read_bytes()))
    assert (found.name, found.outcome, found.bad) == ("small run", RunOutcome.COMPLETED, {})
    assert found.link is not None
    assert found.link.startswith("https://wandb.ai/team/project/runs/")
    assert json.loads(job_file(found, "a"))["tags"] == {
        "trainguard:team": "team",
        "trainguard:project": "project",
        "trainguard:run-url": found.link,
    }
    assert list(found.snapshots) == ["trainer-1"]
    assert all(SeriesName("memory", "MemoryUsedPercent") in each.values for each in found.snapshots["trainer-1"])
    # The step is the one that the script counts, not W&B's own.
    assert [row.step for row in found.scalars] == [10 * number for number in range(40)]
    assert found.scalars[3].values["train/loss"] == pytest.approx(0.5)
    assert math.isnan(found.scalars[-1].values["nested.loss"])
    assert "text" not in found.scalars[0].values
    assert found.started_at is not None
    assert all(found.started_at <= row.at <= found.started_at + 60 for row in found.scalars)


def test_devices_of_one_moment_make_one_snapshot() -> None:
    records = [run()]
    for number in range(6):
        at = AT + 15 * number
        records += [stats(at, {"gpu.0.gpu": 90.0}), stats(at + 0.4, {"cpu.0.cpu_percent": 5.0, "memory_percent": 1.0})]
    [snapshots] = of(records).snapshots.values()
    assert [len(each.values) for each in snapshots] == [3] * 6
    assert [each.at for each in snapshots] == [AT + 15 * number for number in range(6)]


def test_series_have_the_names_of_profiles() -> None:
    names = {
        "gpu.3.gpu": 1.0,
        "system.gpu.3.memory": 2.0,
        "gpu.3.memoryAllocatedBytes": 3.0,
        "gpu.3.powerWatts": 4.0,
        "gpu.3.enforcedPowerLimitWatts": 700.0,
        "cpu.12.cpu_percent": 5.0,
        "disk./.usagePercent": 6.0,
        "gpu.process.0.gpu": 7.0,
        "gpu.0.gpu/l:node-7": 8.0,
    }
    snapshots = of([run(), stats(AT, names)]).snapshots
    assert snapshots["host-1"][0].values == {
        SeriesName("gpu", "gpu3", "GPUUtilization"): 1.0,
        SeriesName("gpu", "gpu3", "GPUMemoryUtilization"): 2.0,
        SeriesName("gpu", "gpu3.MemoryUsedBytes"): 3.0,
        SeriesName("gpu", "gpu3.PowerWatts"): 4.0,
        SeriesName("gpu", "gpu3.PowerLimitWatts"): 700.0,
        SeriesName("cpu", "cpu12", "CPUUtilization"): 5.0,
    }
    assert snapshots["node-7"][0].values == {GPU: 8.0}


@pytest.mark.parametrize(
    ("written", "percent"),
    [([0.5, 60.0], [0.5, 60.0]), ([0.005, 0.6], [0.5, 60.0]), ([1.0, 0.0], [100.0, 0.0])],
    ids=["percent", "shares of 1", "never above 1"],
)
@pytest.mark.parametrize("node", ["", "/l:node-7"])
def test_activity_is_in_percent_whichever_way_it_was_written(
    written: list[float], percent: list[float], node: str
) -> None:
    records = [
        stats(AT + 15 * number, {f"gpu.0.smActive{node}": value, f"gpu.0.gpu{node}": 90.0})
        for number, value in enumerate(written)
    ]
    [snapshots] = of([run(), *records]).snapshots.values()
    activity = SeriesName("gpu", "gpu0.SMActivityPercent")
    assert [each.values[activity] for each in snapshots] == pytest.approx(percent)
    assert [each.values[GPU] for each in snapshots] == [90.0] * len(written)


def test_other_measures_of_activity_have_the_names_of_profiles() -> None:
    names = {"gpu.1.smOccupancy": 40.0, "gpu.1.pipeTensorActive": 12.0, "gpu.1.dramActive": 30.0}
    [[snapshot]] = of([run(), stats(AT, {**names, "gpu.1.nvlinkTxBytes": 5.0})]).snapshots.values()
    assert {series.name: value for series, value in snapshot.values.items()} == {
        "gpu1.SMOccupancyPercent": 40.0,
        "gpu1.TensorActivityPercent": 12.0,
        "gpu1.DRAMActivityPercent": 30.0,
        "gpu1.NVLinkTransmittedBytesPerSecond": 5.0,
    }


@pytest.mark.parametrize(("share", "total"), [(25.0, 80 * 2.0**30), (0.4, None), (0.0, None), (101.0, None)])
def test_the_size_of_a_memory_is_told_from_bytes_and_percent(share: float, total: float | None) -> None:
    values = {"gpu.0.memoryAllocated": share, "gpu.0.memoryAllocatedBytes": 20 * 2.0**30}
    [[snapshot]] = of([run(), stats(AT, values)]).snapshots.values()
    assert snapshot.values.get(SeriesName("gpu", "gpu0.MemoryTotalBytes")) == total


def test_counters_of_the_network_become_rates() -> None:
    received = [0.0, 1_000.0, 4_000.0, 10.0, 20.0]
    records = (stats(AT + 10 * number, {"network.recv": value}) for number, value in enumerate(received))
    [snapshots] = of([run(), *records]).snapshots.values()
    assert [round(rate) for each in snapshots for rate in each.values.values()] == [100, 300, 1]


def test_typed_and_json_values_are_the_same() -> None:
    old = of([run(), history(4, AT, {"loss": 1.5, "broken": "NaN", "note": "a", "flag": True})])
    new = of([run(), typed_history(4, {"loss": 1.5, "_timestamp": AT})])
    assert old.scalars[0].values.keys() == {"loss", "broken", "flag"}
    assert math.isnan(old.scalars[0].values["broken"])
    assert [(row.step, row.at, row.values["loss"]) for row in (*old.scalars, *new.scalars)] == [(4, AT, 1.5)] * 2


@pytest.mark.parametrize(
    ("records", "outcome"), [([ended(0)], RunOutcome.COMPLETED), ([ended(1)], RunOutcome.FAILED), ([], None)]
)
def test_how_a_run_ended(records: list[bytes], outcome: RunOutcome | None) -> None:
    assert of([run(), stats(AT, {"gpu.0.gpu": 1.0}), *records]).outcome is outcome


def test_a_file_that_is_still_written_keeps_what_is_whole() -> None:
    whole = run_file([run(), *(stats(AT + number, {"gpu.0.gpu": 50.0}) for number in range(2_000))])
    found = read(whole[: len(whole) // 2])
    [snapshots] = found.snapshots.values()
    assert 900 < len(snapshots) < 1_100
    assert found.bad == {CUT: 1}


def test_a_damaged_block_costs_itself_and_no_other() -> None:
    whole = bytearray(run_file([run(), *(stats(AT + number, {"gpu.0.gpu": 50.0}) for number in range(2_000))]))
    whole[40_000] ^= 0xFF
    found = read(bytes(whole))
    [snapshots] = found.snapshots.values()
    assert 1_300 < len(snapshots) < 2_000
    assert found.bad[WRONG_CHECKSUM] == 1


def test_a_record_over_several_blocks() -> None:
    values = {f"metric_{number}": float(number) for number in range(5_000)}
    assert of([run(), history(1, AT, values)]).scalars[0].values == values


def test_what_is_no_record_is_counted() -> None:
    found = of([b"\xff" * 9, run(), stats(AT, {"gpu.0.gpu": "much"}), stats(AT, {"gpu.0.gpu": 3.0})])  # type: ignore[dict-item]
    assert found.bad == {NO_RECORD: 1, NO_NUMBER: 1}
    assert found.snapshots["host-1"][0].values == {GPU: 3.0}


@pytest.mark.parametrize("content", [b"", b":W&B", b"PK\x03\x04" + bytes(40), HEADER[:6] + b"\x07" + bytes(40)])
def test_another_file_is_refused(content: bytes) -> None:
    with pytest.raises(TelemetryFormatError, match=r"run file of W&B|version 7"):
        read(content)


@given(seed=st.integers(0, 2**32), cut=st.integers(0, 4_000), flips=st.integers(0, 12))
def test_no_damage_raises(seed: int, cut: int, flips: int) -> None:
    chance = random.Random(seed)
    records = [run(), *(stats(AT + n, {"gpu.0.gpu": 1.0, "x": 2.0}) for n in range(20)), history(1, AT, {"loss": 1})]
    content = bytearray(run_file(records))[: max(len(HEADER), cut)]
    for _ in range(flips if len(content) > len(HEADER) else 0):
        content[chance.randrange(len(HEADER), len(content))] ^= 1 << chance.randrange(8)
    found = read(bytes(content))
    assert all(math.isfinite(each.at) for row in found.snapshots.values() for each in row)
