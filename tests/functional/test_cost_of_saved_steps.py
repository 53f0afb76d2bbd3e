"""What steps cost that a job saves: requests of the real engine beside those of a job without any, and the model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.support.counted_network import PRICES, CountedNetwork, Counts, minute_of
from tests.support.small_job import JOB, START, Upload, describe
from tests.support.tensor_files import HookWriter
from trainguard.core.layout import hour_folder
from trainguard.running_costs.choices import saved_step_lines
from trainguard.running_costs.unit_prices import total
from trainguard.running_costs.workload import DEFAULT_MEMORY, Workload

# Minutes until each minute is no longer evaluated, and those that are counted.
BEFORE, COUNTED = 20, 30

WEIGHTS = [f"layer{number}.weight" for number in range(30)]
GRADIENTS = [f"gradient/{name}" for name in WEIGHTS]
REDUCTIONS = ("min", "max", "mean", "std", "l2", "abs_mean")
DEARER = 1.25
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


def saved(every_min: int) -> Mapping[int, Sequence[tuple[str, bytes]]]:
    """Return the files of a run with a loss, weights and their gradients, by the minute in which they are saved."""
    writer = HookWriter(workers=1)
    writer.collections({"losses": (["loss"], []), "weights": (WEIGHTS, []), "gradients": (GRADIENTS, [])})
    values = np.random.default_rng(0)
    found: dict[int, list[tuple[str, bytes]]] = {0: list(writer.files.items())}
    for minute in range(0, BEFORE + COUNTED, every_min):
        known = set(writer.files)
        reduced = (f"{name}_reduction/{each}" for name in (*WEIGHTS, *GRADIENTS) for each in REDUCTIONS)
        tensors = {"loss": np.float64(2.0 * math.exp(-minute / 30.0)), **{name: values.normal() for name in reduced}}
        writer.step(100 * minute, {name: np.float64(each) for name, each in tensors.items()}, at=START + 60.0 * minute)
        made = ((name, body) for name, body in writer.files.items() if name not in known)
        found.setdefault(minute, []).extend(sorted(made))  # events before their index
    return found


@cache
def counted(every_min: int | None) -> Counts:
    """Return what half an hour of one node bills whose job saves a step so often, or none, but for functions' time."""
    network = CountedNetwork()
    description = replace(describe({}), instance_count=1, framework_profiling=False, profiling_interval_ms=15_000)
    network.world.training_jobs.set(description)
    files = {} if every_min is None else saved(every_min)
    random, begin = np.random.default_rng(1), 0
    for index in range(BEFORE + COUNTED):
        if index == BEFORE:
            begin = len(network.world.faults.calls)
            network.counts.clear()
        at = START + 60 * index
        key = f"{JOB}/profiler-output/system/incremental/{hour_folder(at)}/{at}.algo-1.json"
        uploads = [Upload(at + 62.1, key, minute_of(random, index, 1))]
        uploads += [Upload(at + 32.0, f"{JOB}/debug-output/{name}", body) for name, body in files.get(index, ())]
        for upload in sorted(uploads, key=lambda each: each.at):
            network.put(upload)
            network.announce(upload, upload.at)
        network.run_until(at + 85.0, batch_s=20.0)
        network.run_scheduler()
    return network.with_calls(begin)


@pytest.mark.parametrize("every_min", [1, 5])
def test_saved_steps_cost_what_the_model_says(
    every_min: int,
) -> None:
    job = Workload(saved_steps=60 / every_min)
    lines = saved_step_lines(job, PRICES, DEFAULT_MEMORY, reconcile_gib_s=0.0, reconcile_reads=4)
    model = total([line for line in lines if not line.what.startswith("GiB-s")])
    more = (counted(every_min).cost - counted(None).cost) * 60 / COUNTED
    assert more <= model <= DEARER * more, (counted(every_min), counted(None), lines)
