"""A job's time by bucket, carried over to other machines or another batch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainguard.kernels.device_entries import PeaksEntry
from trainguard.ledger.bucket import Bucket
from trainguard.planning.cluster import Cluster, Communication, knows_links, machines_of
from trainguard.planning.document import Assumed, Assumption, Lack, Lacking, PlannedRow, Range

_FLOOR = 0.1
# Software for GPUs of another generation may compute in the next precision, in which arithmetic is twice as fast.
_PRECISION = math.log(2.0)

# Once in a job, however large it is.
_ONCE = (Bucket.START_UP, Bucket.TAIL)

# As often as before: at the same epochs.
_AS_OFTEN = (Bucket.CHECKPOINT,)

# Mishaps, which the next run is not expected to have.
_MISHAPS = (Bucket.RESTART, Bucket.HANG, Bucket.BROKEN)
_OF_STEPS = (Bucket.COMPUTE, Bucket.COMMUNICATION, Bucket.PEERS, Bucket.HOST, Bucket.IDLE, Bucket.UNEXPLAINED)

# Published results have up to so many times as many GPUs: what is more unlike is not planned.
MOST_UNLIKE = 64.0

# The job has the same length for all machines: nothing is known of a step without them.
_LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Scaling:
    """Exponents of ratios, and the half widths of intervals of 80 % by the logarithm of the largest ratio.

    ``samples`` is of the samples of a GPU in a step, ``gpus`` of their number; ``spread`` of both, ``sorts_spread`` of
    a change of the sort of GPU, beside another precision.
    """

    samples: float
    gpus: float
    spread: float
    sorts_spread: float

    def factor(self, samples: float, gpus: float) -> float:
        """Return the factor on a step's time by the ratios of a GPU's samples and of the number of GPUs."""
        return math.exp(self.samples * math.log(samples) + self.gpus * math.log(gpus))

    def half_width(self, samples: float, gpus: float, sort: float | None) -> float:
        """Return the natural logarithm of the interval's factor; ``sort`` is that of another GPU, None of the same."""
        largest = max(abs(math.log(samples)), abs(math.log(gpus)))
        size = self.spread * (_FLOOR + largest) if largest > 0.0 else 0.0
        return math.hypot(size, 0.0 if sort is None else self.of_sort(sort))

    def of_sort(self, sort: float) -> float:
        """Return that of another GPU alone; those within a tenth of each other are of one generation."""
        apart = abs(math.log(sort))
        return math.hypot(_PRECISION if apart > _FLOOR else 0.0, self.sorts_spread * (_FLOOR + apart))


# Fitted to the published results of MLPerf Training 5.0: `python -m tests.verdicts.planning` shows the errors.
MEASURED = Scaling(samples=0.803, gpus=0.028, spread=0.17, sorts_spread=0.892)


def sort_factor(old: PeaksEntry, new: PeaksEntry, precision: str | None) -> float:
    """Return the factor on the time of kernels on another GPU: between that of arithmetic and that of memory."""
    memory = old.memory_gb_per_s / new.memory_gb_per_s
    known = precision if precision in old.tflops and precision in new.tflops else "bf16"
    known = known if known in old.tflops and known in new.tflops else "fp16"
    if known not in old.tflops or known not in new.tflops:
        return memory
    return math.sqrt(memory * old.tflops[known] / new.tflops[known])


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """How a job ran: seconds of a node by bucket, on which machines.

    ``left`` is the factor from the steps that were done to all of them, 1 of a job that has ended; ``left_width`` is
    half the interval of the time that is left, as a part of it. ``communication`` is None without a kernel trace that
    has collectives. ``precision`` is that of most kernels, where a trace says it.
    """

    seconds: Mapping[Bucket, float]
    cluster: Cluster
    left: float = 1.0
    left_width: float = 0.0
    communication: Communication | None = None
    traced: bool = False
    precision: str | None = None

    def whole(self) -> dict[Bucket, float]:
        """Return the seconds of all of the job, without mishaps."""
        return {
            bucket: each * (1.0 if bucket in _ONCE else self.left)
            for bucket, each in self.seconds.items()
            if bucket not in _MISHAPS
        }


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Machines, and factors on a GPU's samples in a step and on the samples of all GPUs in a step."""

    cluster: Cluster
    batch: float = 1.0
    global_batch: float = 1.0

    @property
    def steps(self) -> float:
        return 1.0 / self.global_batch


def wanted(old: Cluster, new: Cluster, *, batch: float = 1.0, keeps_global_batch: bool = False) -> PlanLimits:
    """Return what is asked for: the batch of a GPU times ``batch``, or that of all GPUs as it is."""
    gpus = new.world / old.world
    return PlanLimits(new, 1.0 / gpus, 1.0) if keeps_global_batch else PlanLimits(new, batch, batch * gpus)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans a job by what is measured of it, and by exponents for what is not."""

    job: MeasuredJob
    scaling: Scaling = field(default=MEASURED)

    def rows(self, asked: Sequence[PlanLimits]) -> list[PlannedRow]:
        """Return the job as it ran, and then as is asked for."""
        ran = self._row(PlanLimits(self.job.cluster), None)
        return [ran, *(self._row(each, ran) for each in asked if not self.lacks(each))]

    def lacks(self, asked: PlanLimits) -> list[Lack]:
        """Return what is needed to plan this at all, and is unknown."""
        name = asked.cluster.instance_type or ""
        if not asked.cluster.gpus:
            return [Lack(kind=Lacking.GPUS_OF_TYPE, name=name)]
        gpus = asked.cluster.world / self.job.cluster.world
        if any(not 1.0 / MOST_UNLIKE <= each <= MOST_UNLIKE for each in (gpus, asked.batch)):
            return [Lack(kind=Lacking.TOO_UNLIKE, name=machines_of(asked.cluster))]
        unknown = asked.cluster.instance_type != self.job.cluster.instance_type and self._sort(asked) is None
        return [Lack(kind=Lacking.PEAKS, name=name)] if unknown else []

    def _sort(self, asked: PlanLimits) -> float | None:
        """Return the factor of other GPUs; None where the peaks of one of both are unknown."""
        old, new = self.job.cluster.peaks, asked.cluster.peaks
        return None if old is None or new is None else sort_factor(old, new, self.job.precision)

    def _row(self, asked: PlanLimits, ran: PlannedRow | None) -> PlannedRow:
        parts = self.job.whole() if ran is None else self._parts(asked)
        total = max(sum(parts.values()), _LEAST_S)
        fixed = sum(parts.get(bucket, 0.0) for bucket in (*_ONCE, *_AS_OFTEN))
        gpus, width = asked.cluster.world / self.job.cluster.world, 0.0
        if ran is not None:
            width = self.scaling.half_width(asked.batch, gpus, self._sort(asked) if self._other_gpu(asked) else None)
        left = self.job.left_width * (1.0 - 1.0 / self.job.left)
        seconds = _around(total, fixed, math.hypot(width, left))
        # How long the rest takes is as unsure on the job's own machines: comparisons with them do not have it.
        compared = _around(total, fixed, width)
        before = total if ran is None else ran.seconds.value
        cost, was = _costs(asked.cluster, seconds), self.job.cluster.cost(before)
        changed = _costs(asked.cluster, compared)
        return PlannedRow(
            measured=ran is None and self.job.left == 1.0,
            nodes=asked.cluster.nodes,
            instance_type=asked.cluster.instance_type,
            gpus=asked.cluster.gpus,
            batch_factor=asked.batch,
            steps_factor=asked.steps,
            seconds=seconds,
            cost=cost,
            faster=Range(before / total, before / compared.high, before / compared.low),
            dearer=None
            if changed is None or was is None
            else Range(changed.value / was, changed.low / was, changed.high / was),
            parts={bucket.value: each for bucket, each in parts.items() if each > 0.0},
        )

    def _other_gpu(self, asked: PlanLimits) -> bool:
        old, new = self.job.cluster.peaks, asked.cluster.peaks
        return (old and old.gpu) != (new and new.gpu)

    def _parts(self, asked: PlanLimits) -> dict[Bucket, float]:
        """Return the seconds by bucket on other machines or with another batch."""
        before = self.job.whole()
        gpus = asked.cluster.world / self.job.cluster.world
        nodes = asked.cluster.nodes / self.job.cluster.nodes
        sort = self._sort(asked) or 1.0
        parts = {bucket: before.get(bucket, 0.0) for bucket in (*_ONCE, *_AS_OFTEN)}
        parts |= self._of_steps(before, asked, gpus, sort)
        parts[Bucket.DATA] = before.get(Bucket.DATA, 0.0) * asked.steps * asked.global_batch / nodes
        parts[Bucket.EVALUATION] = before.get(Bucket.EVALUATION, 0.0) / gpus * sort
        known = sum(before.get(bucket, 0.0) for bucket in (*_OF_STEPS, Bucket.DATA, Bucket.EVALUATION))
        planned = sum(parts[bucket] for bucket in (*_OF_STEPS, Bucket.DATA, Bucket.EVALUATION))
        ratio = planned / known if known > 0.0 else asked.steps * self.scaling.factor(asked.batch, gpus) * sort
        parts[Bucket.NO_SAMPLES] = before.get(Bucket.NO_SAMPLES, 0.0) * ratio
        return parts

    def _of_steps(
        self, before: Mapping[Bucket, float], asked: PlanLimits, gpus: float, sort: float
    ) -> dict[Bucket, float]:
        communication = self.job.communication
        explained = communication is not None and bool(communication.collectives)
        growth = self.scaling.factor(1.0, gpus)
        compute = self.scaling.factor(asked.batch, 1.0 if explained else gpus) * sort
        factors = dict.fromkeys(_OF_STEPS, compute)
        if self.job.traced:
            # The host launches as many kernels for a step, whatever they hold.
            factors |= dict.fromkeys((Bucket.HOST, Bucket.IDLE, Bucket.UNEXPLAINED), 1.0)
            factors |= dict.fromkeys((Bucket.PEERS, Bucket.COMMUNICATION), growth)
        parts = {bucket: before.get(bucket, 0.0) * factor * asked.steps for bucket, factor in factors.items()}
        if communication is not None and explained:
            exposed_s = communication.exposed_on(self.job.cluster, asked.cluster, compute)
            steps = sum(before.get(bucket, 0.0) for bucket in (*_OF_STEPS, Bucket.DATA)) / communication.step_s
            more = steps * (exposed_s - communication.exposed_s)
            here = before.get(Bucket.COMMUNICATION, 0.0)
            parts[Bucket.COMMUNICATION] = max(here + more, 0.0) * asked.steps
        return parts

    def assumptions(self, asked: Sequence[PlanLimits]) -> Iterator[Assumption]:
        """Yield what the rows take for granted, each once."""
        job, cluster = self.job, self.job.cluster
        if any(each.steps != 1.0 for each in asked):
            yield Assumption(kind=Assumed.CONVERGES_ALIKE)
        if any(each.steps == 1.0 and each.batch != 1.0 for each in asked):
            yield Assumption(kind=Assumed.SAME_SAMPLES)
        if any(each.batch != 1.0 or each.cluster.world != cluster.world for each in asked):
            yield Assumption(kind=Assumed.SCALING, value=self.scaling.samples)
            yield from self._of_communication(asked)
        others = [each for each in asked if self._other_gpu(each)]
        if others:
            yield Assumption(kind=Assumed.OTHER_GPU, name=job.precision or "bf16")
        if others or any(each.batch > 1.0 for each in asked):
            yield Assumption(kind=Assumed.FITS_MEMORY)
        if job.seconds.get(Bucket.DATA, 0.0) > 0.0 and any(each.cluster.nodes != cluster.nodes for each in asked):
            yield Assumption(kind=Assumed.LOADERS_PER_NODE)
        mishaps = sum(job.seconds.get(bucket, 0.0) for bucket in _MISHAPS)
        if mishaps > 0.0:
            yield Assumption(kind=Assumed.NOT_REPEATED, value=mishaps)
        if job.seconds.get(Bucket.NO_SAMPLES, 0.0) > 0.0:
            yield Assumption(kind=Assumed.UNSAMPLED, value=job.seconds[Bucket.NO_SAMPLES])
        if job.left != 1.0:
            yield Assumption(kind=Assumed.WHOLE_JOB, value=job.left)

    def _of_communication(self, asked: Sequence[PlanLimits]) -> Iterator[Assumption]:
        found = self.job.communication
        if found is None or not found.collectives:
            yield Assumption(kind=Assumed.NO_TRACE, value=self.scaling.gpus)
        elif all(knows_links(self.job.cluster, each.cluster) for each in asked):
            yield Assumption(kind=Assumed.COLLECTIVES, value=float(len(found.collectives)))
        else:
            yield Assumption(kind=Assumed.LINKS_UNKNOWN)


def _around(total: float, fixed: float, width: float) -> Range:
    return Range(total, *(fixed + (total - fixed) * math.exp(sign * width) for sign in (-1.0, 1.0)))


def _costs(cluster: Cluster, seconds: Range) -> Range | None:
    low, middle, high = (cluster.cost(each) for each in (seconds.low, seconds.value, seconds.high))
    return None if low is None or middle is None or high is None else Range(middle, low, high)
