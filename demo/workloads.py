"""The workloads that were recorded: a healthy job, and one for each fault that the demonstration or a test needs.

The large jobs run on ``ml.p3.8xlarge``, with the fewest cores of four GPUs: a profile is as large as there are cores.
"""

from demo.workload import (
    EVALUATE,
    TRAIN,
    Activity,
    Level,
    Starvation,
    Steps,
    Stretch,
    Workload,
)

_START_UP = Activity(core=Level(14, 6, high=80), io_wait_percent=2.5, received=180.0, disk_write=150.0)
_CHECKPOINT = Activity(core=Level(7, 3, high=60), io_wait_percent=3.0, disk_write=220.0, sent=30.0)
_IDLE = Activity(core=Level(3, 2, high=40), sent=40.0)
_TRAIN = Activity(
    core=Level(34, 6, high=86),
    gpu=Level(94, 2.2, low=82, high=100),
    host_memory_percent=31.0,
    disk_read=35.0,
    received=60.0,
    sent=60.0,
    steps=Steps(phase=TRAIN, step_s=0.4),
)
_EVALUATE = Activity(
    core=Level(24, 6, high=86),
    gpu=Level(3, 1.5, high=8),
    host_memory_percent=31.0,
    disk_read=20.0,
    steps=Steps(phase=EVALUATE, step_s=0.9),
)
_STARVED_BY_LOADER = Activity(
    core=Level(74, 4.5, low=58, high=87),
    gpu=Level(20, 9, high=45),
    host_memory_percent=42.0,
    disk_read=110.0,
    received=14.0,
    sent=14.0,
    steps=Steps(phase=TRAIN, step_s=0.12, wait_s=0.42),
)
_STARVED_BY_CORES = Activity(
    core=Level(30, 6, high=80),
    gpu=Level(90, 3, low=75),
    steps=Steps(phase=TRAIN, step_s=0.4, wait_s=0.9),
    starvation=Starvation(share=0.7, hot_cores=2),
)
_COMPILE = Activity(core=Level(28, 8, high=84), gpu=Level(86, 4, low=70, high=100))
_LONG_SEQUENCES = Activity(
    core=Level(30, 6, high=80),
    gpu=Level(92, 3, low=75, high=100),
    steps=Steps(phase=TRAIN, step_s=0.4, slow_every=60, slow_factor=12),
)

HEALTHY = Workload(
    instance_type="ml.p3.8xlarge",
    nodes=2,
    cores=32,
    gpus=4,
    stretches=(
        Stretch(0, _START_UP),
        Stretch(178, _TRAIN),
        Stretch(512, _CHECKPOINT),
        Stretch(540, _TRAIN),
        Stretch(780, _EVALUATE),
        Stretch(870, _TRAIN),
        Stretch(1_120, _CHECKPOINT),
        Stretch(1_157, _TRAIN),
        Stretch(1_464, _IDLE),
    ),
    ends_s=1_504,
    loading=((171, 0.15), (781, 0.12)),
)

SLOW_DATA_LOADER = Workload(
    instance_type="ml.p3.8xlarge",
    nodes=2,
    cores=32,
    gpus=4,
    stretches=(
        Stretch(0, _START_UP),
        Stretch(82, _STARVED_BY_LOADER),
        Stretch(512, _CHECKPOINT),
        Stretch(536, _STARVED_BY_LOADER),
        Stretch(1_290, _EVALUATE),
        Stretch(1_380, _STARVED_BY_LOADER),
        Stretch(1_464, _IDLE),
    ),
    ends_s=1_504,
    loading=((76, 0.15), (1_291, 0.12)),
)

CPU_BOTTLENECK = Workload(
    instance_type="ml.g5.2xlarge",
    nodes=1,
    cores=8,
    gpus=1,
    stretches=(Stretch(0, _START_UP), Stretch(72, _STARVED_BY_CORES)),
    ends_s=12.4 * 60,
    loading=((70, 0.15),),
)

LATE_FIRST_STEP = Workload(
    instance_type="ml.g4dn.xlarge",
    nodes=1,
    cores=4,
    gpus=1,
    stretches=(
        Stretch(0, _START_UP),
        Stretch(720, _COMPILE),
        Stretch(1_530, _TRAIN),
    ),
    ends_s=35.4 * 60,
    loading=(
        (120, 0.15),
        (718, 0.14),
        (1_522, 0.15),
    ),
)

SLOW_STEPS = Workload(
    instance_type="ml.g5.2xlarge",
    nodes=1,
    cores=8,
    gpus=1,
    stretches=(Stretch(0, _START_UP), Stretch(65, _LONG_SEQUENCES)),
    ends_s=12.4 * 60,
    loading=((62, 0.15),),
)

WORKLOADS = {
    "healthy": HEALTHY,
    "slow_data_loader": SLOW_DATA_LOADER,
    "cpu_bottleneck": CPU_BOTTLENECK,
    "late_first_step": LATE_FIRST_STEP,
    "slow_steps": SLOW_STEPS,
}
