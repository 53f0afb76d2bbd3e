"""The buckets of the ledger, by precedence: a second goes to the first that fits."""

from dataclasses import dataclass
from enum import StrEnum


class Bucket(StrEnum):
    """What a GPU-second that was paid for was spent on."""

    NO_SAMPLES = "no_samples"

    # Between attempts, and steps that were done again after one.
    RESTART = "restart"

    # From the last step on of a job whose steps have stopped, whatever the GPUs show.
    HANG = "hang"

    # From the onset on of a training that computes garbage: not finite, or diverged.
    BROKEN = "broken"

    # The GPU was busy: its utilization as a part of the second.
    COMPUTE = "compute"

    START_UP = "start_up"

    TAIL = "tail"

    # Collective operations that no computation covers; needs a kernel trace, or waits for peers.
    COMMUNICATION = "communication"

    # Waits for slower ranks or nodes; needs a kernel trace, or waits for peers in the steps.
    PEERS = "peers"

    # Waits for batches; needs steps.
    DATA = "data"

    CHECKPOINT = "checkpoint"

    # GPUs that were idle while the model was evaluated; needs steps.
    EVALUATION = "evaluation"

    # Python, launches and synchronization; needs a kernel trace.
    HOST = "host"

    IDLE = "idle"

    UNEXPLAINED = "unexplained"


# What low GPUs lose while the job works, whatever the reason: a finding without one takes from all of it.
LOST_AT_WORK = (
    Bucket.IDLE,
    Bucket.UNEXPLAINED,
    Bucket.HOST,
    Bucket.DATA,
    Bucket.PEERS,
    Bucket.COMMUNICATION,
    Bucket.CHECKPOINT,
    Bucket.EVALUATION,
)

ROWS = {bucket: row for row, bucket in enumerate(Bucket)}

BUCKET_WORDS = {
    Bucket.NO_SAMPLES: "without samples",
    Bucket.RESTART: "restarts",
    Bucket.HANG: "hanging",
    Bucket.BROKEN: "computing garbage",
    Bucket.START_UP: "start-up",
    Bucket.TAIL: "after the last work",
    Bucket.COMPUTE: "compute",
    Bucket.COMMUNICATION: "exposed communication",
    Bucket.PEERS: "waiting for slower ranks",
    Bucket.DATA: "waiting for batches",
    Bucket.CHECKPOINT: "saving checkpoints",
    Bucket.EVALUATION: "idle in evaluation",
    Bucket.HOST: "waiting for the host",
    Bucket.IDLE: "idle",
    Bucket.UNEXPLAINED: "not explained",
}


@dataclass(frozen=True, slots=True)
class StepShares:
    """Shares, 0 to 1, of the time of ``steps`` traced steps; together they are 1.

    ``communication`` is exposed, without the waits for slower ranks (``peers``). In both the GPU counts as busy, in
    ``data``, ``host`` and ``other`` as idle.
    """

    compute: float
    communication: float
    peers: float
    data: float
    host: float
    other: float
    steps: int
