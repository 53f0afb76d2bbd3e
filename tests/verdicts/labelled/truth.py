"""What a good engineer would say about a planted fault: the label that verdicts are held against."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# Strong: anyone sees it in the profile, or most of the time or the whole job is at stake. Medium: it takes a look.
Strength = Literal["strong", "medium"]

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

Looks = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fault and what may be said about it.

    Attributes
    ----------
    first : frozenset of str
        Rules that may stand first.
    seen_by : frozenset of str
        Rules that show the fault, be it as its symptom; ``first`` is among them.
    looks : mapping of str to frozenset of str
        By rule the kinds of its finding that are true of the fault, so that their advice helps; any of a rule that is
        not named.
    """

    first: frozenset[str]
    seen_by: frozenset[str]
    looks: Looks


def _kind(*first: str, symptoms: tuple[str, ...] = (), **looks: tuple[str, ...]) -> Kind:
    return Kind(
        first=frozenset(first),
        seen_by=frozenset(first + symptoms),
        looks={rule: frozenset(kinds) for rule, kinds in looks.items()},
    )


_STOPS = ("stopped", "holds_memory", "gpu_holds_memory")
_HELD = ("holds_memory", "gpu_holds_memory", "gpu_taken")
_WAITS = ("fluctuates", "under_used", "idle_in_part", "hardly_used", "pauses")
_UNEVEN = ("apart", "behind")
_ENDLESS = ("leak", "ramp", "trend", "late", "rise")

KINDS = {
    "idle from the start": _kind(
        LOW, BALANCE, symptoms=(INIT, BATCH), LowGPUUtilization=("never_used", "holds_memory"), LoadBalancing=_UNEVEN
    ),
    "under-used GPUs": _kind(LOW, symptoms=(INIT, BATCH), LowGPUUtilization=("hardly_used", "under_used")),
    "idle in part": _kind(
        LOW, symptoms=(BATCH, STEPS, BALANCE), LowGPUUtilization=("idle_in_part", "pauses", "fluctuates", "hardly_used")
    ),
    "late start": _kind(INIT, LOW, LowGPUUtilization=("idle_at_first",)),
    "hang": _kind(LOW, symptoms=(BALANCE, BATCH, CPU, IO), LowGPUUtilization=_STOPS),
    "loader, cores full": _kind(CPU, LOADER, symptoms=(LOW, BATCH, STEPS), LowGPUUtilization=_WAITS),
    "loader, cores free": _kind(LOW, LOADER, symptoms=(BATCH, STEPS), LowGPUUtilization=_WAITS),
    "loader, disk": _kind(IO, LOADER, symptoms=(LOW, BATCH, STEPS), LowGPUUtilization=_WAITS),
    "dead GPU": _kind(BALANCE, symptoms=(LOW,), LoadBalancing=_UNEVEN),
    "GPU that stops": _kind(BALANCE, symptoms=(LOW,), LoadBalancing=("stopped",)),
    "memory that fills up": _kind(MEMORY, GPUMemoryIncrease=("jump", "leak")),
    "slow GPU": _kind(BALANCE, symptoms=(LOW,), LoadBalancing=_UNEVEN),
    "slow node": _kind(BALANCE, IO, CPU, symptoms=(LOW, BATCH), LoadBalancing=_UNEVEN),
    "dead node": _kind(
        LOW,
        BALANCE,
        symptoms=(BATCH,),
        LowGPUUtilization=("never_used", *_STOPS),
        LoadBalancing=(*_UNEVEN, "stopped"),
    ),
    "small batch": _kind(BATCH, LOW, LowGPUUtilization=("under_used", "hardly_used", "idle_in_part", "fluctuates")),
    "leak": _kind(MEMORY, GPUMemoryIncrease=_ENDLESS),
    "slow steps": _kind(STEPS, symptoms=(LOW,), LowGPUUtilization=_WAITS),
    "hung collective": _kind(HUNG, symptoms=(LOW, BALANCE, HEALTH)),
    "memory held while idle": _kind(LOW, symptoms=(BALANCE, HUNG), LowGPUUtilization=_HELD),
    "memory held after training": _kind(LOW, symptoms=(BALANCE, HUNG), LowGPUUtilization=_HELD),
    "broken GPU": _kind(HEALTH, symptoms=(HUNG, LOW, BALANCE), GPUHealth=("ecc", "rows", "xid")),
    "lost GPU": _kind(HEALTH, symptoms=(HUNG, LOW, BALANCE), GPUHealth=("lost", "vanished", "unanswered", "xid")),
    "throttled GPU": _kind(HEALTH, symptoms=(STRAGGLER, BALANCE), GPUHealth=("heat", "slowdown", "power_limit")),
    "low SM activity": _kind(LOW, BATCH, LowGPUUtilization=("low_activity", "instances_low")),
    "straggler": _kind(STRAGGLER, symptoms=(BALANCE, LOW)),
    "memory leak": _kind(MEMORY, GPUMemoryIncrease=("leak",)),
    "heavy checkpoints": _kind(LOW, IO, STEPS, LowGPUUtilization=("pauses", "idle_in_part", "fluctuates")),
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
        """What may be said about its kind."""
        return KINDS[self.kind]

    @property
    def looks(self) -> Looks:
        """The kinds of findings that are true of it, by rule."""
        return self.label.looks

    @property
    def may_stand_first(self) -> frozenset[str]:
        """Rules that may stand first."""
        return frozenset(self.first) or self.label.first

    @property
    def wasted(self) -> tuple[float, float]:
        """The least and the most that it cost, minutes of one instance."""
        return self.wasted_min if isinstance(self.wasted_min, tuple) else (self.wasted_min, self.wasted_min)
