"""A bucket's whole notification configuration, with and without what the stack needs."""

from typing import Any

import pytest

from trainguard.cli.services.bucket_notifications import (
    CREATED,
    WantedNotifications,
    announced,
    overlaps,
    with_messages,
    without_messages,
)

QUEUE = "arn:aws:sqs:eu-west-1:111122223333:ours"
OLD_QUEUE = "arn:aws:sqs:eu-west-1:111122223333:before-the-stack-was-made-again"
ALL = WantedNotifications(stack="TrainGuard", queue=QUEUE)


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
def test_overlap_of_configurations_is_judged_as_by_s3(
    theirs: dict[str, Any], prefixes: tuple[str, ...], overlap: bool
) -> None:
    configured = {"LambdaFunctionConfigurations": [theirs | {"LambdaFunctionArn": "arn:theirs"}]}
    wanted = WantedNotifications(stack="TrainGuard", queue=QUEUE, prefixes=prefixes)
    assert [target for target, *_ in overlaps(configured, wanted)] == ["arn:theirs"] * overlap


def test_queue_added_twice_is_there_once_and_keeps_the_rest() -> None:
    theirs = {"TopicConfigurations": [entry("models/", TopicArn="arn:topic")], "EventBridgeConfiguration": {}}
    once = with_messages(theirs, ALL)
    assert with_messages(once, ALL) == once
    assert {name: once[name] for name in theirs} == theirs
    assert announced(once, QUEUE) == []
    assert without_messages(once, ALL) == theirs


def test_hand_made_configuration_keeps_its_name() -> None:
    by_hand = {"QueueConfigurations": [entry(QueueArn=QUEUE, Id="by hand")]}
    assert with_messages(by_hand, ALL) == by_hand


def test_added_prefixes_include_the_canary_and_never_nest() -> None:
    wanted = WantedNotifications(stack="TrainGuard", queue=QUEUE, prefixes=("runs/", "runs/a/"))
    made = with_messages(with_messages({}, ALL), wanted)
    assert announced(made, QUEUE) == ["runs/", "trainguard-canary-"]
    assert len({each["Id"] for each in made["QueueConfigurations"]}) == 2


def test_recreated_stack_replaces_its_own_old_queue_only() -> None:
    earlier = with_messages({}, WantedNotifications(stack="TrainGuard", queue=OLD_QUEUE, prefixes=("runs/",)))
    others = WantedNotifications(stack="TrainGuard-Research", queue="arn:other", prefixes=("research/",))
    made = with_messages(with_messages(earlier, others), ALL)
    assert announced(made, OLD_QUEUE) is None
    assert announced(made, "arn:other") == ["research/", "trainguard-canary-"]


def test_suffix_is_ignored_for_what_is_announced() -> None:
    assert announced({"QueueConfigurations": [entry(suffix=".json", QueueArn=QUEUE)]}, QUEUE) is None
