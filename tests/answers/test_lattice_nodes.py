"""All that the rules over a node say about nodes whose values lie on thresholds, minute by minute."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.answers.lattice_nodes import lattice_minutes
from tests.answers.recorded import compare, judged, plain_result
from trainguard.rules.bottlenecks.cpu_and_io import (
    CPUBottleneck,
    CPUBottleneckParameters,
    IOBottleneck,
    IOBottleneckParameters,
)
from trainguard.rules.gpu_health.rule import GPUHealth, GPUHealthParameters
from trainguard.rules.hung_job.rule import HungJob, HungJobParameters
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization, LowGPUUtilizationParameters
from trainguard.rules.overall_system_usage.rule import OverallSystemUsage
from trainguard.rules.protocol import AnySystemRule, RuleParameters

FOLDER = Path(__file__).with_name("lattice")
NODES = 24
RULES: Mapping[AnySystemRule, tuple[RuleParameters, ...]] = {
    LowGPUUtilization(): (LowGPUUtilizationParameters(), LowGPUUtilizationParameters(window=20, patience=20)),
    CPUBottleneck(): (CPUBottleneckParameters(), CPUBottleneckParameters(patience_s=120.0, threshold=25.0)),
    IOBottleneck(): (IOBottleneckParameters(), IOBottleneckParameters(patience=20, threshold=25.0)),
    HungJob(): (HungJobParameters(),),
    GPUHealth(): (GPUHealthParameters(), GPUHealthParameters(loaded_minutes=2)),
    OverallSystemUsage(): (RuleParameters(),),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_minutes_of_nodes_on_thresholds_match_the_reviewed(
    rule: AnySystemRule,
) -> None:
    answers = {}
    for seed in range(NODES):
        parameters = RULES[rule][seed % len(RULES[rule])]
        state: Any = rule.state_type()
        said = []
        for minute in lattice_minutes(seed):
            rule.observe(state, minute, parameters)
            said.append(plain_result(rule.judge(state, minute.view, parameters)))
        answers[f"node {seed}"] = judged(said)
    compare(answers, FOLDER / f"{rule.name}.json")
