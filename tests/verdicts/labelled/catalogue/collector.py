"""Jobs that trainguard-collector profiles: faults that only its series show, and what looks like them."""

from dataclasses import replace

from tests.verdicts.labelled.catalogue.stock import HEALTHY, QUIET, UPLOADING, ordinary
from tests.verdicts.labelled.description import Collected, Growth, Job, Load, Piece, Reading, Steps
from tests.verdicts.labelled.machines import G5_12XLARGE, P3_2XLARGE, P3_8XLARGE
from tests.verdicts.labelled.truth import Fault

# Kernels that poll for a peer: all of the time, at hardly more power than an idle GPU.
IN_COLLECTIVE = Load(busy=100.0, spread=0.1, drift=0.0, memory=0.0, effort=0.12, activity=4.0, cores=9.0, read=2e5)

# Text generation: low power, but memory is busy.
GENERATING = Load(busy=99.0, spread=0.5, effort=0.42, memory=0.6, activity=45.0)

SAVING = replace(UPLOADING, read=9e7, received=2e7)
LOW_SM = Load(busy=98.5, spread=0.8, effort=0.4, activity=5.0)
LEAK_GB = 22.0
HUNG_OR_LOW = ("HungJob", "LowGPUUtilization")


def job(name: str, group: str, about: str, **described: object) -> Job:
    """Return a job of four GPUs for an hour, profiled by the collector, but for what is described."""
    ordinary_job = Job(
        name=f"collected-{name}",
        group=group,
        about=about,
        machine=P3_8XLARGE,
        minutes=60,
        interval_s=1.0,
        pieces=ordinary(60),
        collected=Collected(),
    )
    return replace(ordinary_job, **described)  # type: ignore[arg-type]  # any field of a job


# A job whose collective never ends, or whose GPU is gone, is over from then on: it fails in 0 hours.
HANGS = (
    job(
        "hang-in-a-collective",
        "hang",
        "At minute 40 a collective never ends: all GPUs look busy at little power. Steps are written.",
        pieces=(*ordinary(60), Piece(load=IN_COLLECTIVE, start_min=40)),
        steps=Steps(ranks=True, last_min=40),
        faults=(Fault(kind="hung collective", onset_min=40, wasted_min=(19, 20), fails_in_h=0.0),),
    ),
    job(
        "hang-without-steps",
        "hang",
        "The same on two nodes, of which nobody writes steps.",
        nodes=2,
        machine=G5_12XLARGE,
        pieces=(*ordinary(60), Piece(load=IN_COLLECTIVE, start_min=35)),
        faults=(Fault(kind="hung collective", onset_min=35, wasted_min=(48, 50), fails_in_h=0.0),),
    ),
    job(
        "hang-one-rank-gone",
        "hang",
        "The process of one GPU is gone, so that it idles; the others wait for it in a collective.",
        pieces=(
            *ordinary(60),
            Piece(load=IN_COLLECTIVE, start_min=42),
            Piece(load=QUIET, start_min=42, gpus=(2,)),
        ),
        steps=Steps(ranks=True, last_min=42),
        faults=(Fault(kind="hung collective", onset_min=42, wasted_min=(17, 18), fails_in_h=0.0),),
    ),
    job(
        "hang-idle",
        "hang",
        "A deadlock before a step: GPUs and hosts do nothing from minute 45 on.",
        pieces=(*ordinary(60), Piece(load=QUIET, start_min=45)),
        steps=Steps(ranks=True, last_min=45),
        faults=(Fault(kind="hung collective", onset_min=45, wasted_min=(14, 15), fails_in_h=0.0),),
    ),
)

BROKEN = (
    job(
        "gpu-off-the-bus",
        "GPU health",
        "GPU 3 falls off the bus at minute 30; the others wait for it until the end.",
        pieces=(
            *ordinary(60),
            Piece(load=IN_COLLECTIVE, start_min=30),
            Piece(load=QUIET, start_min=30, gpus=(3,)),
        ),
        collected=Collected(
            readings=(
                Reading(name="*", value=None, start_min=30, gpus=(3,)),
                Reading(name="XID", value=79.0, start_min=30, gpus=(3,)),
                Reading(name="Lost", value=1.0, start_min=30, gpus=(3,)),
            )
        ),
        faults=(
            Fault(kind="lost GPU", onset_min=30, wasted_min=(29, 30), fails_in_h=0.0, first=("GPUHealth", "HungJob")),
        ),
    ),
    job(
        "ecc-errors",
        "GPU health",
        "GPU 1 of the second node has uncorrectable ECC errors from minute 20 on, and computes on.",
        nodes=2,
        machine=G5_12XLARGE,
        collected=Collected(
            readings=(Reading(name="ECCUncorrectedErrors", value=2.0, start_min=20, nodes=(2,), gpus=(1,)),)
        ),
        faults=(Fault(kind="broken GPU", strength="medium", onset_min=20, nodes=(2,), gpus=(1,)),),
    ),
    job(
        "hot-gpu",
        "GPU health",
        "GPU 0 is too hot from minute 15 on, and runs at 1,000 MHz where the others have 1,530.",
        collected=Collected(
            readings=(
                Reading(name="SMClockMHz", value=1_000.0, start_min=15, end_min=59, gpus=(0,)),
                Reading(name="ThrottleReasons", value=0x60, start_min=15, end_min=59, gpus=(0,)),
            )
        ),
        faults=(Fault(kind="throttled GPU", onset_min=15, end_min=59, gpus=(0,), wasted_min=(0, 16)),),
    ),
)

OTHERS = (
    job(
        "hollow",
        "low SM activity",
        "Tiny kernels: GPUs look 98 % busy at 5 % SM activity.",
        pieces=ordinary(60, LOW_SM),
        faults=(Fault(kind="low SM activity", onset_min=2, end_min=59, wasted_min=(0, 57)),),
    ),
    job(
        "leak-22-gb-in-170-min",
        "memory leak",
        "Memory in use of one GPU grows from 48 to 70 of 80 GB in a straight line.",
        machine=P3_2XLARGE,
        minutes=180,
        interval_s=2.0,
        pieces=ordinary(180),
        collected=Collected(held=(Growth(points=LEAK_GB, start_min=10, end_min=180),)),
        faults=(Fault(kind="memory leak", onset_min=10, fails_in_h=1.3),),
    ),
    job(
        "straggler",
        "straggler",
        "Rank 2 of four needs 0.35 s for a forward pass that takes the others 0.2 s, from minute 20 on.",
        steps=Steps(ranks=True, slow_ranks=((2, 1.75, 20.0),)),
        faults=(Fault(kind="straggler", onset_min=20, wasted_min=(0, 10)),),
    ),
)

PARTITIONED = (
    job(
        "mig-healthy",
        "healthy",
        "A job on an instance of a partitioned GPU, of which nothing but memory and SM activity is known.",
        machine=P3_2XLARGE,
        collected=Collected(mig=True),
    ),
    job(
        "mig-hollow",
        "low SM activity",
        "The same with 3 % SM activity.",
        machine=P3_2XLARGE,
        pieces=ordinary(60, replace(LOW_SM, activity=3.0)),
        collected=Collected(mig=True),
        faults=(Fault(kind="low SM activity", onset_min=2, end_min=59, wasted_min=(0, 57)),),
    ),
    job(
        "mig-leak",
        "memory leak",
        "The same with memory in use that grows from 48 to 70 of 80 GB in a straight line.",
        machine=P3_2XLARGE,
        minutes=180,
        interval_s=5.0,
        pieces=ordinary(180),
        collected=Collected(mig=True, held=(Growth(points=LEAK_GB, start_min=10, end_min=180),)),
        faults=(Fault(kind="memory leak", onset_min=10, fails_in_h=1.3),),
    ),
)

HELD = (
    job(
        "held-by-a-script-that-does-not-exit",
        "memory held",
        "Training is over at minute 50 of 120; the script waits for a logger, and 48 GB of each GPU stay in use.",
        minutes=120,
        pieces=(*ordinary(50), Piece(load=QUIET, start_min=50)),
        faults=(
            Fault(
                kind="memory held after training", onset_min=50, wasted_min=(69, 70), fails_in_h=0.0, first=HUNG_OR_LOW
            ),
        ),
    ),
    job(
        "held-by-a-server-without-requests",
        "memory held",
        "A server loads 48 GB within three minutes, and no request comes in 90.",
        machine=P3_2XLARGE,
        minutes=90,
        pieces=(Piece(load=QUIET),),
        faults=(Fault(kind="memory held while idle", onset_min=0, wasted_min=(88, 90)),),
    ),
    job(
        "held-by-a-notebook",
        "memory held",
        "A notebook trains for twenty minutes, and is left open with its model for 70.",
        machine=P3_2XLARGE,
        minutes=90,
        pieces=(*ordinary(20), Piece(load=QUIET, start_min=20)),
        faults=(
            Fault(
                kind="memory held after training", onset_min=20, wasted_min=(69, 70), fails_in_h=0.0, first=HUNG_OR_LOW
            ),
        ),
    ),
)

HEALTHY_JOBS = (
    job(
        "evaluation-on-the-hosts",
        "healthy",
        "Every 30 minutes the hosts evaluate for 4, while the model stays in the GPUs' memory.",
        minutes=120,
        pieces=(*ordinary(120), Piece(load=UPLOADING, start_min=20, every_min=30, for_min=4)),
    ),
    job("healthy-4-gpus", "healthy", "Four GPUs that train at their power limit, with steps.", steps=Steps(ranks=True)),
    job(
        "healthy-2-nodes",
        "healthy",
        "Two nodes without steps; slots with eight lanes on one.",
        nodes=2,
        machine=G5_12XLARGE,
        collected=Collected(readings=(Reading(name="PCIeLinkWidth", value=8.0, nodes=(2,)),)),
    ),
    job(
        "checkpoints",
        "healthy",
        "Every 15 minutes rank 0 saves for 4 minutes, while the others wait in a barrier.",
        minutes=90,
        pieces=(
            *ordinary(90),
            Piece(load=replace(IN_COLLECTIVE, read=9e7, received=2e7), start_min=17, every_min=30, for_min=3.5),
            Piece(load=SAVING, start_min=17, every_min=30, for_min=3.5, gpus=(0,)),
        ),
        steps=None,
    ),
    job(
        "generation",
        "healthy",
        "Minutes of text generation at low power between steps, as reinforcement learning has.",
        pieces=(*ordinary(60), Piece(load=GENERATING, start_min=12, every_min=12, for_min=6)),
    ),
    job(
        "sawtooth",
        "healthy",
        "Memory in use rises by 20 GB in 20 minutes and is given back, again and again.",
        machine=P3_2XLARGE,
        minutes=150,
        interval_s=2.0,
        pieces=ordinary(150),
        collected=Collected(held=(Growth(points=20, start_min=5, end_min=145, shape="sawtooth", stairs=7),)),
    ),
    job(
        "cache-that-fills",
        "healthy",
        "A cache fills 25 GB of GPU memory, ever more slowly.",
        machine=P3_2XLARGE,
        minutes=150,
        interval_s=2.0,
        pieces=ordinary(150),
        collected=Collected(held=(Growth(points=25, start_min=5, end_min=120, shape="plateau"),)),
    ),
    job(
        "longer-sequences",
        "healthy",
        "Twice longer sequences need 12 GB more each time.",
        machine=P3_2XLARGE,
        minutes=150,
        interval_s=2.0,
        pieces=ordinary(150),
        collected=Collected(held=(Growth(points=24, start_min=0, end_min=100, shape="stairs", stairs=2),)),
    ),
    job(
        "an-error-of-the-program",
        "healthy",
        "A kernel of the second GPU accesses memory that is not its own once; the job goes on.",
        pieces=ordinary(60, HEALTHY),
        collected=Collected(readings=(Reading(name="XID", value=31.0, start_min=25, gpus=(1,)),)),
    ),
)

JOBS = (*HANGS, *BROKEN, *OTHERS, *PARTITIONED, *HELD, *HEALTHY_JOBS)
