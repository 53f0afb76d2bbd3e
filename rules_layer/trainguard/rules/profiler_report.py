"""ProfilerReport: the rule that runs all others and takes their parameters. Source: AWS documentation of it."""

from trainguard.rules.protocol import RuleParameters
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import ParameterHelp, RuleSpec

SPEC = RuleSpec(
    name="ProfilerReport",
    looks_at="the others",
    fires_when="one of them has fired",
    condition="one of the other rules fires",
    measures=(Measure("rules that have fired"),),
    parameters={
        "rule_to_invoke": ParameterHelp("rule", "ProfilerReport runs all rules; another name runs that one alone"),
        "opt_out_telemetry": ParameterHelp("", "accepted; TrainGuard sends nothing to anybody either way"),
    },
)
PROFILER_REPORT = SPEC.name


class ReportParameters(RuleParameters, frozen=True, kw_only=True):
    """Settings of the report; ``rule_to_invoke`` names the only rule to run, or ProfilerReport for all.

    ``opt_out_telemetry`` is accepted as the managed service does; TrainGuard sends nothing to anybody either way.
    """

    opt_out_telemetry: bool = False
    rule_to_invoke: str = PROFILER_REPORT
