"""Modules that were renamed can still be imported by the names that rules of one's own use."""

from trainguard.rules import judgement, rule_inputs, rule_result, views


def test_given_a_former_module_when_imported_then_it_has_the_very_classes_of_the_new_one() -> None:
    assert {name: getattr(judgement, name) for name in judgement.__all__} == {
        "IdleNode": rule_result.IdleNode,
        "Judgement": rule_result.RuleResult,
    }
    assert all(getattr(views, name) is getattr(rule_inputs, name) for name in views.__all__)
