"""GPU memory that grows, and memory that only moves."""

from tests.verdicts.labelled.catalogue.stock import HEALTHY, ordinary
from tests.verdicts.labelled.description import Growth, Job, Load, Piece
from tests.verdicts.labelled.machines import G5_2XLARGE, P3_2XLARGE, P3_8XLARGE
from tests.verdicts.labelled.truth import Fault

# Memory counter at 33 %.
FLAT = Load(memory=0.35)

FLAT_PERCENT = 33.0


def _fails_in_h(points: float, over_min: float) -> float:
    """Return the hours from the job's end until the memory is full at the same rate."""
    return (100.0 - FLAT_PERCENT - points) / (points / over_min) / 60.0


LEAKS = (
    Job(
        name="leak-line-55-in-110-min",
        group="memory leak",
        about="Memory grows from 33 to 88 % in a straight line.",
        machine=P3_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, FLAT),
        growth=(Growth(points=55, start_min=10, end_min=120),),
        faults=(Fault(kind="leak", onset_min=10, fails_in_h=_fails_in_h(55, 110)),),
    ),
    Job(
        name="leak-line-24-in-170-min",
        group="memory leak",
        about="Four GPUs' memory grows from 33 to 57 % in a straight line.",
        machine=P3_8XLARGE,
        minutes=180,
        interval_s=2.0,
        pieces=ordinary(180, FLAT),
        growth=(Growth(points=24, start_min=10, end_min=180),),
        faults=(Fault(kind="leak", strength="medium", onset_min=10, fails_in_h=_fails_in_h(24, 170)),),
    ),
    Job(
        name="leak-stairs-8-of-7",
        group="memory leak",
        about="Every 17 minutes memory jumps by 7 points and stays there.",
        machine=G5_2XLARGE,
        minutes=150,
        interval_s=1.0,
        pieces=ordinary(150, FLAT),
        growth=(Growth(points=56, start_min=10, end_min=146, shape="stairs", stairs=8),),
        faults=(Fault(kind="leak", onset_min=27, fails_in_h=_fails_in_h(56, 136)),),
    ),
    Job(
        name="leak-stairs-4-of-7",
        group="memory leak",
        about="Every 45 minutes memory jumps by 7 points and stays there.",
        machine=G5_2XLARGE,
        minutes=210,
        interval_s=2.0,
        pieces=ordinary(210, FLAT),
        growth=(Growth(points=28, start_min=10, end_min=190, shape="stairs", stairs=4),),
        faults=(Fault(kind="leak", strength="medium", onset_min=55, fails_in_h=_fails_in_h(28, 180)),),
    ),
    Job(
        name="leak-on-one-gpu-of-4",
        group="memory leak",
        about="One process of four leaks: its GPU's memory grows from 33 to 88 %.",
        machine=P3_8XLARGE,
        minutes=120,
        interval_s=2.0,
        pieces=ordinary(120, FLAT),
        growth=(Growth(points=55, start_min=10, end_min=120, gpus=(2,)),),
        faults=(Fault(kind="leak", onset_min=10, fails_in_h=_fails_in_h(55, 110), gpus=(2,)),),
    ),
    Job(
        name="leak-from-minute-200",
        group="memory leak",
        about="From minute 200 of 300 on memory grows from 33 to 73 %.",
        machine=P3_2XLARGE,
        minutes=300,
        interval_s=5.0,
        pieces=ordinary(300, FLAT),
        growth=(Growth(points=40, start_min=200, end_min=300),),
        faults=(Fault(kind="leak", onset_min=200, fails_in_h=_fails_in_h(40, 100)),),
    ),
)

NEAR_MISSES = (
    Job(
        name="memory-levels-off",
        group="memory, healthy",
        about="Caches fill for half an hour, 25 points, and stay as they are for 90 minutes.",
        machine=P3_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, FLAT),
        growth=(Growth(points=25, start_min=2, end_min=90, shape="plateau"),),
    ),
    Job(
        name="memory-levels-off-in-the-middle",
        group="memory, healthy",
        about="A second cache fills from minute 60 on: 30 points in 20 minutes, and then flat for two hours.",
        machine=P3_8XLARGE,
        minutes=200,
        interval_s=2.0,
        pieces=ordinary(200, FLAT),
        growth=(Growth(points=30, start_min=60, end_min=120, shape="plateau"),),
    ),
    Job(
        name="memory-fills-15-min",
        group="memory, healthy",
        about="An allocator fills its pool for 15 minutes, 14 points, and then no more.",
        machine=G5_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, FLAT),
        growth=(Growth(points=14, start_min=2, end_min=17),),
    ),
    Job(
        name="memory-follows-utilization",
        group="memory, healthy",
        about="Utilization rises from 74 to 97 % with the length of the samples, and memory activity with it.",
        machine=P3_2XLARGE,
        minutes=150,
        interval_s=1.0,
        pieces=ordinary(150, Load(busy=74, busy_to=97, memory=0.8)),
    ),
    Job(
        name="memory-peaks-in-evaluations",
        group="memory, healthy",
        about="Every 25 minutes an evaluation of 3 minutes takes 20 points more.",
        machine=P3_8XLARGE,
        minutes=120,
        interval_s=2.0,
        pieces=ordinary(120, HEALTHY, Piece(load=Load(memory=0.72), start_min=20, every_min=25, for_min=3)),
    ),
)

JOBS = LEAKS + NEAR_MISSES
