"""Common states in Amazon States Language; ``${…}`` is CloudFormation's, ``{% … %}`` is JSONata."""

from collections.abc import Callable, Mapping
from typing import Any

from trainguard.stack.report.parts import DIGESTS_AT_ONCE

State = dict[str, Any]

TASK_TIMEOUT_S = 60
_CAUSE_CHARACTERS = 300

CALL = "lambda:invoke"

# An account may run fewer functions than want to run at once, digests for one: then they queue.
RETRY = [
    {
        "ErrorEquals": ["Lambda.TooManyRequestsException"],
        "IntervalSeconds": 5,
        "BackoffRate": 2,
        "MaxDelaySeconds": 60,
        "MaxAttempts": 30,
        "JitterStrategy": "FULL",
    },
    {
        "ErrorEquals": ["States.TaskFailed"],
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxAttempts": 3,
        "JitterStrategy": "FULL",
    },
]

ERROR_TEXT = (
    f"$states.errorOutput.Error & ': ' & $substring($string($states.errorOutput.Cause), 0, {_CAUSE_CHARACTERS})"
)


def choice(condition: str, *, then: str, otherwise: str) -> State:
    """Return a choice between two states by a condition in JSONata."""
    return {
        "Type": "Choice",
        "Choices": [{"Condition": f"{{% {condition} %}}", "Next": then}],
        "Default": otherwise,
    }


def call(function: str, payload: object, *, following: str | None = None, timeout_s: int = TASK_TIMEOUT_S) -> State:
    """Return the task that calls a function, whose ARN CloudFormation puts in for ``<function>Arn``."""
    return {
        "Type": "Task",
        "Resource": f"arn:${{Partition}}:states:::{CALL}",
        "Arguments": {"FunctionName": f"${{{function}Arn}}", "Payload": payload},
        "TimeoutSeconds": timeout_s,
        "Retry": RETRY,
        **({"Next": following} if following else {}),
    }


def digest_maps(
    label: str, states_of: Callable[[str], State], *, following: str, noted: Callable[[str], State] = lambda _: {}
) -> State:
    """Return the Maps over a plan's items: ``DigestFew``, and ``DigestMany`` in executions of its own.

    ``following`` comes in any case; ``noted`` says what a Map that fails leaves. Names of states are unique in a
    machine: ``states_of`` gets what those of a Map end in.
    """
    few: tuple[str, State, State] = "", {"Mode": "INLINE"}, {"Items": "{% $plan.items %}"}
    reader = {
        "Resource": "arn:${Partition}:states:::s3:getObject",
        "ReaderConfig": {"InputType": "JSON"},
        "Arguments": {"Bucket": "{% $plan.bucket %}", "Key": "{% $plan.key %}"},
    }
    distributed = {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
    where_from = {"Label": label, "ItemReader": reader, "ToleratedFailurePercentage": 100.0}
    many: tuple[str, State, State] = "OfMany", distributed, where_from
    maps: State = {}
    for name, (ending, processor, items) in {"DigestFew": few, "DigestMany": many}.items():
        states = states_of(ending)
        maps[name] = {
            "Type": "Map",
            **items,
            "MaxConcurrency": DIGESTS_AT_ONCE,
            "ItemProcessor": {"ProcessorConfig": processor, "StartAt": next(iter(states)), "States": states},
            "Output": {},
            "Catch": [{"ErrorEquals": ["States.ALL"], **noted(name), "Next": following}],
            "Next": following,
        }
    return maps


def invoke(
    name: str,
    *,
    payload: object,
    answer: str,
    otherwise: Mapping[str, object],
    fault: str,
    following: str,
    timeout_s: int = TASK_TIMEOUT_S,
) -> State:
    """Return a task that keeps a function's answer in the variable ``answer``, or ``otherwise`` when it failed."""
    kept = {fault: f"{{% '{name}: ' & {ERROR_TEXT} %}}", answer: otherwise}
    return {
        **call(name, payload, following=following, timeout_s=timeout_s),
        "Assign": {answer: "{% $states.result.Payload %}"},
        "Catch": [{"ErrorEquals": ["States.ALL"], "Assign": kept, "Next": following}],
    }
