"""Jobs that are sampled at every interval of the profiler: what is found must not depend on it."""

from tests.verdicts.catalogue.balance import IDLE_GPU
from tests.verdicts.catalogue.batch import FULL_PACE
from tests.verdicts.catalogue.idle import HUNG, ON_CPU
from tests.verdicts.catalogue.memory import FLAT, FLAT_PERCENT
from tests.verdicts.catalogue.stepping import SAVING
from tests.verdicts.catalogue.stock import (
    HEALTHY,
    STARTING,
    ordinary,
    starved,
    starved_by_cores,
    starved_by_disk,
)
from tests.verdicts.description import Growth, Job, Load, Piece
from tests.verdicts.machines import G5_XLARGE, TWO_GPUS
from tests.verdicts.truth import LOW, Fault

INTERVALS_S = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
MINUTES = 75.0
TRAINING_MIN = 72.0

FAULTY = (
    Job(
        name="any-interval-idle",
        group="idle from the start",
        about="The model trains on the cores; the GPU is never used.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        pieces=(Piece(load=STARTING), Piece(load=ON_CPU, start_min=2)),
        faults=(Fault(kind="idle from the start", onset_min=0, wasted_min=(73, 75), first=(LOW,)),),
        every_interval=True,
    ),
    Job(
        name="any-interval-hang",
        group="hang",
        about="The GPU stops at minute 30 of 75 for good.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        pieces=(*ordinary(MINUTES), Piece(load=HUNG, start_min=30)),
        faults=(Fault(kind="hang", onset_min=30, wasted_min=45),),
        every_interval=True,
    ),
    Job(
        name="any-interval-cores",
        group="loader, cores full",
        about="The GPU waits 60 % of the time; all cores are full.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        pieces=ordinary(MINUTES, starved_by_cores(0.6)),
        faults=(Fault(kind="loader, cores full", onset_min=2, wasted_min=0.6 * TRAINING_MIN),),
        every_interval=True,
    ),
    Job(
        name="any-interval-cores-means",
        group="counters that average",
        about="The same, with counters that show the mean since the last sample, and 45 % of waiting.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        averaging=True,
        pieces=ordinary(MINUTES, starved_by_cores(0.45)),
        faults=(Fault(kind="loader, cores full", onset_min=2, wasted_min=0.45 * TRAINING_MIN),),
        every_interval=True,
    ),
    Job(
        name="any-interval-disk",
        group="loader, disk",
        about="The GPU waits 60 % of the time; half of the cores wait for the disk.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        pieces=ordinary(MINUTES, starved_by_disk(0.6)),
        faults=(Fault(kind="loader, disk", onset_min=2, wasted_min=0.6 * TRAINING_MIN),),
        every_interval=True,
    ),
    Job(
        name="any-interval-disk-means",
        group="counters that average",
        about="The same, with counters that show the mean since the last sample, and 45 % of waiting.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        averaging=True,
        pieces=ordinary(MINUTES, starved_by_disk(0.45)),
        faults=(Fault(kind="loader, disk", onset_min=2, wasted_min=0.45 * TRAINING_MIN),),
        every_interval=True,
    ),
    Job(
        name="any-interval-free",
        group="loader, cores free",
        about="The GPU waits 55 % of the time; cores and disk are free.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        pieces=ordinary(MINUTES, starved(0.55, cycle_s=7)),
        faults=(Fault(kind="loader, cores free", onset_min=2, wasted_min=0.55 * TRAINING_MIN),),
        every_interval=True,
    ),
    Job(
        name="any-interval-batch",
        group="small batch",
        about="GPU at 28 %, its memory at 8 %, cores free.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        pieces=ordinary(MINUTES, Load(busy=28, spread=4, memory=0.3, cores=14)),
        faults=(Fault(kind="small batch", onset_min=2, wasted_min=(1 - 28 / FULL_PACE) * TRAINING_MIN),),
        every_interval=True,
    ),
    Job(
        name="any-interval-dead-gpu",
        group="dead GPU",
        about="One GPU of two was never given work.",
        machine=TWO_GPUS,
        minutes=MINUTES,
        pieces=ordinary(MINUTES, HEALTHY, Piece(load=IDLE_GPU, gpus=(1,))),
        faults=(Fault(kind="dead GPU", onset_min=2, wasted_min=TRAINING_MIN / 2, gpus=(1,)),),
        every_interval=True,
    ),
    Job(
        name="any-interval-leak",
        group="memory leak",
        about="Memory grows from 33 to 85 % in 65 minutes.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        pieces=ordinary(MINUTES, FLAT),
        growth=(Growth(points=52, start_min=10, end_min=75),),
        faults=(Fault(kind="leak", onset_min=10, fails_in_h=(100 - FLAT_PERCENT - 52) / (52 / 65) / 60),),
        every_interval=True,
    ),
)

HEALTHY_JOBS = (
    Job(
        name="any-interval-healthy",
        group="busy and noisy",
        about="GPU at 93 %.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        pieces=ordinary(MINUTES),
        every_interval=True,
    ),
    Job(
        name="any-interval-saves",
        group="checkpoints",
        about="A checkpoint of a minute every fifteen.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        pieces=ordinary(MINUTES, HEALTHY, Piece(load=SAVING, start_min=15, every_min=15, for_min=1)),
        every_interval=True,
    ),
    Job(
        name="any-interval-idle-6-percent",
        group="busy and noisy",
        about="GPU idle 6 % of the time.",
        machine=G5_XLARGE,
        minutes=MINUTES,
        pieces=ordinary(MINUTES, starved(0.06, cycle_s=10, cores=28)),
        every_interval=True,
    ),
)

JOBS = FAULTY + HEALTHY_JOBS
