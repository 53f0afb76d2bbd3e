"""Jobs that begin late, compile, warm up or begin again."""

from tests.verdicts.labelled.catalogue.stock import HEALTHY, STARTING, ordinary
from tests.verdicts.labelled.description import Flaws, Job, Load, Piece, Steps
from tests.verdicts.labelled.machines import G5_2XLARGE, P3_2XLARGE, P3_8XLARGE, P4D
from tests.verdicts.labelled.truth import Fault

COMPILING = Load(busy=0.0, memory=0.0, cores=20.0, full_cores=0.6)
# Minutes for which the first batch touches the GPUs before everything is compiled.
TOUCH_MIN = 0.05


def _compiled(minutes: float, compile_min: float) -> tuple[Piece, ...]:
    touched = 2.0 + TOUCH_MIN
    return ordinary(minutes, HEALTHY, Piece(load=COMPILING, start_min=touched, end_min=touched + compile_min))


JOBS = (
    Job(
        name="first-step-at-minute-25",
        group="slow initialization",
        about="The first step comes after 25 minutes of 60.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60, HEALTHY, start_min=25),
        steps=Steps(first_min=25),
        faults=(Fault(kind="late start", strength="medium", onset_min=0, end_min=25, wasted_min=(5, 25)),),
    ),
    Job(
        name="first-step-at-minute-45",
        group="slow initialization",
        about="The first step comes after 45 minutes of 90.",
        machine=P3_8XLARGE,
        minutes=90,
        interval_s=1.0,
        pieces=ordinary(90, HEALTHY, start_min=45),
        steps=Steps(first_min=45),
        faults=(Fault(kind="late start", onset_min=0, end_min=45, wasted_min=(25, 45)),),
    ),
    Job(
        name="first-step-at-minute-30-2-nodes",
        group="slow initialization",
        about="Two nodes copy their data for half an hour of 75 minutes.",
        machine=P3_2XLARGE,
        minutes=75,
        interval_s=1.0,
        nodes=2,
        pieces=ordinary(75, HEALTHY, start_min=30),
        steps=Steps(first_min=30),
        faults=(Fault(kind="late start", onset_min=0, end_min=30, wasted_min=(20, 60)),),
    ),
    Job(
        name="first-step-at-minute-12",
        group="slow initialization",
        about="The first step comes after 12 minutes of two hours.",
        machine=G5_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, HEALTHY, start_min=12),
        steps=Steps(first_min=12),
    ),
    Job(
        name="first-step-at-minute-18",
        group="slow initialization",
        about="The first step comes after 18 minutes of four hours.",
        machine=G5_2XLARGE,
        minutes=240,
        interval_s=2.0,
        pieces=ordinary(240, HEALTHY, start_min=18),
        steps=Steps(first_min=18),
    ),
    Job(
        name="compiles-six-times",
        group="start-up, healthy",
        about="Six compilations of 40 s, a minute apart, for as many shapes of input.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(
            60, HEALTHY, Piece(load=COMPILING, start_min=2.1, end_min=12.2, every_min=100 / 60, for_min=40 / 60)
        ),
    ),
    Job(
        name="compiles-9-min",
        group="start-up, healthy",
        about="The GPU is touched for 3 s, then 9 minutes of compilation on hot cores, then 48 healthy minutes.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=_compiled(60, 9),
    ),
    Job(
        name="compiles-9-min-8-gpus",
        group="start-up, healthy",
        about="The same on eight GPUs, sampled every 2 s.",
        machine=P4D,
        minutes=75,
        interval_s=2.0,
        pieces=_compiled(75, 9),
    ),
    Job(
        name="warms-up-10-min",
        group="start-up, healthy",
        about="The first ten minutes use small batches: the GPU is at 40 %.",
        machine=G5_2XLARGE,
        minutes=90,
        interval_s=1.0,
        pieces=ordinary(90, HEALTHY, Piece(load=Load(busy=40, memory=0.35), start_min=2, end_min=12)),
    ),
    Job(
        name="restarts-once",
        group="restarts",
        about="A spot instance is taken away: 6 minutes without samples, 4 of start-up, and on it goes.",
        machine=P3_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, HEALTHY, Piece(load=STARTING, start_min=50, end_min=60)),
        flaws=Flaws(gaps=((50, 56),)),
    ),
    Job(
        name="restarts-twice",
        group="restarts",
        about="Taken away twice in three hours.",
        machine=G5_2XLARGE,
        minutes=180,
        interval_s=2.0,
        pieces=ordinary(
            180,
            HEALTHY,
            Piece(load=STARTING, start_min=50, end_min=60),
            Piece(load=STARTING, start_min=120, end_min=128),
        ),
        flaws=Flaws(gaps=((50, 55), (120, 125))),
    ),
)
