"""Common states in Amazon States Language; ``${…}`` is CloudFormation's, ``{% … %}`` is JSONata."""

from collections.abc import Mapping
from typing import Any

State = dict[str, Any]

TASK_TIMEOUT_S = 60
_CAUSE_CHARACTERS = 300

CALL = "lambda:invoke"

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
"""An account may run fewer functions than want to run at once, digests for one: then they queue."""

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


def listed(*expressions: str) -> str:
    """Return an expression for the list of the texts that are not empty; `$filter` alone may give no list."""
    return f"{{% [$filter([{', '.join(expressions)}], function($text) {{ $text != '' }})] %}}"


def call(function: str, payload: object, *, following: str, timeout_s: int = TASK_TIMEOUT_S) -> State:
    """Return the task that calls a function, whose ARN CloudFormation puts in for ``<function>Arn``."""
    return {
        "Type": "Task",
        "Resource": f"arn:${{Partition}}:states:::{CALL}",
        "Arguments": {"FunctionName": f"${{{function}Arn}}", "Payload": payload},
        "TimeoutSeconds": timeout_s,
        "Retry": RETRY,
        "Next": following,
    }


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
