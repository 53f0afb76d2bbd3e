"""What a comparison of two profiles says is true; and the checker finds what is not."""

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.claims.kernel_compare import untrue
from tests.claims.kernel_files import Recording, read_recordings
from tests.claims.random_kernels import write_kernels_job
from trainguard.kernels.columns import Trace
from trainguard.kernels.comparison.compare import compared
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.profile import rank_profile
from trainguard.local.traces import open_traces

PAIRS = ((13, 19), (22, 24), (30, 32), (33, 37))


def beside(folders: tuple[Path, Path]) -> tuple[Recording, Recording, dict[str, Any]]:
    """Return the first trace of two jobs, and what the comparison says about them."""
    found = []
    for folder in folders:
        place = open_traces(str(folder / "kernel-traces"))
        trace = place.read(place.names[0])
        assert isinstance(trace, Trace)
        rank = msgspec.structs.replace(rank_profile(trace), rank=0)
        found.append(KernelProfiles(source=str(folder), ranks=[rank], unread={}))
    said = json.loads(msgspec.json.encode(compared(*found)))["ranks"][0]
    names = [profile.ranks[0].trace for profile in found]
    recordings = [
        next(each for each in read_recordings(folder) if each.file == name)
        for folder, name in zip(folders, names, strict=True)
    ]
    return recordings[0], recordings[1], said


@pytest.mark.parametrize("seeds", PAIRS)
def test_what_a_comparison_says_is_true(seeds: tuple[int, int], tmp_path: Path) -> None:
    one, other = (write_kernels_job(seed, tmp_path) for seed in seeds)
    before, after, said = beside((one, other))
    assert untrue(before, after, said) == []
    for change in ("before_ns", "after_ns"):
        wrong = copy.deepcopy(said)
        wrong["step"][change] += 1_000
        assert len(untrue(before, after, wrong)) >= 1
    wrong = copy.deepcopy(said)
    wrong["step"]["parts"]["idle_host"] += 1_000
    assert any(each.startswith("idle_host") for each in untrue(before, after, wrong))
