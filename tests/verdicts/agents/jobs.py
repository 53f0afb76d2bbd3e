"""The sixty labelled jobs of the trial: profiles, traces, dumps, tables of operations and losses, as folders."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from tests.hangs.simulated import Fault as HangFault
from tests.hangs.simulated import Job as HangJob
from tests.stragglers.simulated import Job as ParallelJob
from tests.stragglers.simulated import Planted
from tests.verdicts.agents.labels import CURVES, HANGS, HEALTHY, PARALLEL, PROFILES, TRACES
from tests.verdicts.kernels.faults import FAULTS, STRENGTHS, faulty
from tests.verdicts.kernels.machine import recordings
from tests.verdicts.labelled.catalogue.everything import JOBS
from tests.verdicts.labelled.description import Job as Profile
from tests.verdicts.labelled.profile_files import write_job

OF_PROFILES, HEALTHY_PROFILES = 32, 4


@dataclass(frozen=True)
class Labelled:
    """A job: ``write`` puts it below a folder and returns its place; any of ``changes`` is right."""

    name: str
    changes: frozenset[str]
    write: Callable[[Path], Path]


def labelled_jobs() -> Sequence[Labelled]:
    return [*_profiles(), *_traces(), *_hangs(), *_parallel(), *_curves()]


def _profiles() -> Sequence[Labelled]:
    """Return the smallest job of each kind of fault, then the next ones, and healthy ones; each of one fault."""
    by_kind: dict[str, list[Profile]] = {}
    for job in sorted(JOBS, key=_size):
        if len(job.faults) <= 1 and job.machine.gpus:
            by_kind.setdefault(job.faults[0].kind if job.faults else "", []).append(job)
    healthy = by_kind.pop("")[:HEALTHY_PROFILES]
    rounds = max(map(len, by_kind.values()))
    order = chain.from_iterable([jobs[turn : turn + 1] for turn in range(rounds) for jobs in by_kind.values()])
    chosen = list(order)[:OF_PROFILES]
    return [
        *(Labelled(each.name, PROFILES[each.faults[0].kind], _profile(each)) for each in chosen),
        *(Labelled(each.name, HEALTHY, _profile(each)) for each in healthy),
    ]


def _size(job: Profile) -> float:
    return job.minutes / job.interval_s * job.nodes * (2 * job.machine.cores + 2 * job.machine.gpus + 8)


def _profile(job: Profile) -> Callable[[Path], Path]:
    return lambda folder: write_job(job, folder)


def _traces() -> Sequence[Labelled]:
    return [Labelled(f"trace: {kind}", changes, _trace(kind, at)) for at, (kind, changes) in enumerate(TRACES.items())]


def _trace(kind: str, seed: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        place = _folder(folder, f"trace-{seed}")
        for each in recordings(faulty(FAULTS[kind], STRENGTHS["strong"], 10 * seed)):
            (place / f"rank{each.rank}.pt.trace.json").write_bytes(each.in_pytorch())
        return place

    return write


def _hangs() -> Sequence[Labelled]:
    found = frozenset({"find_hang"})
    return [Labelled(f"hang: {kind}", found, _hang(kind, at)) for at, kind in enumerate(HANGS)]


def _hang(kind: str, seed: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        place = _folder(folder, f"hang-{seed}")
        job = HangJob(8, fault=HangFault(kind=kind, ranks=(3,), step=5))
        job.run()
        job.write(place, as_json=True, only_active=False)
        return place

    return write


def _parallel() -> Sequence[Labelled]:
    planted: Mapping[str, Planted] = {
        "rank": Planted("rank", 1.5, 6),
        "host": Planted("host", 1.5, 3),
        "copy": Planted("copy", 1.4, 2),
        "transfers": Planted("transfers", 30.0),
    }
    return [Labelled(f"parallel: {kind}", PARALLEL[kind], _table(fault)) for kind, fault in planted.items()]


def _table(fault: Planted) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        place = _folder(folder, f"parallel-{fault.kind}")
        (place / "operations.csv").write_bytes(replace(ParallelJob(), planted=(fault,)).csv())
        return place

    return write


def _curves() -> Sequence[Labelled]:
    return [Labelled(f"losses: {name}", changes, _curve(name)) for name, changes in CURVES.items()]


def _curve(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        place = _folder(folder, f"losses-{name}")
        (place / "log.csv").write_text(losses(name))
        return place

    return write


def losses(name: str, column: str = "loss") -> str:
    """Return a CSV log of a curve; another name than those of CURVES falls as a healthy one."""
    rng = np.random.default_rng(7)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["epoch", column, "val_loss", "accuracy"])
    for epoch in range(60):
        loss = 2.2 * math.exp(-epoch / 12) + 0.1 + 0.01 * rng.normal()
        if name == "flat":
            loss = 2.303 + 0.002 * rng.normal()
        if epoch > 40:
            loss = {"nan": math.nan, "diverged": loss * 3.0 ** (epoch - 40)}.get(name, loss)
        writer.writerow([epoch, f"{loss:.5f}", f"{loss + 0.05:.5f}", f"{max(1.0 - loss / 2.4, 0.0):.4f}"])
    return text.getvalue()


def _folder(folder: Path, name: str) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    return place
