"""Trainings without a fault: other batches, steps, ranks, seeds and jitter."""

from collections.abc import Iterator
from typing import Any

from tests.verdicts.kernels.gpu_faults import experts_one_by_one
from tests.verdicts.kernels.job_faults import exchanging
from tests.verdicts.kernels.machine import GPUS, Job, Op
from tests.verdicts.kernels.models import MODELS

STEPS = 6


def planned(model: str, gpu: str, *, ranks: int = 1, steps: int = STEPS, size: float = 1.0, **more: Any) -> Job:
    """Return a healthy training."""
    step = MODELS[model](GPUS[gpu], ranks=ranks, size=size)
    return Job(GPUS[gpu], tuple([step] * steps for _ in range(ranks)), **more)


def healthy() -> Iterator[tuple[str, Job]]:
    """Yield healthy trainings by name."""
    for place, (model, gpu) in enumerate((model, gpu) for model in MODELS for gpu in GPUS):
        yield f"{model} on {gpu}", planned(model, gpu, seed=place)
        more: dict[str, Any] = {"steps": 4 + place % 9, "jitter": 0.005 * (1 + place % 7), "seed": 100 + place}
        yield f"{model} on {gpu}, varied", planned(model, gpu, size=(0.5, 0.75, 1.5, 2.0)[place % 4], **more)
    for place, model in enumerate(MODELS):
        gpu = ("H100", "A100", "MI300X", "H200")[place]
        yield f"{model} on four {gpu}", planned(model, gpu, ranks=4, seed=200 + place, jitter=0.02)
    read_loss = Op("aten::item", inside=(Op("aten::_local_scalar_dense", sync="cudaStreamSynchronize"),))
    for place, (model, gpu) in enumerate((("transformer", "A100"), ("resnet", "H100"), ("gan", "L4"))):
        job = planned(model, gpu, seed=300 + place)
        yield f"{model} on {gpu} reads its loss", job.every(lambda step: [*step, read_loss])
    for place, gpu in enumerate(("H100", "A100", "MI300X")):
        job = planned("transformer", gpu, ranks=4, seed=400 + place)
        uneven = [(job.step_us * 0.02 * (1 + 0.05 * at), (1 << 22) + (at << 16)) for at in range(4)]
        yield f"transformer on four {gpu} exchanges evenly", exchanging(job, uneven)
        rows = [900 + 30 * each for each in range(16)]
        one = planned("transformer", gpu, seed=410 + place)
        experts = experts_one_by_one(one.gpu, rows)
        yield f"transformer on {gpu} with even experts", one.every(lambda step, more=experts: [*step, *more])
