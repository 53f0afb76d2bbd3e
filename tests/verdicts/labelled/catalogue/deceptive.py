"""Jobs that look like what they are not: idle and seldom sampled, short, hung while busy, or damaged in their files."""

from dataclasses import replace

from tests.verdicts.labelled.catalogue.collector import IN_COLLECTIVE
from tests.verdicts.labelled.catalogue.stock import HEALTHY, QUIET, SPINNING, STARTING, ordinary, starved
from tests.verdicts.labelled.description import Collected, Flaws, Growth, Job, Piece, Reading, Steps
from tests.verdicts.labelled.machines import G5_2XLARGE, G5_12XLARGE, P3_2XLARGE, P3_8XLARGE
from tests.verdicts.labelled.truth import LOW, Fault

ONE_FULL_CORE = replace(HEALTHY, full_cores=1 / 8)
POLLING = replace(IN_COLLECTIVE, effort=0.2, read=1e5, full_cores=1 / 8)


def _mostly_idle(interval_s: float, every_min: float, for_min: float, minutes: float = 90.0) -> Job:
    """Return a job whose GPUs work for a short while, again and again."""
    share = 1.0 - for_min / every_min
    return Job(
        name=f"mostly-idle-at-{interval_s:g}-s",
        group="idle in part",
        about=f"GPUs that work {for_min:g} of every {every_min:g} minutes, and do nothing in between.",
        machine=P3_8XLARGE,
        minutes=minutes,
        interval_s=interval_s,
        pieces=(
            Piece(load=STARTING),
            Piece(load=QUIET, start_min=3),
            Piece(load=HEALTHY, start_min=3, every_min=every_min, for_min=for_min),
        ),
        faults=(Fault(kind="idle in part", onset_min=3, wasted_min=(share * (minutes - 12), share * (minutes - 3))),),
    )


IDLE = (
    _mostly_idle(10.0, 8, 1.5),
    _mostly_idle(15.0, 12, 1),
    _mostly_idle(30.0, 10, 2),
    _mostly_idle(60.0, 15, 3, 150.0),
    Job(
        name="works-half-of-the-time-at-15-s",
        group="idle in part",
        about="Four GPUs work four minutes and pause four, for three hours.",
        machine=G5_12XLARGE,
        minutes=180,
        interval_s=15.0,
        pieces=(Piece(load=QUIET), Piece(load=HEALTHY, start_min=2, every_min=8, for_min=4)),
        faults=(Fault(kind="idle in part", onset_min=2, wasted_min=(0.5 * 170, 0.5 * 182)),),
    ),
    Job(
        name="gpu-full-of-others-memory",
        group="memory held",
        about="Another program fills the memory of GPU 0, so that nothing works there; the three others train.",
        machine=P3_8XLARGE,
        minutes=60,
        interval_s=1.0,
        pieces=ordinary(60, HEALTHY, Piece(load=QUIET, gpus=(0,))),
        collected=Collected(used_gb=30.0, held=(Growth(points=48, start_min=-1, end_min=-0.5, gpus=(0,)),)),
        faults=(
            Fault(
                kind="memory held while idle",
                onset_min=0,
                wasted_min=(57 / 4, 60 / 4),
                gpus=(0,),
                first=("LowGPUUtilization",),
            ),
        ),
    ),
)

UNEVEN = (
    Job(
        name="uneven-gpus-in-42-minutes",
        group="slow GPU",
        about="In a job of 42 minutes one GPU of four does half as much; the others spin.",
        machine=P3_8XLARGE,
        minutes=42,
        interval_s=5.0,
        pieces=ordinary(
            42, SPINNING, Piece(load=replace(HEALTHY, busy=48, spread=2.0), start_min=2, end_min=41, gpus=(3,))
        ),
        faults=(Fault(kind="slow GPU", onset_min=2, wasted_min=(0.5 * 39 / 4, 0.5 * 39), gpus=(3,)),),
    ),
    Job(
        name="core-as-full-in-good-minutes",
        group="loader, cores free",
        about="One core is full all along; from minute 60 on the GPU waits 60 % of the time, for another reason.",
        machine=P3_2XLARGE,
        minutes=120,
        interval_s=5.0,
        pieces=ordinary(
            120, ONE_FULL_CORE, Piece(load=replace(starved(0.6), full_cores=1 / 8), start_min=60, end_min=119)
        ),
        faults=(Fault(kind="loader, cores free", onset_min=60, end_min=119, wasted_min=0.6 * 59, first=(LOW,)),),
    ),
)

HUNG = (
    Job(
        name="hang-at-the-start-while-spinning",
        group="hang",
        about="From minute 3 on the GPUs of two nodes poll for each other: 100 % busy at a third of their power limit.",
        machine=P3_2XLARGE,
        minutes=45,
        interval_s=1.0,
        nodes=2,
        pieces=(Piece(load=STARTING), Piece(load=POLLING, start_min=3)),
        collected=Collected(
            readings=(Reading(name="PowerLimitWatts", value=420.0), Reading(name="SMActivityPercent", value=None))
        ),
        faults=(Fault(kind="hung collective", onset_min=3, wasted_min=(83, 84), fails_in_h=0.0),),
    ),
    Job(
        name="last-step-never-ends",
        group="hang",
        about="The step that begins at minute 35 goes on until the job is killed; its event says so.",
        machine=P3_8XLARGE,
        minutes=60,
        interval_s=1.0,
        pieces=(*ordinary(60), Piece(load=IN_COLLECTIVE, start_min=35)),
        collected=Collected(),
        steps=Steps(ranks=True, last_min=35, last_goes_on=True),
        faults=(Fault(kind="hung collective", onset_min=35, wasted_min=(24, 25), fails_in_h=0.0),),
    ),
)


def _short(minutes: float, interval_s: float) -> Job:
    return Job(
        name=f"healthy-{minutes:g}-minutes",
        group="short and healthy",
        about="A GPU that works from its start to its end.",
        machine=G5_2XLARGE,
        minutes=minutes,
        interval_s=interval_s,
        pieces=ordinary(minutes),
    )


SHORT = (_short(20, 5.0), _short(25, 15.0), _short(42, 15.0), _short(55, 30.0))

SOUND = (
    Job(
        name="asynchronous-dispatch",
        group="short and healthy",
        about="The host launches steps ahead and waits for the GPU in every tenth: the GPU is busy all the time.",
        machine=P3_2XLARGE,
        minutes=60,
        interval_s=1.0,
        pieces=ordinary(60, replace(HEALTHY, busy=97, spread=1.0)),
        steps=Steps(step_s=0.05, slow_every=10, slow_s=4.0, host_alone=True),
    ),
    Job(
        name="last-file-is-cut",
        group="damaged files",
        about="A healthy job whose newest file ends within a line.",
        machine=P3_2XLARGE,
        minutes=60,
        interval_s=5.0,
        pieces=ordinary(60),
        flaws=Flaws(cut=True),
    ),
    Job(
        name="a-minute-is-damaged",
        group="damaged files",
        about="A healthy job of which the file of minute 30 cannot be read.",
        machine=P3_2XLARGE,
        minutes=90,
        interval_s=5.0,
        pieces=ordinary(90),
        flaws=Flaws(damaged_min=30),
    ),
    Job(
        name="sampled-from-minute-6-on",
        group="damaged files",
        about="A healthy job that is sampled only from its sixth minute on, when it trains already.",
        machine=P3_2XLARGE,
        minutes=90,
        interval_s=5.0,
        pieces=ordinary(90),
        flaws=Flaws(gaps=((0, 6),)),
    ),
)

JOBS = (*IDLE, *UNEVEN, *HUNG, *SHORT, *SOUND)
