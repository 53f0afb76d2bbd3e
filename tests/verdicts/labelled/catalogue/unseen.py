"""Jobs of other kinds, labelled before the rules had seen them: how the verdicts carry over to what is new."""

from dataclasses import replace

from tests.verdicts.labelled.catalogue.balance import IDLE_GPU
from tests.verdicts.labelled.catalogue.batch import FULL_PACE
from tests.verdicts.labelled.catalogue.idle import HUNG, ON_CPU
from tests.verdicts.labelled.catalogue.memory import FLAT, FLAT_PERCENT
from tests.verdicts.labelled.catalogue.stepping import EVALUATING, SAVING
from tests.verdicts.labelled.catalogue.stock import (
    HEALTHY,
    QUIET,
    SPINNING,
    STARTING,
    UPLOADING,
    ordinary,
    starved,
    starved_by_cores,
    starved_by_disk,
)
from tests.verdicts.labelled.description import Growth, Job, Load, Piece, Steps
from tests.verdicts.labelled.machines import (
    G5_2XLARGE,
    G5_12XLARGE,
    P3_2XLARGE,
    P3_8XLARGE,
    P3_16XLARGE,
    P4D,
)
from tests.verdicts.labelled.truth import CPU, LOADER, LOW, Fault

# GPUs that wait for files of a network file system: no core waits for a disk, and none is full.
NETWORK_BOUND = replace(starved(0.55, cycle_s=8), received=4e8)

PREPROCESSING = Load(busy=0.0, memory=0.0, cores=30.0, full_cores=0.9, read=6e7)

JOBS = (
    Job(
        name="network-file-system-55-at-10-s",
        group="loader, cores free",
        about="Eight GPUs wait 55 % of the time for files of a network file system; the cores are free.",
        machine=P3_16XLARGE,
        minutes=100,
        interval_s=10.0,
        pieces=ordinary(100, NETWORK_BOUND),
        faults=(Fault(kind="loader, cores free", onset_min=2, wasted_min=0.55 * 97),),
    ),
    Job(
        name="leak-with-a-sawtooth",
        group="memory leak",
        about="Memory grows from 33 to 78 %; every eight minutes a cache takes 6 points for four, and gives them back.",
        machine=P3_2XLARGE,
        minutes=160,
        interval_s=1.0,
        pieces=ordinary(
            160, FLAT, Piece(load=replace(FLAT, memory=0.415), start_min=6, every_min=8, for_min=4, end_min=159)
        ),
        growth=(Growth(points=45, start_min=20, end_min=160),),
        faults=(Fault(kind="leak", onset_min=20, fails_in_h=(100 - FLAT_PERCENT - 45) / (45 / 140) / 60),),
    ),
    Job(
        name="sawtooth-without-a-leak",
        group="memory, healthy",
        about="Every eight minutes a cache takes 12 points for four, and gives them back.",
        machine=P3_2XLARGE,
        minutes=160,
        interval_s=1.0,
        pieces=ordinary(
            160, FLAT, Piece(load=replace(FLAT, memory=0.48), start_min=6, every_min=8, for_min=4, end_min=159)
        ),
    ),
    Job(
        name="evaluates-2-min-every-20-by-cores",
        group="evaluations",
        about="Every 20 minutes two minutes of scoring on full cores, while the GPUs idle: a tenth of the time.",
        machine=P3_8XLARGE,
        minutes=140,
        interval_s=1.0,
        pieces=ordinary(
            140, HEALTHY, Piece(load=Load(busy=0.0, memory=0.0, full_cores=0.9), start_min=20, every_min=20, for_min=2)
        ),
    ),
    Job(
        name="slow-gpu-of-16",
        group="slow GPU",
        about="One GPU of sixteen on two nodes is hot and does 35 % less; the fifteen others spin.",
        machine=P3_16XLARGE,
        minutes=90,
        interval_s=5.0,
        nodes=2,
        pieces=ordinary(
            90, SPINNING, Piece(load=Load(busy=64, spread=2), start_min=2, end_min=89, nodes=(2,), gpus=(5,))
        ),
        faults=(
            Fault(
                kind="slow GPU",
                onset_min=2,
                wasted_min=(0.35 * 87 / 8, 2 * 0.35 * 87),
                nodes=(2,),
                gpus=(5,),
            ),
        ),
    ),
    Job(
        name="15-min-healthy",
        group="short jobs",
        about="A healthy job of a quarter of an hour.",
        machine=G5_2XLARGE,
        minutes=15,
        pieces=ordinary(15),
    ),
    Job(
        name="15-min-starved",
        group="short jobs",
        about="A job of a quarter of an hour whose GPU waits 60 % of the time for full cores.",
        machine=G5_2XLARGE,
        minutes=15,
        pieces=ordinary(15, starved_by_cores(0.6)),
        faults=(Fault(kind="loader, cores full", onset_min=2, wasted_min=0.6 * 12),),
    ),
    Job(
        name="gradient-accumulation",
        group="busy and noisy",
        about="Four GPUs at 96 %; after each 16 passes half a second of waiting for the optimizer on the cores.",
        machine=G5_12XLARGE,
        minutes=80,
        pieces=ordinary(80, Load(busy=96, wait=0.07, cycle_s=7, cores=30)),
        interval_s=1.0,
    ),
    Job(
        name="node-2-starts-8-min-late",
        group="healthy on many nodes",
        about="One node of two is there 8 minutes before the other, and waits; then three healthy hours.",
        machine=P3_8XLARGE,
        minutes=190,
        interval_s=5.0,
        nodes=2,
        pieces=ordinary(190, start_min=11),
        late_nodes=((2, 8.0),),
    ),
    Job(
        name="warm-cache-after-epoch-1",
        group="start-up, healthy",
        about="The first epoch reads from the network for 12 minutes at 45 % waiting; then three hours from the cache.",
        machine=P3_8XLARGE,
        minutes=190,
        interval_s=2.0,
        pieces=ordinary(190, HEALTHY, Piece(load=starved_by_disk(0.45), start_min=2, end_min=14)),
    ),
    Job(
        name="first-pass-8-min-at-60-s",
        group="start-up, healthy",
        about="The first pass over the data waits for the network for 8 minutes at 60 %; then two good hours.",
        machine=G5_12XLARGE,
        minutes=130,
        interval_s=60.0,
        pieces=ordinary(130, HEALTHY, Piece(load=starved_by_disk(0.6), start_min=2, end_min=10)),
    ),
    Job(
        name="disk-20-min-in-all",
        group="short jobs",
        about="A job of 20 minutes whose GPUs wait for the disk half of the time.",
        machine=G5_12XLARGE,
        minutes=20,
        interval_s=1.0,
        pieces=ordinary(20, starved_by_disk(0.5)),
        faults=(Fault(kind="loader, disk", onset_min=2, wasted_min=0.5 * 17),),
    ),
    Job(
        name="disk-from-minute-100-for-25-min",
        group="late in a long job",
        about="From minute 100 on four GPUs wait for the disk for 25 minutes, 70 % of the time; then all is well.",
        machine=G5_12XLARGE,
        minutes=150,
        interval_s=2.0,
        pieces=ordinary(150, HEALTHY, Piece(load=starved_by_disk(0.7), start_min=100, end_min=125)),
        faults=(Fault(kind="loader, disk", strength="medium", onset_min=100, end_min=125, wasted_min=0.7 * 25),),
    ),
    Job(
        name="saves-90-s-every-hour",
        group="checkpoints",
        about="A checkpoint of 90 s every hour.",
        machine=P4D,
        minutes=300,
        interval_s=5.0,
        pieces=ordinary(300, HEALTHY, Piece(load=SAVING, start_min=60, every_min=60, for_min=1.5)),
    ),
    Job(
        name="disk-then-dead-gpu",
        group="one fault after another",
        about="A slow disk from minute 10 to 90; from minute 120 to 240 one GPU of four does nothing.",
        machine=G5_12XLARGE,
        minutes=240,
        interval_s=2.0,
        pieces=ordinary(
            240,
            HEALTHY,
            Piece(load=starved_by_disk(0.6), start_min=10, end_min=90),
            Piece(load=IDLE_GPU, start_min=120, gpus=(3,)),
        ),
        faults=(
            Fault(kind="loader, disk", onset_min=10, end_min=90, wasted_min=48),
            Fault(kind="GPU that stops", strength="medium", onset_min=120, wasted_min=120 / 4, gpus=(3,)),
        ),
    ),
    Job(
        name="hang-then-starved",
        group="one fault after another",
        about="A hang from minute 40 to 100; from minute 130 to 200 the GPU waits half of the time for full cores.",
        machine=G5_2XLARGE,
        minutes=240,
        interval_s=1.0,
        pieces=ordinary(
            240,
            HEALTHY,
            Piece(load=HUNG, start_min=40, end_min=100),
            Piece(load=starved_by_cores(0.5), start_min=130, end_min=200),
        ),
        faults=(
            Fault(kind="hang", onset_min=40, end_min=100, wasted_min=60),
            Fault(kind="loader, cores full", strength="medium", onset_min=130, end_min=200, wasted_min=35),
        ),
    ),
    Job(
        name="idle-tail-of-an-hour",
        group="hang",
        about="Training ends at minute 120; the script forgets to exit, and the instance idles for an hour.",
        machine=P3_8XLARGE,
        minutes=180,
        interval_s=2.0,
        pieces=(*ordinary(120), Piece(load=QUIET, start_min=120)),
        faults=(Fault(kind="hang", onset_min=119, wasted_min=61),),
    ),
    Job(
        name="preprocesses-a-fifth-of-the-time",
        group="idle from the start",
        about="The cores preprocess for 36 minutes of three hours before the four GPUs are touched.",
        machine=G5_12XLARGE,
        minutes=180,
        interval_s=2.0,
        pieces=(Piece(load=PREPROCESSING), *ordinary(180, HEALTHY, start_min=36)[1:]),
        faults=(
            Fault(
                kind="late start",
                strength="medium",
                onset_min=0,
                end_min=36,
                wasted_min=(30, 36),
            ),
        ),
    ),
    Job(
        name="preprocesses-between-epochs",
        group="loader, cores full",
        about="After each 20 minutes of training the cores prepare the next part for 8, and the GPUs wait.",
        machine=P3_8XLARGE,
        minutes=230,
        interval_s=2.0,
        pieces=ordinary(230, HEALTHY, Piece(load=PREPROCESSING, start_min=22, every_min=28, for_min=8, end_min=229)),
        faults=(
            Fault(
                kind="loader, cores full",
                strength="medium",
                onset_min=22,
                wasted_min=8 * 8,
                first=(CPU, LOW, LOADER),
            ),
        ),
    ),
    Job(
        name="batch-40-16-gpus-at-30-s",
        group="small batch",
        about="Sixteen GPUs on two nodes at 40 %, cores free, sampled every 30 s.",
        machine=P4D,
        minutes=150,
        interval_s=30.0,
        nodes=2,
        pieces=ordinary(150, Load(busy=40, spread=4, memory=0.3, cores=14)),
        faults=(Fault(kind="small batch", onset_min=2, wasted_min=2 * (1 - 40 / FULL_PACE) * 147),),
    ),
    Job(
        name="on-cpu-for-the-second-half",
        group="hang",
        about="After a restart within the script at minute 80 of 160 the model trains on the cores.",
        machine=P3_2XLARGE,
        minutes=160,
        interval_s=1.0,
        pieces=(*ordinary(160), Piece(load=ON_CPU, start_min=80)),
        faults=(Fault(kind="hang", onset_min=80, wasted_min=80, first=(LOW, CPU)),),
    ),
    Job(
        name="slow-steps-every-100th-with-loaders",
        group="step outliers",
        about="Every hundredth step logs to a slow service for 20 s: a quarter of the time.",
        machine=G5_2XLARGE,
        minutes=100,
        interval_s=1.0,
        pieces=ordinary(100),
        steps=Steps(step_s=0.6, gap_s=0.01, slow_every=100, slow_s=20.0),
        faults=(Fault(kind="slow steps", onset_min=2, wasted_min=97 * 19.4 / 80.4),),
    ),
    Job(
        name="ramps-up-batch-for-40-min",
        group="busy and noisy",
        about="The batch grows for 40 minutes, the GPU from 72 to 96 %, its memory activity with it; then four hours.",
        machine=P3_2XLARGE,
        minutes=280,
        interval_s=2.0,
        pieces=ordinary(280, HEALTHY, Piece(load=Load(busy=72, busy_to=96), start_min=2, end_min=42)),
    ),
    Job(
        name="two-trials-in-one-job",
        group="start-up, healthy",
        about="A healthy trial of 70 minutes, six minutes to load another model, and a second trial of 70 minutes.",
        machine=P3_8XLARGE,
        minutes=150,
        interval_s=2.0,
        pieces=ordinary(150, HEALTHY, Piece(load=STARTING, start_min=72, end_min=78)),
    ),
    Job(
        name="idle-node-tail",
        group="dead node",
        about="One node of four has no data left at minute 100 of 160 and idles; the others go on.",
        machine=P3_2XLARGE,
        minutes=160,
        interval_s=5.0,
        nodes=4,
        pieces=(*ordinary(160), Piece(load=UPLOADING, start_min=100, nodes=(4,))),
        faults=(Fault(kind="dead node", onset_min=100, wasted_min=60, nodes=(4,)),),
    ),
    Job(
        name="samples-12-percent-of-the-time",
        group="evaluations",
        about="Every 25 minutes three minutes of text generation at 30 % of the GPU.",
        machine=G5_2XLARGE,
        minutes=170,
        interval_s=1.0,
        pieces=ordinary(
            170, HEALTHY, Piece(load=replace(EVALUATING, busy=30.0), start_min=25, every_min=25, for_min=3)
        ),
    ),
)
