"""Small debug-output folders, one situation each, and what rules are expected to find in them."""

import json
import tarfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.run_folder import MemoryFiles
from tests.support.tensor_files import HookWriter
from trainguard.core.errors import RunMissingError
from trainguard.formats.tensors.debug.ledger import StepLedger
from trainguard.formats.tensors.debug.run import DebugRun, DebugStep, complete_steps, find_run

_DATA = Path(__file__).parents[1] / "data" / "tensor_trials"


@cache
def expected() -> dict[str, Any]:
    """Return by trial and rule the parameters and the first step that fires."""
    read: dict[str, Any] = json.loads((_DATA / "expected.json").read_text())
    return read


@cache
def trials() -> dict[str, dict[str, bytes]]:
    """Return the files of all trials: by trial, by name below ``debug-output/``."""
    found: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
    with tarfile.open(_DATA / "trials.tar.xz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                trial, _, name = member.name.partition("/")
                found[trial][name] = content.read()
    return {**found, "check_input_images": _check_input_images(), "three_workers_partial": three_workers_partial()}


def trial_files(name: str) -> MemoryFiles:
    """Return the files of a trial."""
    return MemoryFiles(trials()[name])


def trial_run(name: str) -> DebugRun:
    """Return the run of a trial; other runs are the other trials."""
    if name not in trials():
        raise RunMissingError(name, "is no trial")
    return find_run(trial_files(name), name, trial_run)


def trial_steps(name: str) -> list[DebugStep]:
    """Return the complete steps of a trial, in order; one without the mark of its end counts as ended."""
    return list(complete_steps(trial_files(name), trial_run(name), StepLedger(), ended=True))


def write_trial(name: str, folder: Path) -> Path:
    """Write the files of a trial into a folder, and return it."""
    return HookWriter(files=dict(trials()[name])).save_to(folder)


def three_workers_partial(*, step_6: bool = True, ended: bool = False) -> dict[str, bytes]:
    """Return the files of three workers of which one misses steps 3 to 5, and maybe step 6."""
    writer = HookWriter(workers=3)
    for rank in range(3):
        worker = f"worker_{rank}"
        writer.collections({"losses": (["loss"], [])}, worker=worker)
        for step in range(7):
            if rank < 2 or step < 3 or (step_6 and step == 6):
                writer.step(step, {"loss": np.float32(step + rank / 10)}, worker=worker)
    return (writer.end() if ended else writer).files


def _check_input_images() -> dict[str, bytes]:
    """Return 12 steps of 64 images whose second channel has a mean of about 0.28."""
    random = np.random.default_rng(0)
    writer = HookWriter().collections()
    for step in range(12):
        images = random.standard_normal((64, 3, 8, 8)).astype(np.float32)
        images[:, 1] += np.float32(0.28)
        writer.step(step, {"hybridsequential0_input_0": images})
    return writer.end().files
