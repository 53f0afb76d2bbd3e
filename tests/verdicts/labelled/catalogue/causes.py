"""Jobs with several causes, with faults that begin and end at odd minutes, and with what stops by itself."""

from dataclasses import replace

from tests.verdicts.labelled.catalogue.balance import IDLE_GPU
from tests.verdicts.labelled.catalogue.stock import (
    HEALTHY,
    SPINNING,
    ordinary,
    starved,
    starved_by_cores,
    starved_by_disk,
)
from tests.verdicts.labelled.description import Collected, Growth, Job, Load, Piece
from tests.verdicts.labelled.machines import G5_12XLARGE, P3_2XLARGE, P3_8XLARGE, P4D
from tests.verdicts.labelled.truth import Fault

GROUP = "several causes"


def _waits_alone(begin: float, end: float, wait: float, gpu: int = 1) -> tuple[Piece, Piece]:
    """Return one GPU of four that waits, while the others spin."""
    others = tuple(each for each in range(4) if each != gpu)
    return (
        Piece(load=SPINNING, start_min=begin, end_min=end, gpus=others),
        Piece(load=starved(wait, cycle_s=2.3), start_min=begin, end_min=end, gpus=(gpu,)),
    )


JOBS = (
    Job(
        name="cores-then-disk-then-one-gpu",
        group=GROUP,
        about="Full cores from minute 61 to 104, a slow disk from 151 to 189, one GPU waits from 241 to 301.",
        machine=G5_12XLARGE,
        minutes=360,
        interval_s=2.0,
        start_min=7,
        pieces=ordinary(
            360,
            HEALTHY,
            Piece(load=starved_by_cores(0.65), start_min=61, end_min=104),
            Piece(load=starved_by_disk(0.75), start_min=151, end_min=189),
            *_waits_alone(241, 301, 0.55),
        ),
        faults=(
            Fault(kind="loader, disk", strength="medium", onset_min=151, end_min=189, wasted_min=0.75 * 38),
            Fault(kind="loader, cores full", strength="medium", onset_min=61, end_min=104, wasted_min=0.65 * 43),
            Fault(kind="slow GPU", strength="medium", onset_min=241, end_min=301, wasted_min=0.55 * 60 / 4, gpus=(1,)),
        ),
    ),
    Job(
        name="two-nodes-two-causes",
        group=GROUP,
        about="From minute 63 to 131 the cores of one node are full, and the other node waits for its disk.",
        machine=G5_12XLARGE,
        minutes=180,
        interval_s=5.0,
        nodes=2,
        start_min=3,
        pieces=ordinary(
            180,
            HEALTHY,
            Piece(load=starved_by_cores(0.65), start_min=63, end_min=131, nodes=(1,)),
            Piece(load=starved_by_disk(0.7), start_min=63, end_min=131, nodes=(2,)),
        ),
        faults=(
            Fault(kind="loader, disk", onset_min=63, end_min=131, wasted_min=0.7 * 68, nodes=(2,)),
            Fault(kind="loader, cores full", onset_min=63, end_min=131, wasted_min=0.65 * 68, nodes=(1,)),
        ),
    ),
    Job(
        name="all-gpus-first-and-one-later",
        group=GROUP,
        about="All GPUs wait for full cores from minute 62 to 107; from 243 to 299 one GPU waits alone.",
        machine=P3_8XLARGE,
        minutes=330,
        interval_s=5.0,
        start_min=4,
        pieces=ordinary(
            330,
            HEALTHY,
            Piece(load=starved_by_cores(0.65), start_min=62, end_min=107),
            *_waits_alone(243, 299, 0.6),
        ),
        faults=(
            Fault(kind="loader, cores full", strength="medium", onset_min=62, end_min=107, wasted_min=0.65 * 45),
            Fault(kind="slow GPU", strength="medium", onset_min=243, end_min=299, wasted_min=0.6 * 56 / 4, gpus=(1,)),
        ),
    ),
    Job(
        name="gpu-waits-from-69-to-127",
        group="slow GPU",
        about="One GPU of four waits 60 % of its time from minute 69 to 127 of 210; the others spin.",
        machine=P3_8XLARGE,
        minutes=210,
        interval_s=5.0,
        start_min=6,
        pieces=ordinary(210, HEALTHY, *_waits_alone(69, 127, 0.6, gpu=2)),
        faults=(
            Fault(kind="slow GPU", strength="medium", onset_min=69, end_min=127, wasted_min=0.6 * 58 / 4, gpus=(2,)),
        ),
    ),
    Job(
        name="slow-node-from-53-to-118",
        group="slow node",
        about="One node of four computes 40 % less from minute 53 to 118 of 190; the others spin.",
        machine=P3_2XLARGE,
        minutes=190,
        interval_s=5.0,
        nodes=4,
        start_min=8,
        pieces=ordinary(
            190,
            HEALTHY,
            Piece(load=SPINNING, start_min=53, end_min=118, nodes=(1, 2, 4)),
            Piece(load=Load(busy=57, spread=2.0, drift=1.0), start_min=53, end_min=118, nodes=(3,)),
        ),
        faults=(Fault(kind="slow node", onset_min=53, end_min=118, wasted_min=(0.4 * 65, 4 * 0.4 * 65), nodes=(3,)),),
    ),
    Job(
        name="gpu-stops-at-47-of-8",
        group="dead GPU",
        about="One GPU of eight works for 47 minutes, and then does nothing until the end; the others go on.",
        machine=P4D,
        minutes=120,
        interval_s=5.0,
        start_min=5,
        pieces=ordinary(
            120,
            HEALTHY,
            Piece(load=replace(SPINNING, busy=99.0), start_min=47, end_min=119),
            Piece(load=IDLE_GPU, start_min=47, gpus=(5,)),
        ),
        faults=(Fault(kind="GPU that stops", onset_min=47, wasted_min=72 / 8, gpus=(5,)),),
    ),
    Job(
        name="pool-that-fills-up",
        group="memory that fills up",
        about="A pool takes 33 GB of GPU memory within 40 minutes, evenly, and nothing more in the 3 hours after that.",
        machine=P3_2XLARGE,
        minutes=240,
        interval_s=5.0,
        pieces=ordinary(240),
        collected=Collected(used_gb=36.0, held=(Growth(points=33, start_min=5, end_min=45),)),
        faults=(Fault(kind="memory that fills up", strength="medium", onset_min=5, end_min=45),),
    ),
)
