"""A rule's declaration beside its verdicts, which stands in the rule's own file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NewType, TypeAlias

from trainguard.core.finding import Fact
from trainguard.ledger.bucket import Bucket
from trainguard.render.details import Details
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import Measure, RuleResult, Text

POINTS, LOADER_SECONDS, STEPS = "points", "seconds with loader events", "steps"


@dataclass(frozen=True, slots=True)
class ParameterHelp:
    """A parameter: its unit, and what it does in one line."""

    unit: str
    meaning: str


def span_help(name: str, meaning: str, units: Sequence[str] = (POINTS, "seconds")) -> Mapping[str, ParameterHelp]:
    """Return the help of a parameter in points and of the same one in seconds, by their names."""
    points, seconds = units
    return {
        name: ParameterHelp(points, f"{meaning}, in {POINTS} in place of {name}_s"),
        f"{name}_s": ParameterHelp(seconds, f"{meaning}, at any sampling interval"),
    }


WAITED = "how much is waited for before the first verdict"
PATIENCE_HELP = span_help("patience", WAITED)
WINDOW_HELP = span_help("window", "how much of the newest time is looked at")
SCAN_INTERVAL_HELP = ParameterHelp(
    "microseconds", "accepted, and rounded up to whole minutes; evaluation is once a minute"
)
UNSAID = ParameterHelp("", "")
Symptom = NewType("Symptom", str)
LOW_GPUS = Symptom("GPUs are not busy")
TAKEN_GPU = Symptom("a GPU has held memory all along and never worked")
UNEVEN = Symptom("some GPUs do less than the others")
DATA_WAITS = Symptom("GPUs wait for batches")
SMALL_WORK = Symptom("the work leaves CPU, GPUs and GPU memory unused")
SLOW_STEPS = Symptom("some training steps are slow")
STANDSTILL = Symptom("no GPU works any more")
# No GPU of a node ever worked: a matter of the node's start and no matter of load, batches or balance.
UNUSED_NODE = Symptom("never used")

Over: TypeAlias = Callable[[str, tuple[Fact, ...]], tuple[str, tuple[Fact, ...]]]
Input = Literal["system", "framework"]
SYSTEM: frozenset[Input] = frozenset({"system"})
FRAMEWORK: frozenset[Input] = frozenset({"framework"})


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A threshold as a line in one of the report's charts; ``words`` say what is compared with it."""

    chart: Literal["utilization", "memory", "cpu", "io_wait"]
    parameter: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSpec:
    """A rule's name, its help, and its part in ranking and reports.

    A custom rule may give texts alone, as does a group of settings that no rule owns.

    ``name`` is as in the managed service's documentation, ``title`` that of its section in a report (empty stands for
    the name). ``looks_at`` and ``fires_when`` are columns of the page on all rules; ``condition`` has ``{parameter}``
    where a parameter's value belongs. ``measures`` are possible meanings of ``RuleResult.measured``: the first unless a
    judgement says another.

    ``counts`` is the unit of patience; ``at_patience`` says whether a verdict comes with as many as patience needs,
    else with one more. ``shipped_defaults`` are those of the managed service's container that differ from the
    documented ones. ``managed_parameters`` are shown by the managed service's report, in its order: readers take them
    by position. ``managed_aliases`` are those of them that are another parameter under a second name, with that one's
    name.

    ``inputs`` are the streams that the rule needs, none where it judges other rules' verdicts; ``metrics`` the system
    metrics without which it cannot judge, beside GPU utilization. ``symptom``, and by kind ``looks``, is what its
    finding looks like; None where it is no mere look. ``explains``, and by kind ``explains_as`` besides, are the
    symptoms that it names a reason for. ``claims`` has by kind (``""`` for all others) the ledger's buckets whose time
    in the episodes it explains, in order; with ``measures_loss`` ``wasted_share`` bounds its claim: it is measured, and
    the buckets hold more than that. ``changes`` has in the same way by kind what its finding asks to change. ``over``
    returns the kind and the facts of a finding whose condition holds no more, in a job that goes on; None where they
    stay true.

    ``too_short`` are the words on a job that was too short, where no patience can be lowered. ``section`` is the
    report's, as ``module:function``: text, as evaluators must not import reports.
    """

    name: str
    family: str = "profiler"
    title: str = ""
    looks_at: str
    fires_when: str
    condition: str
    measures: tuple[Measure, ...] = ()
    counts: str = POINTS
    at_patience: bool = False
    parameters: Mapping[str, ParameterHelp] = field(default_factory=dict)
    shipped_defaults: Mapping[str, float | int] = field(default_factory=dict)
    managed_parameters: tuple[str, ...] = ()
    managed_aliases: Mapping[str, str] = field(default_factory=dict)
    inputs: frozenset[Input] = frozenset()
    metrics: tuple[str, ...] = ()
    informs_only: bool = False
    symptom: Symptom | None = None
    looks: Mapping[str, Symptom] = field(default_factory=dict)
    explains: tuple[Symptom, ...] = ()
    explains_as: Mapping[str, tuple[Symptom, ...]] = field(default_factory=dict)
    text: Text | None = None
    over: Over | None = None
    changes: Mapping[str, ChangeCode] = field(default_factory=dict)
    claims: Mapping[str, tuple[Bucket, ...]] = field(default_factory=dict)
    measures_loss: bool = False
    too_short: str | None = None
    details: type[Details] | None = None
    chart_lines: tuple[ChartLine, ...] = ()
    section: str | None = None

    def measure_of(self, result: RuleResult) -> Measure | None:
        """Return the measure of a judgement's number; None without one."""
        if result.measured is None:
            return None
        return result.measure or next(iter(self.measures), None)

    def change_for(self, kind: str) -> ChangeCode:
        return self.changes.get(kind) or self.changes.get("", ChangeCode.LOOK_AT_FINDING)
