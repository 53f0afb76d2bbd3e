"""All that is said about a rule beside its verdicts: one declaration, which stands in the rule's own file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainguard.ledger.bucket import Bucket
from trainguard.rules.details import Details
from trainguard.rules.parameter_help import POINTS, ParameterHelp
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.symptoms import Symptom
from trainguard.rules.words import Text

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
class SettingsSpec:
    """What is said of a group of settings that no rule owns.

    Attributes
    ----------
    name, family : str
    looks_at, fires_when : str
        What the settings are about, and that they never fire: the words of a rule's spec.
    parameters : mapping of str to ParameterHelp
    """

    name: str
    family: str
    looks_at: str
    fires_when: str
    parameters: Mapping[str, ParameterHelp]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSpec:
    """A rule's name, its help, and what ranking and reports have to know about it.

    A rule of a deployment's own may give one of texts alone: no function and no section.

    Attributes
    ----------
    name : str
        As in the managed service's documentation.
    family : str
        The kind of profile that the rule judges.
    title : str
        Title of its section in a report; empty stands for the name.
    looks_at, fires_when : str
        The columns of the page on all rules.
    condition : str
        The condition with ``{parameter}`` where a parameter's value belongs.
    measures : tuple of Measure
        What ``RuleResult.measured`` may be: the first unless a judgement says another; empty where nothing is measured.
    counts : str
        What patience is counted in.
    at_patience : bool
        Whether a verdict comes with as many as patience needs; else with one more.
    parameters : mapping of str to ParameterHelp
    shipped_defaults : mapping of str to float or int
        Defaults of the managed service's container that differ from the documented ones.
    managed_parameters : tuple of str
        The parameters that the managed service's report shows, in its order: who reads it takes them by position.
    managed_aliases : mapping of str to str
        Those of them that are another parameter under a second name, with that one's name.
    inputs : frozenset of {"system", "framework"}
        The streams that the rule needs; none where it judges other rules' verdicts.
    metrics : tuple of str
        The system metrics without which it cannot judge, beside GPU utilization.
    informs_only : bool
        Whether it sums up and never fires.
    symptom : Symptom or None
        What its finding looks like, for rules that name a reason; None where it is no mere look.
    looks : mapping of str to Symptom
        By kind of finding, what it looks like where that is something else than ``symptom``.
    explains : tuple of Symptom
        The symptoms that it names a reason for.
    explains_as : mapping of str to tuple of Symptom
        By kind of finding, those that a finding of this kind names a reason for besides.
    seen_with : tuple of Symptom
        Symptoms that are a part of its own condition.
    text : function or None
        Makes the words of a judgement from its facts.
    claims : mapping of str to tuple of Bucket
        By kind of finding, the buckets of the ledger whose time in the finding's episodes the finding explains, in the
        order in which it takes from them. The kind ``""`` stands for all others.
    measures_loss : bool
        Whether a judgement's ``wasted_share`` bounds what its finding claims: it is measured, and the ledger's buckets
        hold more than that.
    too_short : str or None
        What to say about a job that was too short, where no patience can be lowered.
    details : type or None
        The class of its details; None of a rule that shows none.
    chart_lines : tuple of ChartLine
        The thresholds that the report draws into its charts.
    section : str or None
        The report's section, as ``module:function``: text, as who evaluates must not import reports.
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
    seen_with: tuple[Symptom, ...] = ()
    text: Text | None = None
    claims: Mapping[str, tuple[Bucket, ...]] = field(default_factory=dict)
    measures_loss: bool = False
    too_short: str | None = None
    details: type[Details] | None = None
    chart_lines: tuple[ChartLine, ...] = ()
    section: str | None = None

    def measure_of(self, result: RuleResult) -> Measure | None:
        """Return what a judgement has measured; None where it has measured nothing, or nobody says what."""
        if result.measured is None:
            return None
        return result.measure or next(iter(self.measures), None)
