"""Samples that are missing, wrong by chance, or dated by a clock that jumps."""

from tests.verdicts.catalogue.balance import IDLE_GPU
from tests.verdicts.catalogue.batch import FULL_PACE
from tests.verdicts.catalogue.idle import HUNG
from tests.verdicts.catalogue.stock import HEALTHY, ordinary, starved_by_cores
from tests.verdicts.description import Flaws, Job, Load, Piece
from tests.verdicts.machines import G5_2XLARGE, P3_2XLARGE, P3_8XLARGE, P3_16XLARGE
from tests.verdicts.truth import Fault

JOBS = (
    Job(
        name="a-fifth-missing-healthy",
        group="missing samples",
        about="A healthy job; a fifth of the snapshots was never written.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60),
        flaws=Flaws(missing=0.2),
    ),
    Job(
        name="a-fifth-missing-starved",
        group="missing samples",
        about="The GPU waits 60 % of the time for full cores; a fifth of the snapshots is missing.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60, starved_by_cores(0.6)),
        flaws=Flaws(missing=0.2),
        faults=(Fault(kind="loader, cores full", onset_min=2, wasted_min=0.6 * 57),),
    ),
    Job(
        name="a-fifth-missing-dead-gpu",
        group="missing samples",
        about="One GPU of eight does nothing; a fifth of the snapshots is missing.",
        machine=P3_16XLARGE,
        minutes=90,
        interval_s=2.0,
        pieces=ordinary(90, HEALTHY, Piece(load=IDLE_GPU, gpus=(0,))),
        flaws=Flaws(missing=0.2),
        faults=(Fault(kind="dead GPU", onset_min=2, wasted_min=87 / 8, gpus=(0,)),),
    ),
    Job(
        name="clock-jumps-ahead-healthy",
        group="a clock that jumps",
        about="A healthy job whose clock is set 95 s ahead at minute 40.",
        machine=P3_2XLARGE,
        minutes=75,
        interval_s=1.0,
        pieces=ordinary(75),
        flaws=Flaws(clock_jump=(40, 95.0)),
    ),
    Job(
        name="clock-jumps-back-healthy",
        group="a clock that jumps",
        about="A healthy job whose clock is set 40 s back at minute 40.",
        machine=P3_2XLARGE,
        minutes=75,
        interval_s=1.0,
        pieces=ordinary(75),
        flaws=Flaws(clock_jump=(40, -40.0)),
    ),
    Job(
        name="clock-jumps-ahead-hang",
        group="a clock that jumps",
        about="The clock is set 95 s ahead at minute 20; the GPU stops from minute 40 to 75.",
        machine=P3_2XLARGE,
        minutes=110,
        interval_s=1.0,
        pieces=ordinary(110, HEALTHY, Piece(load=HUNG, start_min=40, end_min=75)),
        flaws=Flaws(clock_jump=(20, 95.0)),
        faults=(Fault(kind="hang", onset_min=41.5, end_min=76.5, wasted_min=35),),
    ),
    Job(
        name="chance-zeros-healthy",
        group="chance zeros",
        about="Four healthy GPUs; two readings of a hundred are 0 by chance.",
        machine=P3_8XLARGE,
        minutes=60,
        interval_s=1.0,
        pieces=ordinary(60, Load(busy=95, spread=2)),
        flaws=Flaws(zeros=0.02),
    ),
    Job(
        name="chance-zeros-small-batch",
        group="chance zeros",
        about="GPU at 30 %, cores free; two readings of a hundred are 0 by chance.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60, Load(busy=30, spread=4, memory=0.3, cores=14)),
        flaws=Flaws(zeros=0.02),
        faults=(Fault(kind="small batch", onset_min=2, wasted_min=(1 - 30 / FULL_PACE) * 57),),
    ),
)
