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
    """

    # As in the managed service's documentation.
    name: str
    family: str = "profiler"
    # Of its section in a report; empty stands for the name.
    title: str = ""
    # Columns of the page on all rules.
    looks_at: str
    fires_when: str
    # Has ``{parameter}`` where a parameter's value belongs.
    condition: str
    # Possible meanings of ``RuleResult.measured``: the first unless a judgement says another.
    measures: tuple[Measure, ...] = ()
    # The unit of patience.
    counts: str = POINTS
    # Whether a verdict comes with as many as patience needs, else with one more.
    at_patience: bool = False
    parameters: Mapping[str, ParameterHelp] = field(default_factory=dict)
    # Those of the managed service's container that differ from the documented ones.
    shipped_defaults: Mapping[str, float | int] = field(default_factory=dict)
    # Shown by the managed service's report, in its order: readers take them by position.
    managed_parameters: tuple[str, ...] = ()
    # Those of them that are another parameter under a second name, with that one's name.
    managed_aliases: Mapping[str, str] = field(default_factory=dict)
    # The streams that the rule needs, none where it judges other rules' verdicts.
    inputs: frozenset[Input] = frozenset()
    # The system metrics without which it cannot judge, beside GPU utilization.
    metrics: tuple[str, ...] = ()
    informs_only: bool = False
    # What its finding looks like, and by kind; None where it is no mere look.
    symptom: Symptom | None = None
    looks: Mapping[str, Symptom] = field(default_factory=dict)
    # The symptoms that it names a reason for, and by kind besides.
    explains: tuple[Symptom, ...] = ()
    explains_as: Mapping[str, tuple[Symptom, ...]] = field(default_factory=dict)
    text: Text | None = None
    # Returns the kind and the facts of a finding whose condition holds no more, in a job that goes on; None where they
    # stay true.
    over: Over | None = None
    # By kind (``""`` for all others) what its finding asks to change.
    changes: Mapping[str, ChangeCode] = field(default_factory=dict)
    # In the same way the ledger's buckets whose time in the episodes it explains, in order.
    claims: Mapping[str, tuple[Bucket, ...]] = field(default_factory=dict)
    # ``wasted_share`` bounds its claim: it is measured, and the buckets hold more than that.
    measures_loss: bool = False
    # The words on a job that was too short, where no patience can be lowered.
    too_short: str | None = None
    details: type[Details] | None = None
    chart_lines: tuple[ChartLine, ...] = ()
    # The report's, as ``module:function``: text, as evaluators must not import reports.
    section: str | None = None

    def measure_of(self, result: RuleResult) -> Measure | None:
        """Return the measure of a judgement's number; None without one."""
        if result.measured is None:
            return None
        return result.measure or next(iter(self.measures), None)

    def change_for(self, kind: str) -> ChangeCode:
        return self.changes.get(kind) or self.changes.get("", ChangeCode.LOOK_AT_FINDING)
