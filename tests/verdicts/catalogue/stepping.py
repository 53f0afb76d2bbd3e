"""Slow steps, saves of checkpoints, and evaluations."""

from tests.verdicts.catalogue.stock import HEALTHY, ordinary
from tests.verdicts.description import Job, Load, Piece, Steps
from tests.verdicts.machines import G5_2XLARGE, G5_12XLARGE, P3_2XLARGE, P3_8XLARGE, P3_16XLARGE
from tests.verdicts.truth import Fault

SAVING = Load(busy=0.0, memory=0.0, cores=6.0, io_cores=0.1, io_wait=45.0, read=2e8)
EVALUATING = Load(busy=45.0, memory=0.35)

SLOW_STEPS = (
    Job(
        name="slow-steps-every-20th",
        group="step outliers",
        about="Every twentieth step takes eleven times as long: a third of the time.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60),
        steps=Steps(step_s=0.5, gap_s=0.01, slow_every=20, slow_s=5.5),
        faults=(Fault(kind="slow steps", onset_min=2, wasted_min=57 * 5.0 / 15.2),),
    ),
    Job(
        name="slow-steps-every-40th",
        group="step outliers",
        about="Every fortieth step takes seven times as long: an eighth of the time.",
        machine=P3_2XLARGE,
        minutes=75,
        pieces=ordinary(75),
        steps=Steps(step_s=0.5, gap_s=0.01, slow_every=40, slow_s=3.5),
        faults=(Fault(kind="slow steps", strength="medium", onset_min=2, wasted_min=72 * 3.0 / 23.4),),
    ),
    Job(
        name="slow-steps-2-nodes",
        group="step outliers",
        about="On two nodes every tenth step takes eight times as long: two fifths of the time.",
        machine=P3_8XLARGE,
        minutes=60,
        interval_s=1.0,
        nodes=2,
        pieces=ordinary(60),
        steps=Steps(step_s=0.5, gap_s=0.01, slow_every=10, slow_s=4.0),
        faults=(Fault(kind="slow steps", onset_min=2, wasted_min=2 * 57 * 3.5 / 8.6),),
    ),
    Job(
        name="steps-regular",
        group="step outliers",
        about="Regular steps that differ by a few percent.",
        machine=G5_2XLARGE,
        minutes=75,
        pieces=ordinary(75),
        steps=Steps(step_s=0.5),
    ),
    Job(
        name="steps-with-rare-saves",
        group="step outliers",
        about="Every 600th step saves for 8 s: under 3 % of the time.",
        machine=P3_8XLARGE,
        minutes=90,
        interval_s=1.0,
        pieces=ordinary(90),
        steps=Steps(step_s=0.5, slow_every=600, slow_s=8.5),
    ),
    Job(
        name="steps-with-loaders",
        group="step outliers",
        about="Healthy steps fed by eight loader processes on eight cores.",
        machine=G5_2XLARGE,
        minutes=60,
        pieces=ordinary(60, Load(cores=45)),
        steps=Steps(step_s=0.5, workers=8, fetch_s=0.005),
    ),
)

PAUSES = (
    Job(
        name="saves-2-min-every-30",
        group="checkpoints",
        about="A checkpoint of 2 minutes every 30: under 7 % of the time.",
        machine=G5_12XLARGE,
        minutes=150,
        interval_s=2.0,
        pieces=ordinary(150, HEALTHY, Piece(load=SAVING, start_min=30, every_min=30, for_min=2)),
    ),
    Job(
        name="saves-45-s-every-10",
        group="checkpoints",
        about="A checkpoint of 45 s every ten minutes.",
        machine=G5_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, HEALTHY, Piece(load=SAVING, start_min=10, every_min=10, for_min=0.75)),
    ),
    Job(
        name="saves-2-and-a-half-min-every-20",
        group="checkpoints",
        about="A checkpoint of 2.5 minutes every 20: an eighth of the time, worth a note and no alarm.",
        machine=P3_8XLARGE,
        minutes=150,
        interval_s=1.0,
        pieces=ordinary(150, HEALTHY, Piece(load=SAVING, start_min=20, every_min=20, for_min=2.5)),
    ),
    Job(
        name="saves-3-min-every-10",
        group="checkpoints",
        about="A checkpoint of 3 minutes every ten: 30 % of the time.",
        machine=P3_8XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, HEALTHY, Piece(load=SAVING, start_min=9, every_min=10, for_min=3)),
        faults=(Fault(kind="heavy checkpoints", strength="medium", onset_min=9, wasted_min=11 * 3),),
    ),
    Job(
        name="evaluates-3-min-every-20",
        group="evaluations",
        about="An evaluation of 3 minutes every 20 uses the GPU at 45 %.",
        machine=G5_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, HEALTHY, Piece(load=EVALUATING, start_min=20, every_min=20, for_min=3)),
    ),
    Job(
        name="evaluates-4-min-every-15",
        group="evaluations",
        about="An evaluation of 4 minutes every 15 uses eight GPUs at 60 %.",
        machine=P3_16XLARGE,
        minutes=90,
        interval_s=2.0,
        pieces=ordinary(90, HEALTHY, Piece(load=Load(busy=60, memory=0.35), start_min=15, every_min=15, for_min=4)),
    ),
    Job(
        name="evaluates-10-min-at-the-end",
        group="evaluations",
        about="The last ten minutes of 100 are an evaluation at 50 % of the GPU.",
        machine=G5_2XLARGE,
        minutes=100,
        interval_s=1.0,
        pieces=ordinary(100, HEALTHY, Piece(load=Load(busy=50, memory=0.35), start_min=89, end_min=99)),
    ),
    Job(
        name="evaluates-90-s-every-25",
        group="evaluations",
        about="Every 25 minutes samples are drawn for 90 s at 12 % of the GPU.",
        machine=P3_2XLARGE,
        minutes=120,
        interval_s=0.5,
        pieces=ordinary(120, HEALTHY, Piece(load=Load(busy=12), start_min=25, every_min=25, for_min=1.5)),
    ),
)

JOBS = SLOW_STEPS + PAUSES
