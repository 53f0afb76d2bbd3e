"""Modules that were renamed can still be imported by the names that rules of one's own use."""

from tests.unit.rules.node_replay import node_minutes, series
from trainguard.rules import judgement, rule_inputs, rule_result, views


def test_given_a_former_module_when_imported_then_it_has_the_very_classes_of_the_new_one() -> None:
    assert {name: getattr(judgement, name) for name in judgement.__all__} == {
        "IdleNode": rule_result.IdleNode,
        "Judgement": rule_result.RuleResult,
    }
    assert all(getattr(views, name) is getattr(rule_inputs, name) for name in views.__all__)


def test_given_a_view_when_asked_for_its_former_watermark_then_it_is_the_one_of_now() -> None:
    framework = rule_inputs.FrameworkView("algo-1", 60.0, closed=False)
    *_, minute = node_minutes(series([90.0] * 5, interval_s=60.0), closed=False)
    node = minute.view
    assert framework.through == 60.0
    assert node.through == node.watermark_s
    assert node.through is not None
