"""GPUs and nodes that do less than the others."""

from dataclasses import replace

from tests.verdicts.labelled.catalogue.stock import (
    HEALTHY,
    QUIET,
    SPINNING,
    ordinary,
    starved,
    starved_by_cores,
    starved_by_disk,
)
from tests.verdicts.labelled.description import Job, Load, Piece
from tests.verdicts.labelled.machines import G5_12XLARGE, P3_2XLARGE, P3_8XLARGE, P3_16XLARGE, P4D
from tests.verdicts.labelled.truth import Fault

IDLE_GPU = Load(busy=0.0, memory=0.0)
STEADY = Load(spread=2.0, drift=1.0)


def _training(minutes: float, load: Load, *, nodes: tuple[int, ...] = (), gpus: tuple[int, ...] = ()) -> Piece:
    return Piece(load=load, start_min=2, end_min=minutes - 1, nodes=nodes, gpus=gpus)


GPUS = (
    Job(
        name="dead-gpu-of-8",
        group="dead GPU",
        about="Seven processes were started for eight GPUs.",
        machine=P4D,
        minutes=60,
        interval_s=5.0,
        pieces=ordinary(60, HEALTHY, _training(60, IDLE_GPU, gpus=(5,))),
        faults=(Fault(kind="dead GPU", onset_min=2, wasted_min=57 / 8, gpus=(5,)),),
    ),
    Job(
        name="dead-gpus-2-of-4",
        group="dead GPU",
        about="Two GPUs of four were never given work.",
        machine=G5_12XLARGE,
        minutes=60,
        interval_s=1.0,
        pieces=ordinary(60, HEALTHY, _training(60, IDLE_GPU, gpus=(2, 3))),
        faults=(Fault(kind="dead GPU", onset_min=2, wasted_min=57 / 2, gpus=(2, 3)),),
    ),
    Job(
        name="gpu-dies-at-minute-40",
        group="dead GPU",
        about="One GPU of four does nothing from minute 40 of 100 on; the others go on.",
        machine=P3_8XLARGE,
        minutes=100,
        interval_s=1.0,
        pieces=ordinary(100, HEALTHY, Piece(load=IDLE_GPU, start_min=40, gpus=(2,))),
        faults=(Fault(kind="GPU that stops", onset_min=40, wasted_min=60 / 4, gpus=(2,)),),
    ),
    Job(
        name="slow-gpu-40-of-8",
        group="slow GPU",
        about="One GPU of eight does 40 % less; the others spin at 100 % while they wait for it.",
        machine=P3_16XLARGE,
        minutes=90,
        interval_s=2.0,
        pieces=ordinary(90, SPINNING, _training(90, replace(STEADY, busy=60), gpus=(3,))),
        faults=(Fault(kind="slow GPU", onset_min=2, wasted_min=(0.4 * 87 / 8, 0.4 * 87), gpus=(3,)),),
    ),
    Job(
        name="slow-gpu-25-of-8",
        group="slow GPU",
        about="One GPU of eight does a quarter less; the others spin.",
        machine=P4D,
        minutes=90,
        interval_s=5.0,
        pieces=ordinary(90, SPINNING, _training(90, replace(STEADY, busy=74), gpus=(6,))),
        faults=(
            Fault(
                kind="slow GPU",
                strength="medium",
                onset_min=2,
                wasted_min=(0.25 * 87 / 8, 0.25 * 87),
                gpus=(6,),
            ),
        ),
    ),
    Job(
        name="gpu-waits-40-of-8",
        group="slow GPU",
        about="One process of eight waits 40 % of the time, in stretches of 4 s; the others spin.",
        machine=P3_16XLARGE,
        minutes=75,
        interval_s=2.0,
        pieces=ordinary(75, SPINNING, _training(75, starved(0.4, cycle_s=10), gpus=(2,))),
        faults=(
            Fault(
                kind="slow GPU",
                strength="medium",
                onset_min=2,
                wasted_min=(0.4 * 72 / 8, 0.4 * 72),
                gpus=(2,),
            ),
        ),
    ),
    Job(
        name="first-gpu-does-more-of-4",
        group="slow GPU",
        about="One process gathers for all: its GPU is full, the three others are at 55 %.",
        machine=G5_12XLARGE,
        minutes=60,
        interval_s=1.0,
        pieces=ordinary(60, replace(STEADY, busy=55), _training(60, replace(STEADY, busy=98), gpus=(0,))),
        faults=(Fault(kind="slow GPU", onset_min=2, wasted_min=0.44 * 57 * 3 / 4),),
    ),
    Job(
        name="imbalance-of-5-points",
        group="small imbalance",
        about="Eight GPUs between 91 and 97 %, steadily.",
        machine=P4D,
        minutes=60,
        interval_s=5.0,
        pieces=ordinary(
            60,
            replace(STEADY, busy=97),
            _training(60, replace(STEADY, busy=94), gpus=(1, 4, 7)),
            _training(60, replace(STEADY, busy=91.5), gpus=(2,)),
        ),
    ),
    Job(
        name="imbalance-of-3-points-4-gpus",
        group="small imbalance",
        about="The first GPU also logs and is 3 points less busy, steadily.",
        machine=P3_8XLARGE,
        minutes=90,
        interval_s=1.0,
        pieces=ordinary(
            90, replace(STEADY, busy=98, spread=0.8), _training(90, replace(STEADY, busy=94.5, spread=0.8), gpus=(0,))
        ),
    ),
)

NODES = (
    Job(
        name="slow-node-of-4",
        group="slow node",
        about="One node of four waits half of the time for its disk; the others spin.",
        machine=G5_12XLARGE,
        minutes=60,
        interval_s=5.0,
        nodes=4,
        pieces=ordinary(60, SPINNING, _training(60, starved_by_disk(0.5, cycle_s=4), nodes=(3,))),
        faults=(Fault(kind="slow node", onset_min=2, wasted_min=(0.5 * 57, 4 * 0.5 * 57), nodes=(3,)),),
    ),
    Job(
        name="slow-node-30-of-8",
        group="slow node",
        about="One node of eight computes 30 % less; the others spin.",
        machine=P3_2XLARGE,
        minutes=60,
        interval_s=2.0,
        nodes=8,
        pieces=ordinary(60, replace(SPINNING, busy=98.5), _training(60, replace(STEADY, busy=68), nodes=(5,))),
        faults=(
            Fault(
                kind="slow node",
                strength="medium",
                onset_min=2,
                wasted_min=(0.3 * 57, 8 * 0.3 * 57),
                nodes=(5,),
            ),
        ),
    ),
    Job(
        name="slow-node-cores-of-16",
        group="slow node",
        about="One node of sixteen has full cores and waits 60 % of the time; the others spin.",
        machine=P3_2XLARGE,
        minutes=50,
        interval_s=10.0,
        nodes=16,
        pieces=ordinary(50, replace(SPINNING, busy=97), _training(50, starved_by_cores(0.6), nodes=(11,))),
        faults=(Fault(kind="slow node", onset_min=2, wasted_min=(0.6 * 47, 16 * 0.6 * 47), nodes=(11,)),),
    ),
    Job(
        name="node-stops-at-minute-20-of-8",
        group="dead node",
        about="One node of eight stops at minute 20 of 60; the others go on without it.",
        machine=P3_2XLARGE,
        minutes=60,
        interval_s=5.0,
        nodes=8,
        pieces=(*ordinary(60), Piece(load=QUIET, start_min=20, nodes=(2,))),
        faults=(Fault(kind="dead node", onset_min=20, wasted_min=40, nodes=(2,)),),
    ),
    Job(
        name="nodes-5-points-apart",
        group="small imbalance",
        about="One node of four is 5 points less busy, steadily.",
        machine=P3_8XLARGE,
        minutes=60,
        interval_s=5.0,
        nodes=4,
        pieces=ordinary(60, replace(STEADY, busy=94), _training(60, replace(STEADY, busy=89), nodes=(4,))),
    ),
    Job(
        name="first-gpu-evaluates-alone",
        group="evaluations",
        about="Every half hour one process evaluates for 2 minutes while the other three GPUs are idle.",
        machine=P3_8XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, HEALTHY, Piece(load=IDLE_GPU, start_min=30, every_min=30, for_min=2, gpus=(1, 2, 3))),
    ),
    Job(
        name="nodes-start-3-min-apart",
        group="healthy on many nodes",
        about="One node of four is up 3 minutes before the others, and waits for them.",
        machine=P3_2XLARGE,
        minutes=75,
        interval_s=2.0,
        nodes=4,
        pieces=ordinary(75, start_min=5),
        late_nodes=((2, 3.0), (3, 3.0), (4, 2.5)),
    ),
    Job(
        name="healthy-16-nodes",
        group="healthy on many nodes",
        about="Sixteen healthy nodes.",
        machine=P3_2XLARGE,
        minutes=60,
        interval_s=10.0,
        nodes=16,
        pieces=ordinary(60),
    ),
    Job(
        name="healthy-2-nodes-8-gpus",
        group="healthy on many nodes",
        about="Two healthy nodes of eight GPUs.",
        machine=P4D,
        minutes=60,
        interval_s=5.0,
        nodes=2,
        pieces=ordinary(60, Load(busy=96, spread=2)),
    ),
)

JOBS = GPUS + NODES
