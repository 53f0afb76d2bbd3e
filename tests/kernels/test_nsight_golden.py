"""Stored exports of Nsight Systems, as `nsight_exports.steps` wrote them once: a reader of today reads them alike."""

import lzma
from pathlib import Path

import pytest

from tests.support.kernel_traces import FOLDER
from tests.support.nsight_exports import GEMM, NCCL, SCHEMAS
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.nsight.reader import read_nsight


@pytest.mark.parametrize(("version", "source"), [("2019", "host"), ("2026", "gpu")])
def test_a_stored_export_has_its_numbers(version: str, source: str, tmp_path: Path) -> None:
    assert version in SCHEMAS
    file = tmp_path / "report.sqlite"
    file.write_bytes(lzma.decompress((FOLDER / f"nsight_{version}.sqlite.xz").read_bytes()))
    found = rank_profile(read_nsight("report.sqlite", file))
    assert (found.window_ns, found.busy_ns, found.compute_ns) == (3_950_000, 2_520_000, 1_600_000)
    assert (found.communication_ns, found.exposed_communication_ns, found.memory_ns) == (800_000, 800_000, 120_000)
    assert (found.synchronization_ns, found.synchronization_source) == (3_280_000, source)
    assert found.launch_delay_ns is not None
    assert (found.launch_delay_ns.median, found.launch_delay_ns.p90) == (240_000, 435_000)
    kernels = {(each.name, each.count, each.total_ns) for each in found.kernels}
    assert kernels == {(GEMM, 4, 1_600_000), (NCCL, 4, 800_000)}
    assert [step.duration_ns for step in found.steps] == [950_000] * 4
