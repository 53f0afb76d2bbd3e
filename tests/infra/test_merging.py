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


def test_optional_resource_gets_the_condition() -> None:
    both = merged(template({"Q": queue(), "P": queue()}), template({"Q": queue()}))
    assert both["Resources"] == {"Q": queue(), "P": {**queue(), "Condition": "C"}}


def test_differing_properties_are_chosen_by_the_condition() -> None:
    both = merged(template({"Q": queue(a=1, b={"c": 2}, d=[3, 4])}), template({"Q": queue(a=1, b={"e": 5}, d=[3, 6])}))
    none = {"Ref": "AWS::NoValue"}
    assert both["Resources"]["Q"]["Properties"] == {
        "a": 1,
        "b": {"c": {"Fn::If": ["C", 2, none]}, "e": {"Fn::If": ["C", none, 5]}},
        "d": [3, {"Fn::If": ["C", 4, 6]}],
    }


def test_differing_cloudformation_functions_stay_whole() -> None:
    both = merged(template({"Q": queue(a={"Ref": "X"})}), template({"Q": queue(a={"Fn::GetAtt": ["Y", "Arn"]})}))
    chosen = {"Fn::If": ["C", {"Ref": "X"}, {"Fn::GetAtt": ["Y", "Arn"]}]}
    assert both["Resources"]["Q"]["Properties"]["a"] == chosen


def test_policy_with_one_statement_less_keeps_the_others() -> None:
    read, write, unnamed = ({"Sid": "Read", "Effect": "Allow"}, {"Sid": "Write", "Effect": "Allow"}, {"Effect": "Deny"})
    both = merged(template({"Q": queue(s=[read, write, unnamed])}), template({"Q": queue(s=[write, unnamed])}))
    optional = {"Fn::If": ["C", read, {"Ref": "AWS::NoValue"}]}
    assert both["Resources"]["Q"]["Properties"]["s"] == [optional, write, unnamed]


def test_list_with_entries_less_keeps_the_others() -> None:
    whole = named(template({"Q": queue(a=["x", "y", "z"])}))
    first = merge("A", whole, whole, named(template({"Q": queue(a=["y", "z"])})))
    second = merge("B", first, whole, named(template({"Q": queue(a=["x", "y"])})))
    none = {"Ref": "AWS::NoValue"}
    assert second["Resources"]["Q"]["Properties"]["a"] == [
        {"Fn::If": ["A", "x", none]},
        "y",
        {"Fn::If": ["B", "z", none]},
    ]


def test_two_conditions_of_a_resource_choose_separately() -> None:
    whole = named(template({"Q": queue(a=1, b=2)}))
    first = merge("A", whole, whole, named(template({"Q": queue(b=2)})))
    second = merge("B", first, whole, named(template({"Q": queue(a=1, b=3)})))
    none = {"Ref": "AWS::NoValue"}
    assert second["Resources"]["Q"]["Properties"] == {"a": {"Fn::If": ["A", 1, none]}, "b": {"Fn::If": ["B", 2, 3]}}


def test_changed_part_keeps_its_condition_inside_a_removed_one() -> None:
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
def test_difference_no_condition_expresses_is_refused(holds: dict[str, Any], fails: dict[str, Any], said: str) -> None:
    with pytest.raises(MergeError, match=f"C: {said}"):
        merged(template(holds), template(fails))


def test_resource_of_two_conditions_needs_both() -> None:
    whole = named(template({"Q": queue(), "P": queue()}))
    less = named(template({"Q": queue()}))
    both = merge("B", merge("A", whole, whole, less), whole, less)
    assert both["Resources"]["P"]["Condition"] == "AAndB"
    assert both["Conditions"] == {"AAndB": {"Fn::And": [{"Condition": "A"}, {"Condition": "B"}]}}


def test_value_chosen_by_two_conditions_is_refused() -> None:
    whole = named(template({"Q": queue(a=1), "P": queue()}))
    first = merge("A", whole, whole, named(template({"Q": queue(a=2)})))
    with pytest.raises(MergeError, match=r"B: another condition chooses the value of Q\.a already"):
        merge("B", first, whole, named(template({"Q": queue(a=3), "P": queue()})))
