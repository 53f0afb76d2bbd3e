"""The document of ``trainguard plan``: typed facts; `trainguard.planning.text` makes words of them."""

from enum import StrEnum

import msgspec

SCHEMA_VERSION = "1"


class Assumed(StrEnum):
    """What a forecast takes for granted."""

    # Batch by GPU stays: with more GPUs a step has more samples, and there are fewer steps.
    SAME_SAMPLES = "same_samples"
    # The samples of all steps together stay, as the loss would need them.
    CONVERGES_ALIKE = "converges_alike"
    SCALING = "scaling"
    NO_TRACE = "no_trace"
    COLLECTIVES = "collectives"
    LINKS_UNKNOWN = "links_unknown"
    OTHER_GPU = "other_gpu"
    FITS_MEMORY = "fits_memory"
    LOADERS_PER_NODE = "loaders_per_node"
    NOT_REPEATED = "not_repeated"
    UNSAMPLED = "unsampled"
    WHOLE_JOB = "whole_job"
    PRICES = "prices"


class Lacking(StrEnum):
    """What the job does not say, and what is unknown without it."""

    GPU_TIME = "gpu_time"
    TIME = "time"
    INSTANCE_TYPE = "instance_type"
    PRICE = "price"
    GPUS_OF_TYPE = "gpus_of_type"
    PEAKS = "peaks"
    BATCH = "batch"
    TRACE = "trace"
    TOTAL_STEPS = "total_steps"
    TIMED_STEPS = "timed_steps"
    TOO_FEW_STEPS = "too_few_steps"
    STEPS_LEFT = "steps_left"
    # The size or batch is so unlike the job's that no published result says how it scales.
    TOO_UNLIKE = "too_unlike"
    # A GPU would have less than one sample in a step.
    NO_SAMPLE = "no_sample"


class Assumption(msgspec.Struct, frozen=True, kw_only=True):
    """``value`` is a number that belongs to the kind, ``name`` what it is of."""

    kind: Assumed
    value: float | None = None
    name: str = ""


class Lack(msgspec.Struct, frozen=True, kw_only=True):
    """``name`` is the instance type, or the machines of a row, that it is of, or empty."""

    kind: Lacking
    name: str = ""


class Range(msgspec.Struct, frozen=True):
    """A forecast with its interval of 80 %; of what was measured, all three are equal."""

    value: float
    low: float
    high: float


class PlannedRow(msgspec.Struct, frozen=True, kw_only=True):
    """The job on some machines.

    measured: Whether the job ran so; times then are its own.
    gpus: Of a node.
    batch_factor, steps_factor: On the samples of a GPU in a step, and on the number of steps.
    seconds: From the job's start to its end.
    cost: None where no price is known.
    faster, dearer: How many times faster than the job as it ran, and its cost by that of the job as it ran.
    parts: Seconds by bucket of the ledger.
    words: The row in a sentence.
    """

    measured: bool
    nodes: int
    instance_type: str | None
    gpus: int
    batch_factor: float
    steps_factor: float
    seconds: Range
    cost: Range | None
    faster: Range
    dearer: Range | None
    parts: dict[str, float]
    words: str = ""


class FinishForecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a job reaches its last step; times are epoch seconds.

    done, total: Steps; ``done`` was reached at ``at``.
    end: With its interval of 80 %.
    limit_at: When the job's time limit ends it.
    """

    done: int
    total: int
    at: float
    end: Range
    limit_at: float | None = None

    @property
    def misses_limit(self) -> bool:
        """Whether even the early bound is behind the limit; one that has passed did not end the job."""
        return self.limit_at is not None and self.end.low > self.limit_at >= self.at


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``trainguard plan --json`` prints."""

    schema_version: str = SCHEMA_VERSION
    job: str
    source: str
    currency: str
    rows: list[PlannedRow]
    assumptions: list[Assumption]
    missing: list[Lack]
    finish: FinishForecast | None = None
    sentences: list[str] = []
