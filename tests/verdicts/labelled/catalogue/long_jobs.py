"""Several faults in one job, and faults that begin late in a long one."""

from tests.verdicts.labelled.catalogue.balance import IDLE_GPU
from tests.verdicts.labelled.catalogue.idle import HUNG
from tests.verdicts.labelled.catalogue.memory import FLAT, FLAT_PERCENT
from tests.verdicts.labelled.catalogue.stock import HEALTHY, SPINNING, ordinary, starved_by_cores, starved_by_disk
from tests.verdicts.labelled.description import Growth, Job, Piece
from tests.verdicts.labelled.machines import G5_12XLARGE, P3_2XLARGE, P3_8XLARGE, P3_16XLARGE
from tests.verdicts.labelled.truth import Fault

_FULL_IN_H = (100 - FLAT_PERCENT - 20) / (20 / 100) / 60

SEVERAL = (
    Job(
        name="three-faults-4-gpus",
        group="three faults",
        about="Cores too slow from minute 20 to 80, a hang from 110 to 155, a GPU without work from 180 on.",
        machine=G5_12XLARGE,
        minutes=240,
        interval_s=2.0,
        pieces=ordinary(
            240,
            HEALTHY,
            Piece(load=starved_by_cores(0.5), start_min=20, end_min=80),
            Piece(load=HUNG, start_min=110, end_min=155),
            Piece(load=IDLE_GPU, start_min=180, gpus=(1,)),
        ),
        faults=(
            Fault(kind="hang", onset_min=110, end_min=155, wasted_min=45),
            Fault(kind="loader, cores full", strength="medium", onset_min=20, end_min=80, wasted_min=30),
            Fault(kind="GPU that stops", strength="medium", onset_min=180, wasted_min=60 / 4, gpus=(1,)),
        ),
    ),
    Job(
        name="three-faults-with-a-leak",
        group="three faults",
        about="A slow disk from minute 20 to 110, a hang from 140 to 170, a leak from 200 on.",
        machine=P3_2XLARGE,
        minutes=300,
        interval_s=2.0,
        pieces=ordinary(
            300,
            FLAT,
            Piece(load=starved_by_disk(0.6), start_min=20, end_min=110),
            Piece(load=HUNG, start_min=140, end_min=170),
        ),
        growth=(Growth(points=20, start_min=200, end_min=300),),
        faults=(
            Fault(kind="loader, disk", onset_min=20, end_min=110, wasted_min=54),
            Fault(kind="hang", strength="medium", onset_min=140, end_min=170, wasted_min=30),
            Fault(kind="leak", strength="medium", onset_min=200, fails_in_h=_FULL_IN_H),
        ),
    ),
    Job(
        name="three-faults-2-nodes",
        group="three faults",
        about="Node 2 waits for its disk from minute 30 to 80, both hang from 100 to 140, cores too slow from 150 on.",
        machine=P3_8XLARGE,
        minutes=200,
        interval_s=5.0,
        nodes=2,
        pieces=ordinary(
            200,
            HEALTHY,
            Piece(load=SPINNING, start_min=30, end_min=80, nodes=(1,)),
            Piece(load=starved_by_disk(0.5), start_min=30, end_min=80, nodes=(2,)),
            Piece(load=HUNG, start_min=100, end_min=140),
            Piece(load=starved_by_cores(0.6), start_min=150),
        ),
        faults=(
            Fault(kind="hang", onset_min=100, end_min=140, wasted_min=80),
            Fault(kind="loader, cores full", onset_min=150, end_min=199, wasted_min=2 * 0.6 * 49),
            Fault(
                kind="slow node",
                strength="medium",
                onset_min=30,
                end_min=80,
                wasted_min=(25, 50),
                nodes=(2,),
            ),
        ),
    ),
)

LATE = (
    Job(
        name="hang-at-hour-20-of-24",
        group="late in a long job",
        about="Eight GPUs stop for two hours at hour 20 of 24.",
        machine=P3_16XLARGE,
        minutes=1440,
        interval_s=60.0,
        pieces=ordinary(1440, HEALTHY, Piece(load=HUNG, start_min=1200, end_min=1320)),
        faults=(Fault(kind="hang", onset_min=1200, end_min=1320, wasted_min=120),),
    ),
    Job(
        name="cores-full-from-hour-20-of-24",
        group="late in a long job",
        about="From hour 20 of 24 on the GPUs wait 60 % of the time for full cores.",
        machine=P3_8XLARGE,
        minutes=1440,
        interval_s=30.0,
        pieces=ordinary(1440, HEALTHY, Piece(load=starved_by_cores(0.6), start_min=1200)),
        faults=(Fault(kind="loader, cores full", onset_min=1200, end_min=1439, wasted_min=0.6 * 239),),
    ),
    Job(
        name="dead-gpu-from-hour-20-of-24",
        group="late in a long job",
        about="One GPU of eight does nothing from hour 20 of 24 on.",
        machine=P3_16XLARGE,
        minutes=1440,
        interval_s=60.0,
        pieces=ordinary(1440, HEALTHY, Piece(load=IDLE_GPU, start_min=1200, gpus=(4,))),
        faults=(Fault(kind="GPU that stops", strength="medium", onset_min=1200, wasted_min=240 / 8, gpus=(4,)),),
    ),
    Job(
        name="healthy-24-hours",
        group="late in a long job",
        about="A healthy day with a checkpoint of 3 minutes every two hours.",
        machine=P3_16XLARGE,
        minutes=1440,
        interval_s=60.0,
        pieces=ordinary(1440, HEALTHY, Piece(load=HUNG, start_min=120, every_min=120, for_min=3)),
    ),
)

JOBS = SEVERAL + LATE
