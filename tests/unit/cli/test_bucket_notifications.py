"""A bucket's whole notification configuration, with and without what the stack needs."""

from typing import Any

import pytest

from trainguard.cli.services.bucket_notifications import (
    CREATED,
    Wanted,
    announced,
    overlaps,
    with_messages,
    without_messages,
)

QUEUE = "arn:aws:sqs:eu-west-1:111122223333:ours"
OLD_QUEUE = "arn:aws:sqs:eu-west-1:111122223333:before-the-stack-was-made-again"
ALL = Wanted(stack="TrainGuard", queue=QUEUE)


def entry(prefix: str = "", suffix: str = "", event: str = CREATED, **more: Any) -> dict[str, Any]:
    rules = [{"Name": "Prefix", "Value": prefix}] * bool(prefix) + [{"Name": "Suffix", "Value": suffix}] * bool(suffix)
    return {"Events": [event], **({"Filter": {"Key": {"FilterRules": rules}}} if rules else {}), **more}


@pytest.mark.parametrize(
    ("theirs", "prefixes", "overlap"),
    [
        (entry(), (), True),
        (entry("models/"), (), True),
        (entry(suffix=".tar.gz"), (), True),
        (entry("models/"), ("runs/",), False),
        (entry("runs/a/"), ("runs/",), True),
        (entry("r"), ("runs/",), True),
        (entry("trainguard-"), ("runs/",), True),
        (entry(suffix=".tar.gz"), ("runs/",), True),
        (entry(event="s3:ObjectCreated:Put"), (), True),
        (entry(event="s3:ObjectRemoved:*"), (), False),
    ],
)
def test_given_another_configuration_when_compared_then_it_overlaps_as_s3_counts_it(
    theirs: dict[str, Any], prefixes: tuple[str, ...], overlap: bool
) -> None:
    configured = {"LambdaFunctionConfigurations": [theirs | {"LambdaFunctionArn": "arn:theirs"}]}
    wanted = Wanted(stack="TrainGuard", queue=QUEUE, prefixes=prefixes)
    assert [each.target for each in overlaps(configured, wanted)] == ["arn:theirs"] * overlap


def test_given_a_configuration_when_the_queue_is_added_twice_then_it_is_there_once_and_the_rest_stays() -> None:
    theirs = {"TopicConfigurations": [entry("models/", TopicArn="arn:topic")], "EventBridgeConfiguration": {}}
    once = with_messages(theirs, ALL)
    assert with_messages(once, ALL) == once
    assert {name: once[name] for name in theirs} == theirs
    assert announced(once, QUEUE) == []
    assert without_messages(once, ALL) == theirs


def test_given_a_configuration_that_a_person_made_when_the_queue_is_added_then_it_stays_under_its_name() -> None:
    by_hand = {"QueueConfigurations": [entry(QueueArn=QUEUE, Id="by hand")]}
    assert with_messages(by_hand, ALL) == by_hand


def test_given_prefixes_when_added_then_those_of_the_canary_come_along_and_none_lies_within_another() -> None:
    wanted = Wanted(stack="TrainGuard", queue=QUEUE, prefixes=("runs/", "runs/a/"))
    made = with_messages(with_messages({}, ALL), wanted)
    assert announced(made, QUEUE) == ["runs/", "trainguard-canary-"]
    assert len({each["Id"] for each in made["QueueConfigurations"]}) == 2


def test_given_a_stack_that_was_made_again_when_added_then_its_earlier_queue_goes_and_another_stacks_stays() -> None:
    earlier = with_messages({}, Wanted(stack="TrainGuard", queue=OLD_QUEUE, prefixes=("runs/",)))
    others = Wanted(stack="TrainGuard-Research", queue="arn:other", prefixes=("research/",))
    made = with_messages(with_messages(earlier, others), ALL)
    assert announced(made, OLD_QUEUE) is None
    assert announced(made, "arn:other") == ["research/", "trainguard-canary-"]


def test_given_a_suffix_when_asked_what_is_announced_then_it_does_not_count() -> None:
    assert announced({"QueueConfigurations": [entry(suffix=".json", QueueArn=QUEUE)]}, QUEUE) is None
