"""What a comparison of two profiles says is true; and the checker finds what is not."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.claims.kernel_compare import untrue
from tests.claims.kernel_files import Recording, read_recordings
from tests.claims.product import comparison_of
from tests.claims.random_kernels import write_kernels_job

PAIRS = ((13, 19), (22, 24), (30, 32), (33, 37))


def beside(folders: tuple[Path, Path]) -> tuple[Recording, Recording, dict[str, Any]]:
    """Return the first trace of two jobs, and what the comparison says about them."""
    said, names = comparison_of(folders)
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
