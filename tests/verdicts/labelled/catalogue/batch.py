"""GPUs with too little to do, and GPUs that are busy but noisy."""

from dataclasses import replace

from tests.verdicts.labelled.catalogue.stock import ordinary, starved
from tests.verdicts.labelled.description import Job, Load
from tests.verdicts.labelled.machines import (
    C5_4XLARGE,
    C5_18XLARGE,
    G5_2XLARGE,
    G5_12XLARGE,
    P3_2XLARGE,
    P3_8XLARGE,
    P4D,
)
from tests.verdicts.labelled.truth import BATCH, CPU, LOW, Fault


def _small(busy: float) -> Load:
    return Load(busy=busy, spread=4.0, memory=0.3, cores=14.0, process=45.0)


# Utilization that the same model reaches with a batch that fills the GPU.
FULL_PACE = 93.0


def _unused(busy: float, training_min: float) -> float:
    return (1.0 - busy / FULL_PACE) * training_min


JOBS = (
    Job(
        name="batch-25",
        group="small batch",
        about="GPU at 25 %, its memory at 8 %, cores free.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60, _small(25)),
        faults=(Fault(kind="small batch", onset_min=2, wasted_min=_unused(25, 57)),),
    ),
    Job(
        name="batch-20-8-gpus",
        group="small batch",
        about="Eight GPUs at 20 %, cores free.",
        machine=P4D,
        minutes=60,
        interval_s=5.0,
        pieces=ordinary(60, _small(20)),
        faults=(Fault(kind="small batch", onset_min=2, wasted_min=_unused(20, 57)),),
    ),
    Job(
        name="batch-52-4-gpus",
        group="small batch",
        about="Four GPUs at 52 %, cores free.",
        machine=P3_8XLARGE,
        minutes=60,
        interval_s=1.0,
        pieces=ordinary(60, _small(52)),
        faults=(Fault(kind="small batch", strength="medium", onset_min=2, wasted_min=_unused(52, 57)),),
    ),
    Job(
        name="batch-48-at-10-s",
        group="small batch",
        about="GPU at 48 %, sampled every 10 s.",
        machine=P3_2XLARGE,
        minutes=120,
        interval_s=10.0,
        pieces=ordinary(120, _small(48)),
        faults=(Fault(kind="small batch", strength="medium", onset_min=2, wasted_min=_unused(48, 117)),),
    ),
    Job(
        name="batch-30-4-nodes",
        group="small batch",
        about="Four nodes at 30 %, cores free.",
        machine=P3_2XLARGE,
        minutes=60,
        interval_s=2.0,
        nodes=4,
        pieces=ordinary(60, _small(30)),
        faults=(Fault(kind="small batch", onset_min=2, wasted_min=4 * _unused(30, 57)),),
    ),
    Job(
        name="batch-35-one-process-full",
        group="small batch",
        about="GPU steadily at 35 %: the process that launches its kernels fills one core of eight.",
        machine=G5_2XLARGE,
        minutes=75,
        pieces=ordinary(75, replace(_small(35), process=99.0)),
        faults=(
            Fault(
                kind="small batch",
                strength="medium",
                onset_min=2,
                wasted_min=_unused(35, 72),
                first=(BATCH, LOW, CPU),
            ),
        ),
    ),
    Job(
        name="busy-80",
        group="busy and noisy",
        about="GPU at 80 %: some room, no fault.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60, Load(busy=80, spread=4)),
    ),
    Job(
        name="busy-86-noisy",
        group="busy and noisy",
        about="GPU at 86 % with readings between 50 and 100.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60, Load(busy=86, spread=12, drift=3)),
    ),
    Job(
        name="busy-84-noisy-4-gpus",
        group="busy and noisy",
        about="Four GPUs at 84 % with readings between 40 and 100.",
        machine=G5_12XLARGE,
        minutes=60,
        interval_s=2.0,
        pieces=ordinary(60, Load(busy=84, spread=15, drift=3)),
    ),
    Job(
        name="idle-6-percent",
        group="busy and noisy",
        about="GPU idle at 6 % of the readings, busy at all others.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60, starved(0.06, cycle_s=10, cores=28)),
    ),
    Job(
        name="idle-8-percent",
        group="busy and noisy",
        about="GPU idle 8 % of the time, half a second at a time.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60, starved(0.08, cycle_s=6, cores=28)),
    ),
    Job(
        name="idle-6-percent-at-60-s",
        group="busy and noisy",
        about="One reading a minute for ten hours, 6 % of them idle.",
        machine=G5_2XLARGE,
        minutes=600,
        interval_s=60.0,
        pieces=ordinary(600, starved(0.06, cycle_s=10, cores=28)),
    ),
    Job(
        name="idle-6-percent-4-gpus",
        group="busy and noisy",
        about="Four GPUs idle 6 % of the time, a second or two at a time.",
        machine=P3_8XLARGE,
        minutes=90,
        interval_s=1.0,
        pieces=ordinary(90, starved(0.06, cycle_s=25, cores=28)),
    ),
    Job(
        name="healthy-8-gpus",
        group="busy and noisy",
        about="Eight GPUs at 95 %; the process of each turns in a loop on a core while it waits for its GPU.",
        machine=P4D,
        minutes=60,
        interval_s=5.0,
        pieces=ordinary(60, Load(busy=95, spread=2, process=99.0)),
    ),
    Job(
        name="cpu-only-busy",
        group="CPU-only job",
        about="Training on 72 cores, 85 % busy; no GPU.",
        machine=C5_18XLARGE,
        minutes=60,
        interval_s=5.0,
        pieces=ordinary(60, Load(cores=72, full_cores=0.4)),
    ),
    Job(
        name="cpu-only-light",
        group="CPU-only job",
        about="Feature extraction on 16 cores, a tenth busy; no GPU.",
        machine=C5_4XLARGE,
        minutes=60,
        interval_s=1.0,
        pieces=ordinary(60, Load(cores=10)),
    ),
)
