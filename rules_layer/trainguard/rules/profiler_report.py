"""ProfilerReport: the twelfth rule, which runs the eleven others and takes their parameters.

Source: AWS documentation of ProfilerReport (it invokes all rules and aggregates their findings in one report). It
judges nothing of its own: its row says what the report says, and it alerts nobody, because the rules' own fires do.
"""

from trainguard.rules.protocol import RuleParameters

PROFILER_REPORT = "ProfilerReport"


class ProfilerReportParameters(RuleParameters, frozen=True, kw_only=True):
    """Settings of the report; ``rule_to_invoke`` names the only rule to run, or ProfilerReport for all.

    ``opt_out_telemetry`` is accepted as the managed service does; TrainGuard sends nothing to anybody either way.
    """

    opt_out_telemetry: bool = False
    rule_to_invoke: str = PROFILER_REPORT
