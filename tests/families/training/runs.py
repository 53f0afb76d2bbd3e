"""Runs as objects in a bucket: what a job's workers upload, and when."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tests.families.training.step_rules import RULES
from tests.support.delivery import Network
from tests.support.small_job import JOB, START, Upload
from tests.support.tensor_files import HookWriter
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import RuleRow, StreamKey, StreamRecord
from trainguard.engine.family import Families
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.training.family import TrainingFamily
from trainguard.engine.training.stream import SCALAR_FILES, SCALARS, TRAINING
from trainguard.formats.tensors.debug.keys import ALL_WORKERS

FAMILIES = Families(PROFILER, TrainingFamily(RULES, [rule.name for rule in RULES]))
ROOT = ProfileRoot("", JOB)
FOLDER = f"{JOB}/debug-output/"
STEP_S = 10.0
LOSSES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {"losses": (["loss"], [])}
DEBUG = StreamKey(JOB, ALL_WORKERS, TRAINING)
SCALAR = StreamKey(JOB, SCALAR_FILES, SCALARS)


def run_files(
    losses: Iterable[float], *, workers: int = 1, weights: Mapping[int, float] | None = None, ended: bool = False
) -> dict[str, bytes]:
    """Return the files of workers that save a loss at every step, of which that of the first worker counts."""
    writer = HookWriter(workers=workers)
    names = [f"worker_{rank}" for rank in range(workers)]
    for worker in names:
        writer.collections(LOSSES, worker=worker)
    for step, loss in enumerate(losses):
        for rank, worker in enumerate(names):
            tensors = {"loss": np.float64(loss if rank == 0 else -1.0)}
            if rank == 0:
                tensors["weight"] = np.float64((weights or {}).get(step, step))
            writer.step(step, tensors, worker=worker, at=START + STEP_S * step)
    return (writer.end() if ended else writer).files


def uploads_of(files: Mapping[str, bytes], *, folder: str = FOLDER) -> list[Upload]:
    """Return the uploads of a run's files, in the order in which the hook makes them: an index after its events."""
    return [Upload(_uploaded_at(name), f"{folder}{name}", files[name]) for name in sorted(files, key=_order)]


def _order(name: str) -> tuple[int, int, str]:
    kinds = ("collections", "events", "index", "training_job_end.ts")
    kind = kinds.index(name.partition("/")[0])
    step = -1 if kind == 0 else 10**12 if kind == 3 else int(name.rpartition("/")[2].partition("_")[0])
    return step, kind, name


def _uploaded_at(name: str) -> float:
    step = _order(name)[0]
    return START - 1.0 if step < 0 else START + 5_000.0 if step >= 10**12 else START + STEP_S * step + 0.5


def wakes(upload: Upload) -> bool:
    """Whether EventBridge lets a message about an object through."""
    return "/events/" not in upload.key


def arrive(network: Network, upload: Upload) -> None:
    """Let an object appear, and its message be delivered."""
    network.put(upload)
    if wakes(upload):
        network.announce(upload, upload.at + 1.0)
        network.run_until(upload.at + 2.0, batch_s=0.0)


def network_of(uploads: Iterable[Upload], families: Families = FAMILIES) -> Network:
    """Return a world that has met the objects one after another."""
    network = Network(families=families)
    for upload in uploads:
        arrive(network, upload)
    return network


def fires_of(network: Network) -> list[tuple[object, object, object]]:
    """Return rule, unit and value of each fire that started an execution."""
    started = [each for each in network.world.executions.started.values() if each["kind"] == "fire"]
    return [(fire["rule"], fire["node"], fire["measured"]) for fire in started]


def rows_of(network: Network) -> dict[str, RuleRow]:
    """Return the job's rows by target."""
    return {row.target: row for row in network.world.rows.of_job(JOB)}


def debug_item(network: Network) -> StreamRecord:
    """Return the item of debug-output."""
    return network.node(DEBUG)
