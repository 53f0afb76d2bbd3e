"""A kit for testing custom rules: synthetic training jobs, judged by the engine that is deployed.

Examples
--------
>>> from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
>>> from trainguard.testing import SyntheticJob, run_rule
>>> job = SyntheticJob(minutes=30).with_series("gpu_utilization", 30.0, device=1)
>>> outcome = run_rule(LowGPUUtilization(), job, {"patience": 60, "window": 60})
>>> outcome.assert_fired(node="algo-1").row.worst
'algo-1/gpu1'

Nothing that is deployed imports the kit, and the kit does not need pytest: it raises AssertionError.
"""

from trainguard.testing.job import SyntheticJob
from trainguard.testing.objects import write_profile
from trainguard.testing.outcome import Alert, Outcome
from trainguard.testing.run import assert_boundary, assert_delivery_makes_no_difference, check_package, run_rule

__all__ = [
    "Alert",
    "Outcome",
    "SyntheticJob",
    "assert_boundary",
    "assert_delivery_makes_no_difference",
    "check_package",
    "run_rule",
    "write_profile",
]
