"""How far a rule's patience and window are: shown in each status in which it judges."""

import pytest

from tests.answers.test_cluster_rules import random_ranks
from tests.answers.test_framework_rules import initialized, judged_job
from tests.answers.test_node_rules import random_minutes
from tests.property.test_rules_state import EAGER
from tests.unit.rules.node_replay import replayed
from trainguard.core.records import Status
from trainguard.rules.dataloader.rule import Dataloader
from trainguard.rules.protocol import AnySystemRule
from trainguard.rules.registry import SYSTEM_RULES
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.step_outlier.rule import StepOutlier
from trainguard.rules.straggler.rule import Straggler

JUDGED = {Status.OK, Status.FIRED, Status.WARMING_UP}
NODES, JOBS = 5, 4
# A GPU's fault counts from its first sample on, each for itself; the other sums up and waits for nothing.
WITHOUT = {"GPUHealth", "OverallSystemUsage"}

OF_NODES = [rule for rule in SYSTEM_RULES if rule.name not in WITHOUT]


def assert_shown(results: list[RuleResult]) -> None:
    judged = [each for each in results if each.status in JUDGED]
    assert judged
    for each in judged:
        shown = each.progress
        assert shown is not None, (each.status, each.kind)
        assert shown.seen >= 0
        assert shown.needed >= 0
        if shown.window_points:
            assert shown.window_start is not None, (each.status, each.kind)
            assert shown.window_end is not None
            assert shown.window_start <= shown.window_end


@pytest.mark.parametrize("rule", OF_NODES, ids=lambda rule: rule.name)
def test_progress_is_shown_while_a_rule_judges_nodes(rule: AnySystemRule) -> None:
    results: list[RuleResult] = []
    for seed in range(NODES):
        given = EAGER.get(rule.name, rule.parameters_type()) if seed % 2 else rule.parameters_type()
        results += replayed(rule, given, random_minutes(seed, closed=True)).results
    assert_shown(results)


@pytest.mark.parametrize("rule", [Dataloader(), StepOutlier()], ids=lambda rule: rule.name)
def test_progress_is_shown_while_a_rule_judges_jobs(rule: Dataloader | StepOutlier) -> None:
    assert_shown([each for seed in range(JOBS) for each in judged_job(rule, seed)])


def test_progress_is_shown_while_starts_are_judged() -> None:
    assert_shown([each for seed in range(10) for each in initialized(seed)])


def test_progress_is_shown_while_ranks_are_judged() -> None:
    assert_shown([Straggler().judge(*random_ranks(seed)) for seed in range(30)])
