"""The jobs that the product's claims are checked on."""

import json
import multiprocessing
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.claims.check import Checked, checked, counted
from tests.claims.context import raw_of
from tests.claims.kernels import kernel_claims
from tests.claims.product import report_of
from tests.claims.random_jobs import drawn, write_random_job
from tests.claims.random_kernels import WITH_FORMS, WITH_OPERATORS, write_kernels_job
from tests.claims.random_steps import write_steps_job
from tests.claims.random_tensors import tensor_job, write_tensor_job
from tests.claims.snapshot_files import write_snapshots_job
from tests.claims.snapshots import snapshot_claims
from tests.claims.tensors import tensor_claims
from tests.claims.training import training_claims, write_random_run
from tests.verdicts.labelled.catalogue.everything import JOBS, resampled
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.machines import price_table
from tests.verdicts.labelled.profile_files import write_job
from tests.verdicts.real_runs.profile_writer import write_profile
from tests.verdicts.real_runs.recording import origins, read_recording

GPU_RECORDINGS = Path(__file__).parent / "data" / "gpu_recordings.tar.xz"
RANDOM_JOBS = int(os.environ.get("RANDOM_JOBS", "500"))
# In the last one all ranks of a node are slow, and no others.
STEPS_JOBS = (*range(60), 116)

TRAINING_RUNS = 80
TENSOR_RUNS = 80
KERNEL_JOBS = tuple(seed + more for seed in (0, WITH_OPERATORS, WITH_FORMS) for more in range(60))
SNAPSHOT_JOBS = 100


def check_labelled(job: Job) -> Checked:
    """Check what is said about a labelled job."""
    with tempfile.TemporaryDirectory(prefix="claims-") as place:
        folder = write_job(job, Path(place))
        prices = Path(place, "prices.json")
        prices.write_text(json.dumps(price_table()))
        report = report_of(folder, prices=prices, instance_type=job.machine.instance_type)
        return checked(job.name, raw_of(folder), report)


def check_real(run: str) -> Checked:
    """Check what is said about a real run."""
    with tempfile.TemporaryDirectory(prefix="claims-") as place:
        folder = write_profile(read_recording(run), Path(place))
        return checked(run, raw_of(folder), report_of(folder))


def check_recording(name: str) -> Checked:
    """Check what is said about a job that was recorded with a GPU."""
    with tempfile.TemporaryDirectory(prefix="claims-") as place:
        with tarfile.open(GPU_RECORDINGS) as archive:
            archive.extractall(place, [each for each in archive if each.name.split("/")[0] == name], filter="data")
        return checked(name, raw_of(Path(place, name)), report_of(Path(place, name)))


def recordings() -> list[str]:
    """Return the names of the jobs that were recorded with a GPU."""
    with tarfile.open(GPU_RECORDINGS) as archive:
        return sorted({each.name.split("/")[0] for each in archive})


def check_random(seed: int) -> Checked:
    """Check what is said about the job of a seed."""
    with tempfile.TemporaryDirectory(prefix="claims-") as place:
        folder = write_random_job(drawn(seed), Path(place))
        return checked(f"random-{seed}", raw_of(folder), report_of(folder))


def check_steps(seed: int) -> Checked:
    """Check what is said about the job of a seed whose processes tell much of their steps."""
    with tempfile.TemporaryDirectory(prefix="claims-") as place:
        folder = write_steps_job(seed, Path(place))
        return checked(f"steps-{seed}", raw_of(folder), report_of(folder))


def check_training(seed: int) -> Checked:
    """Check what is said about the training of a seed."""
    with tempfile.TemporaryDirectory(prefix="claims-") as place:
        folder = write_random_run(seed, Path(place))
        return counted(folder.name, training_claims(folder, report_of(folder)))


def check_tensors(seed: int) -> Checked:
    """Check what is said about the run of a seed that saved tensors."""
    with tempfile.TemporaryDirectory(prefix="claims-") as place:
        run = tensor_job(seed)
        folder = write_tensor_job(run, Path(place))
        return counted(folder.name, tensor_claims(folder, report_of(folder, parameters=run.parameters)))


def check_kernels(seed: int) -> Checked:
    """Check what is said about the kernel trace of a seed."""
    with tempfile.TemporaryDirectory(prefix="claims-") as place:
        folder = write_kernels_job(seed, Path(place))
        return counted(folder.name, kernel_claims(folder, report_of(folder)))


def check_snapshots(seed: int) -> Checked:
    """Check what is said about the memory snapshots of a seed."""
    with tempfile.TemporaryDirectory(prefix="claims-") as place:
        folder = write_snapshots_job(seed, Path(place))
        return counted(folder.name, snapshot_claims(folder, report_of(folder)))


def labelled_jobs() -> list[Job]:
    """Return all labelled jobs, those of every interval at each of them."""
    return [*JOBS, *(again for job in JOBS for _, again in resampled(job))]


def sources(count: int = RANDOM_JOBS) -> dict[str, tuple[Callable[[Any], Checked], list[Any]]]:
    """Return all sources by name: what checks a job of it, and its jobs, the largest first."""
    labelled = sorted(labelled_jobs(), key=lambda job: -job.minutes / job.interval_s * job.nodes)
    return {
        "labelled": (check_labelled, labelled),
        "real": (check_real, list(origins())),
        "recordings": (check_recording, recordings()),
        "random": (check_random, list(range(count))),
        "steps": (check_steps, list(STEPS_JOBS)),
        "training": (check_training, list(range(TRAINING_RUNS))),
        "tensors": (check_tensors, list(range(TENSOR_RUNS))),
        "kernels": (check_kernels, list(KERNEL_JOBS)),
        "snapshots": (check_snapshots, list(range(SNAPSHOT_JOBS))),
    }


def over_all_cores(check: Callable[[Any], Checked], jobs: Iterable[Any]) -> Iterator[Checked]:
    """Yield what came of each job, each in one of as many processes as there are cores."""
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(cores), mp_context=context, initializer=_take_one_core, initargs=(cores,)) as pool:
        yield from pool.map(check, jobs)


def _take_one_core(cores: list[int]) -> None:
    """Keep this process to one core: the analysis then starts no processes of its own."""
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
