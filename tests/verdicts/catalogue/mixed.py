"""Faults amid what is no fault: evaluations, saves, a restart."""

from tests.verdicts.catalogue.balance import IDLE_GPU
from tests.verdicts.catalogue.batch import FULL_PACE
from tests.verdicts.catalogue.idle import HUNG
from tests.verdicts.catalogue.memory import FLAT, FLAT_PERCENT
from tests.verdicts.catalogue.stepping import EVALUATING, SAVING
from tests.verdicts.catalogue.stock import HEALTHY, STARTING, ordinary, starved_by_cores
from tests.verdicts.description import Flaws, Growth, Job, Load, Piece
from tests.verdicts.machines import G5_2XLARGE, P3_2XLARGE, P3_8XLARGE
from tests.verdicts.truth import Fault

GROUP = "faults amid interruptions"

JOBS = (
    Job(
        name="leak-with-evaluations",
        group=GROUP,
        about="Memory grows from 33 to 83 %; every 20 minutes an evaluation of 3 minutes at 45 %.",
        machine=P3_2XLARGE,
        minutes=150,
        interval_s=1.0,
        pieces=ordinary(150, FLAT, Piece(load=EVALUATING, start_min=20, every_min=20, for_min=3)),
        growth=(Growth(points=50, start_min=10, end_min=150),),
        faults=(Fault(kind="leak", onset_min=10, fails_in_h=(100 - FLAT_PERCENT - 50) / (50 / 140) / 60),),
    ),
    Job(
        name="loader-full-with-saves",
        group=GROUP,
        about="The GPU waits half of the time for full cores; every 20 minutes a checkpoint of a minute.",
        machine=G5_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, starved_by_cores(0.5), Piece(load=SAVING, start_min=20, every_min=20, for_min=1)),
        faults=(Fault(kind="loader, cores full", onset_min=2, wasted_min=0.5 * 112),),
    ),
    Job(
        name="dead-gpu-with-a-restart",
        group=GROUP,
        about="One GPU of four does nothing; the instance is taken away once, for 10 minutes.",
        machine=P3_8XLARGE,
        minutes=120,
        interval_s=2.0,
        pieces=ordinary(
            120,
            HEALTHY,
            Piece(load=IDLE_GPU, gpus=(3,)),
            Piece(load=STARTING, start_min=50, end_min=60),
        ),
        flaws=Flaws(gaps=((50, 56),)),
        faults=(Fault(kind="dead GPU", onset_min=2, wasted_min=107 / 4, gpus=(3,)),),
    ),
    Job(
        name="hang-after-evaluations",
        group=GROUP,
        about="Evaluations of 3 minutes every 20; at minute 70 of 120 the GPU stops for good.",
        machine=G5_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=(
            *ordinary(120, HEALTHY, Piece(load=EVALUATING, start_min=20, every_min=20, for_min=3)),
            Piece(load=HUNG, start_min=70),
        ),
        faults=(Fault(kind="hang", onset_min=70, wasted_min=50),),
    ),
    Job(
        name="batch-30-with-saves",
        group=GROUP,
        about="GPU at 30 %, cores free; every 15 minutes a checkpoint of a minute.",
        machine=G5_2XLARGE,
        minutes=90,
        interval_s=1.0,
        pieces=ordinary(
            90,
            Load(busy=30, spread=4, memory=0.3, cores=14, process=45),
            Piece(load=SAVING, start_min=15, every_min=15, for_min=1),
        ),
        faults=(Fault(kind="small batch", onset_min=2, wasted_min=(1 - 30 / FULL_PACE) * 82),),
    ),
)
