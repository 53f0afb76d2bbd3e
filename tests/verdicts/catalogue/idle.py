"""GPUs that do nothing: from the start, for a while, or for good."""

from tests.verdicts.catalogue.stock import HEALTHY, QUIET, STARTING, UPLOADING, ordinary
from tests.verdicts.description import Job, Load, Piece
from tests.verdicts.machines import G5_2XLARGE, G5_12XLARGE, G5_XLARGE, P3_2XLARGE, P3_8XLARGE, P3_16XLARGE
from tests.verdicts.truth import CPU, LOW, Fault

ON_CPU = Load(busy=0.0, memory=0.0, cores=55.0, full_cores=0.5)
HUNG = QUIET
HUNG_SPINNING = Load(busy=0.0, memory=0.0, cores=4.0, full_cores=0.01)

JOBS = (
    Job(
        name="idle-trains-on-cpu",
        group="idle from the start",
        about="The model was never placed on the GPU and trains on the cores.",
        machine=G5_XLARGE,
        minutes=60,
        pieces=(Piece(load=STARTING), Piece(load=ON_CPU, start_min=2)),
        faults=(Fault(kind="idle from the start", onset_min=0, wasted_min=(58, 60), first=(LOW,)),),
    ),
    Job(
        name="idle-waits-for-nothing",
        group="idle from the start",
        about="The script waits for a peer that never comes; nothing is used.",
        machine=G5_12XLARGE,
        minutes=90,
        interval_s=1.0,
        pieces=(Piece(load=QUIET),),
        faults=(Fault(kind="idle from the start", onset_min=0, wasted_min=(88, 90), first=(LOW,)),),
    ),
    Job(
        name="idle-first-40-of-120",
        group="idle from the start",
        about="Forty minutes of download before the GPU is touched; no framework metrics.",
        machine=P3_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, HEALTHY, start_min=40),
        faults=(Fault(kind="late start", strength="medium", onset_min=0, end_min=40, wasted_min=(35, 40)),),
    ),
    Job(
        name="idle-node-of-4",
        group="idle from the start",
        about="One node of four is never used; the others train without it.",
        machine=G5_12XLARGE,
        minutes=60,
        interval_s=5.0,
        nodes=4,
        pieces=(*ordinary(60), Piece(load=QUIET, nodes=(3,))),
        faults=(Fault(kind="dead node", onset_min=0, wasted_min=(57, 60), nodes=(3,)),),
    ),
    Job(
        name="hang-for-good-8-gpus",
        group="hang",
        about="All GPUs stop at minute 45 of 120 and never come back.",
        machine=P3_16XLARGE,
        minutes=120,
        interval_s=2.0,
        pieces=(*ordinary(120), Piece(load=HUNG, start_min=45)),
        faults=(Fault(kind="hang", onset_min=45, wasted_min=75),),
    ),
    Job(
        name="hang-40-min-recovers",
        group="hang",
        about="The GPU stops from minute 60 to 100 and goes on.",
        machine=G5_2XLARGE,
        minutes=150,
        interval_s=1.0,
        pieces=ordinary(150, HEALTHY, Piece(load=HUNG, start_min=60, end_min=100)),
        faults=(Fault(kind="hang", strength="medium", onset_min=60, end_min=100, wasted_min=40),),
    ),
    Job(
        name="hang-30-min-recovers-4-gpus",
        group="hang",
        about="Four GPUs stop from minute 50 to 80 of 100.",
        machine=P3_8XLARGE,
        minutes=100,
        interval_s=1.0,
        pieces=ordinary(100, HEALTHY, Piece(load=HUNG, start_min=50, end_min=80)),
        faults=(Fault(kind="hang", strength="medium", onset_min=50, end_min=80, wasted_min=30),),
    ),
    Job(
        name="hang-with-a-spinning-process",
        group="hang",
        about="The GPU stops for good at minute 40 while one core turns in a busy loop.",
        machine=G5_XLARGE,
        minutes=90,
        pieces=(*ordinary(90), Piece(load=HUNG_SPINNING, start_min=40)),
        faults=(Fault(kind="hang", onset_min=40, wasted_min=50, first=(LOW, CPU)),),
    ),
    Job(
        name="hang-4-nodes",
        group="hang",
        about="A collective operation never ends: four nodes stop at minute 30 of 100.",
        machine=P3_2XLARGE,
        minutes=100,
        interval_s=1.0,
        nodes=4,
        pieces=(*ordinary(100), Piece(load=HUNG, start_min=30)),
        faults=(Fault(kind="hang", onset_min=30, wasted_min=280),),
    ),
    Job(
        name="pause-8-min",
        group="hang",
        about="The data set is loaded anew for 8 minutes, once in two hours.",
        machine=G5_2XLARGE,
        minutes=120,
        interval_s=1.0,
        pieces=ordinary(120, HEALTHY, Piece(load=STARTING, start_min=60, end_min=68)),
    ),
    Job(
        name="upload-8-min",
        group="hang",
        about="The model is uploaded for 8 minutes after training.",
        machine=P3_8XLARGE,
        minutes=90,
        interval_s=1.0,
        pieces=(*ordinary(90), Piece(load=UPLOADING, start_min=82)),
    ),
)
