"""What a good engineer would say of a planted fault: the label that verdicts are held against."""

from dataclasses import dataclass
from typing import Literal

Strength = Literal["strong", "medium"]
"""Strong: anyone sees it in the profile, or most of the time or the whole job is at stake. Medium: it takes a look."""

CPU = "CPUBottleneck"
IO = "IOBottleneck"
LOW = "LowGPUUtilization"
BATCH = "BatchSize"
BALANCE = "LoadBalancing"
MEMORY = "GPUMemoryIncrease"
STEPS = "StepOutlier"
INIT = "MaxInitializationTime"
LOADER = "Dataloader"
HUNG = "HungJob"
HEALTH = "GPUHealth"
STRAGGLER = "Straggler"

_IDLE_CLAIMS = r"stopped working|never used|\bhangs?\b|every GPU .* (has been|was) idle"
_BIGGER_BATCH = r"(raise|larger|increase|bigger)[^.;]*\bbatch"
_SMALLER_INSTANCE = r"smaller[^.;]*instance|fewer (GPUs|instances)"
_MORE_CORES = r"more cores|more (data )?load(er|ing)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fault and what may be said of it.

    Attributes
    ----------
    first : frozenset of str
        Rules that may stand first.
    seen_by : frozenset of str
        Rules that show the fault, be it as its symptom; ``first`` is among them.
    remedy : str
        Pattern of which the advice must hold a word.
    misadvice : str
        Pattern that the advice must not hold: what it names costs money and changes nothing.
    untrue : str
        Pattern that no sentence may hold, because it did not happen.
    """

    first: frozenset[str]
    seen_by: frozenset[str]
    remedy: str
    misadvice: str
    untrue: str = _IDLE_CLAIMS


def _kind(*first: str, symptoms: tuple[str, ...] = (), remedy: str, misadvice: str, untrue: str = _IDLE_CLAIMS) -> Kind:
    return Kind(
        first=frozenset(first),
        seen_by=frozenset(first + symptoms),
        remedy=remedy,
        misadvice=misadvice,
        untrue=untrue,
    )


NO_CLAIM = r"(?!)"
_UNUSED = f"{_BIGGER_BATCH}|prefetch|{_MORE_CORES}"

KINDS = {
    "idle from the start": _kind(
        LOW,
        BALANCE,
        symptoms=(INIT, BATCH),
        remedy=r"places? the model|on the GPU|hang|stop|start|used|download|initiali[sz]",
        misadvice=_UNUSED,
        untrue=NO_CLAIM,
    ),
    "under-used GPUs": _kind(
        LOW,
        symptoms=(INIT, BATCH),
        remedy=r"batch|feed|smaller instance",
        misadvice=r"\bhangs?\b|places? the model|stop it",
        untrue=f"{_IDLE_CLAIMS}|no GPU of .* was used",
    ),
    "late start": _kind(
        INIT,
        LOW,
        remedy=r"stream|image|cache|copy|copied|download|start|initiali[sz]|places? the model",
        misadvice=f"{_BIGGER_BATCH}|{_SMALLER_INSTANCE}",
        untrue=r"stopped working",
    ),
    "hang": _kind(
        LOW,
        symptoms=(BALANCE, BATCH, CPU, IO),
        remedy=r"hang|stuck|stop|restart|wait",
        misadvice=f"{_UNUSED}|{_SMALLER_INSTANCE}",
        untrue=r"never used",
    ),
    "loader, cores full": _kind(
        CPU,
        LOADER,
        symptoms=(LOW, BATCH, STEPS),
        remedy=r"load(er|ing)|prefetch|preprocess|cores",
        misadvice=f"{_BIGGER_BATCH}|{_SMALLER_INSTANCE}|fewer cores",
    ),
    "loader, cores free": _kind(
        LOW,
        LOADER,
        symptoms=(BATCH, STEPS),
        remedy=r"load(er|ing)|prefetch|data|wait|input|blocking",
        misadvice=r"more cores|faster (disk|volume)",
    ),
    "loader, disk": _kind(
        IO,
        LOADER,
        symptoms=(LOW, BATCH, STEPS),
        remedy=r"storage|disk|volume|files?\b|read|prefetch|stream",
        misadvice=f"more cores|{_BIGGER_BATCH}|{_SMALLER_INSTANCE}",
    ),
    "dead GPU": _kind(
        BALANCE,
        symptoms=(LOW,),
        remedy=r"process|rank|each GPU|gpu\d|fewer|unused|never used",
        misadvice=f"{_BIGGER_BATCH}|prefetch",
        untrue=r"every GPU .* idle|no GPU of",
    ),
    "GPU that stops": _kind(
        BALANCE,
        symptoms=(LOW,),
        remedy=r"\blog\b|Xid",
        misadvice=f"{_BIGGER_BATCH}|prefetch|evenly|{_SMALLER_INSTANCE}",
        untrue=r"every GPU .* idle|no GPU of|never used|evenly",
    ),
    "memory that fills up": _kind(
        MEMORY,
        remedy=r"nothing needs to be changed",
        misadvice=f"{_BIGGER_BATCH}|{_SMALLER_INSTANCE}|prefetch",
        untrue=r"leaked| leaks memory: what|at that rate|\bfull in\b",
    ),
    "slow GPU": _kind(
        BALANCE,
        symptoms=(LOW,),
        remedy=r"balance|shard|even|equal|rank|gpu\d",
        misadvice=f"{_BIGGER_BATCH}|{_SMALLER_INSTANCE}",
    ),
    "slow node": _kind(
        BALANCE,
        IO,
        CPU,
        symptoms=(LOW, BATCH),
        remedy=r"algo-\d|node|network|clock|replace|shard|even",
        misadvice=f"{_BIGGER_BATCH}|{_SMALLER_INSTANCE}",
    ),
    "dead node": _kind(
        LOW,
        BALANCE,
        symptoms=(BATCH,),
        remedy=r"algo-\d|node|process|places? the model|hang|fewer",
        misadvice=f"{_BIGGER_BATCH}|prefetch",
        untrue=NO_CLAIM,
    ),
    "small batch": _kind(
        BATCH,
        LOW,
        remedy=r"batch|smaller|instance",
        misadvice=f"{_MORE_CORES}|faster (disk|volume|storage)",
    ),
    "leak": _kind(
        MEMORY,
        remedy=r"memory|kept|grow|leak|cache",
        misadvice=f"{_BIGGER_BATCH}|{_SMALLER_INSTANCE}|prefetch",
    ),
    "slow steps": _kind(
        STEPS,
        symptoms=(LOW,),
        remedy=r"step|checkpoint|evaluation|logging|slow|wait",
        misadvice=f"{_BIGGER_BATCH}|{_SMALLER_INSTANCE}|more cores",
    ),
    "hung collective": _kind(
        HUNG,
        symptoms=(LOW, BALANCE, HEALTH),
        remedy=r"stop|restart",
        misadvice=f"{_UNUSED}|{_SMALLER_INSTANCE}",
        untrue=r"never used",
    ),
    "memory held while idle": _kind(
        LOW,
        symptoms=(BALANCE, HUNG),
        remedy=r"end the process|stop the job",
        misadvice=f"{_UNUSED}|{_SMALLER_INSTANCE}|places? the model",
        untrue=NO_CLAIM,
    ),
    "memory held after training": _kind(
        LOW,
        symptoms=(BALANCE, HUNG),
        remedy=r"end the process|stop the job",
        misadvice=f"{_UNUSED}|{_SMALLER_INSTANCE}|places? the model",
        untrue=NO_CLAIM,
    ),
    "broken GPU": _kind(
        HEALTH,
        symptoms=(HUNG, LOW, BALANCE),
        remedy=r"replace|restart",
        misadvice=f"{_UNUSED}|{_SMALLER_INSTANCE}",
        untrue=r"never used",
    ),
    "lost GPU": _kind(
        HEALTH,
        symptoms=(HUNG, LOW, BALANCE),
        remedy=r"replace|restart",
        misadvice=f"{_UNUSED}|{_SMALLER_INSTANCE}",
        untrue=r"never used",
    ),
    "throttled GPU": _kind(
        HEALTH,
        symptoms=(STRAGGLER, BALANCE),
        remedy=r"cooling|power|replace",
        misadvice=f"{_UNUSED}|{_SMALLER_INSTANCE}",
    ),
    "hollow GPUs": _kind(
        LOW,
        BATCH,
        remedy=r"batch|kernels|share",
        misadvice=f"{_MORE_CORES}|faster (disk|volume|storage)",
    ),
    "straggler": _kind(
        STRAGGLER,
        symptoms=(BALANCE, LOW),
        remedy=r"clocks|replace|batches|shards",
        misadvice=f"{_BIGGER_BATCH}|{_SMALLER_INSTANCE}",
    ),
    "memory leak": _kind(
        MEMORY,
        remedy=r"memory|kept|leak",
        misadvice=f"{_BIGGER_BATCH}|{_SMALLER_INSTANCE}|prefetch",
    ),
    "heavy checkpoints": _kind(
        LOW,
        IO,
        STEPS,
        remedy=r"checkpoint|sav|pause|asynchron|wait",
        misadvice=f"{_BIGGER_BATCH}|{_SMALLER_INSTANCE}|more cores",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A planted fault.

    Attributes
    ----------
    kind : str
        A name in KINDS.
    strength : {"strong", "medium"}
    onset_min, end_min : float
        When it began and ended, minutes since the job's start; ``end_min`` None is to the job's end.
    wasted_min : float or (float, float)
        Minutes of one instance that it cost, all nodes together; two numbers where the profile does not tell how
        much of the others' work was lost with it.
    fails_in_h : float or None
        Hours from the job's end until the fault ends a job that goes on.
    nodes, gpus : tuple of int
        Where, as in a description; empty where it is everywhere.
    first : tuple of str
        Rules that may stand first, where the kind's do not fit.
    """

    kind: str
    strength: Strength = "strong"
    onset_min: float
    end_min: float | None = None
    wasted_min: float | tuple[float, float] = 0.0
    fails_in_h: float | None = None
    nodes: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    first: tuple[str, ...] = ()

    @property
    def label(self) -> Kind:
        """What may be said of its kind."""
        return KINDS[self.kind]

    @property
    def may_stand_first(self) -> frozenset[str]:
        """Rules that may stand first."""
        return frozenset(self.first) or self.label.first

    @property
    def wasted(self) -> tuple[float, float]:
        """The least and the most that it cost, minutes of one instance."""
        return self.wasted_min if isinstance(self.wasted_min, tuple) else (self.wasted_min, self.wasted_min)
