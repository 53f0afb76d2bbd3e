"""Two templates of one stack merged into one: what a condition can express, and what it cannot."""

from typing import Any

import pytest

from infra.release.merging import MergeError, listed, merge, named


def template(resources: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {"Resources": resources, **sections}


def queue(**properties: Any) -> dict[str, Any]:
    return {"Type": "AWS::SQS::Queue", "Properties": properties}


def merged(holds: dict[str, Any], fails: dict[str, Any], name: str = "C") -> Any:
    first = named(holds)
    return listed(merge(name, first, first, named(fails)))


def test_given_a_resource_that_is_only_there_sometimes_when_merged_then_it_has_the_condition() -> None:
    both = merged(template({"Q": queue(), "P": queue()}), template({"Q": queue()}))
    assert both["Resources"] == {"Q": queue(), "P": {**queue(), "Condition": "C"}}


def test_given_properties_that_differ_when_merged_then_the_condition_chooses_each() -> None:
    both = merged(template({"Q": queue(a=1, b={"c": 2}, d=[3, 4])}), template({"Q": queue(a=1, b={"e": 5}, d=[3, 6])}))
    none = {"Ref": "AWS::NoValue"}
    assert both["Resources"]["Q"]["Properties"] == {
        "a": 1,
        "b": {"c": {"Fn::If": ["C", 2, none]}, "e": {"Fn::If": ["C", none, 5]}},
        "d": [3, {"Fn::If": ["C", 4, 6]}],
    }


def test_given_functions_of_cloudformation_that_differ_when_merged_then_they_stay_whole() -> None:
    both = merged(template({"Q": queue(a={"Ref": "X"})}), template({"Q": queue(a={"Fn::GetAtt": ["Y", "Arn"]})}))
    chosen = {"Fn::If": ["C", {"Ref": "X"}, {"Fn::GetAtt": ["Y", "Arn"]}]}
    assert both["Resources"]["Q"]["Properties"]["a"] == chosen


def test_given_a_policy_with_one_statement_less_when_merged_then_the_others_are_untouched() -> None:
    read, write, unnamed = ({"Sid": "Read", "Effect": "Allow"}, {"Sid": "Write", "Effect": "Allow"}, {"Effect": "Deny"})
    both = merged(template({"Q": queue(s=[read, write, unnamed])}), template({"Q": queue(s=[write, unnamed])}))
    optional = {"Fn::If": ["C", read, {"Ref": "AWS::NoValue"}]}
    assert both["Resources"]["Q"]["Properties"]["s"] == [optional, write, unnamed]


def test_given_two_conditions_of_one_resource_when_merged_then_each_chooses_its_own() -> None:
    whole = named(template({"Q": queue(a=1, b=2)}))
    first = merge("A", whole, whole, named(template({"Q": queue(b=2)})))
    second = merge("B", first, whole, named(template({"Q": queue(a=1, b=3)})))
    none = {"Ref": "AWS::NoValue"}
    assert second["Resources"]["Q"]["Properties"] == {"a": {"Fn::If": ["A", 1, none]}, "b": {"Fn::If": ["B", 2, 3]}}


def test_given_a_part_that_a_condition_changes_when_another_takes_it_away_then_what_is_left_holds_the_first() -> None:
    whole = named(template({"Q": queue(a={"x": 1, "y": 2})}))
    first = merge("A", whole, whole, named(template({"Q": queue(a={"x": 3, "y": 2})})))
    second = merge("B", first, whole, named(template({"Q": queue()})))
    changed = {"x": {"Fn::If": ["A", 1, 3]}, "y": 2}
    assert second["Resources"]["Q"]["Properties"]["a"] == {"Fn::If": ["B", changed, {"Ref": "AWS::NoValue"}]}


@pytest.mark.parametrize(
    ("holds", "fails", "said"),
    [
        ({}, {"Q": queue()}, "only without it there are the resources Q"),
        ({"Q": queue()}, {"Q": {**queue(), "DeletionPolicy": "Retain"}}, "Q differs in DeletionPolicy"),
        ({"Q": queue()}, {"Q": {**queue(), "Type": "AWS::SNS::Topic"}}, "Q differs in Type"),
    ],
)
def test_given_a_difference_that_no_condition_expresses_when_merged_then_it_is_refused(
    holds: dict[str, Any], fails: dict[str, Any], said: str
) -> None:
    with pytest.raises(MergeError, match=f"C: {said}"):
        merged(template(holds), template(fails))


def test_given_a_value_that_two_conditions_choose_when_merged_then_it_is_refused() -> None:
    whole = named(template({"Q": queue(a=1), "P": queue()}))
    first = merge("A", whole, whole, named(template({"Q": queue(a=2)})))
    with pytest.raises(MergeError, match=r"B: another condition chooses the value of Q\.a already"):
        merge("B", first, whole, named(template({"Q": queue(a=3), "P": queue()})))
    with pytest.raises(MergeError, match="B: P has the condition A already"):
        merge("B", first, whole, named(template({"Q": queue(a=1)})))
