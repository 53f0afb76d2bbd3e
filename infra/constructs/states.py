"""States in Amazon States Language with JSONata, as both machines put them together.

A task catches its own errors, notes them in a variable and goes on, so that no step keeps another from running; all but
those that a redrive is to repeat.
``${…}`` are names and ARNs that CloudFormation puts in; ``{% … %}`` is JSONata.
"""

from collections.abc import Mapping, Sequence
from typing import Any

State = dict[str, Any]

TASK_TIMEOUT_S = 60
_CAUSE_CHARACTERS = 300

RETRY = [
    {
        "ErrorEquals": ["States.TaskFailed"],
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxAttempts": 3,
        "JitterStrategy": "FULL",
    }
]

CALL = "lambda:invoke"
"""The integration that calls a function."""

RETRY_CALL = [
    {
        "ErrorEquals": ["Lambda.TooManyRequestsException"],
        "IntervalSeconds": 5,
        "BackoffRate": 2,
        "MaxDelaySeconds": 60,
        "MaxAttempts": 30,
        "JitterStrategy": "FULL",
    },
    *RETRY,
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
    """Return an expression for the list of those texts that are not empty.

    The outer brackets keep a list of one or none a list; `$filter` alone would give a text, or nothing.
    """
    return f"{{% [$filter([{', '.join(expressions)}], function($text) {{ $text != '' }})] %}}"


def task(
    name: str,
    *,
    resource: str,
    arguments: Mapping[str, object],
    fault: str | None,
    following: str,
    failed: str | None = None,
    timeout_s: int = TASK_TIMEOUT_S,
) -> State:
    """Return a task that goes on to ``following``, after a failure with the variable ``fault`` set.

    After a failure it goes on to ``failed`` where one is given. Without a ``fault`` its failure is the execution's.
    """
    state: State = {
        "Type": "Task",
        "Resource": f"arn:${{Partition}}:states:::{resource}",
        "Arguments": dict(arguments),
        "TimeoutSeconds": timeout_s,
        "Retry": RETRY_CALL if resource == CALL else RETRY,
        "Next": following,
    }
    if fault is not None:
        noted = {fault: f"{{% '{name}: ' & {ERROR_TEXT} %}}"}
        state["Catch"] = [{"ErrorEquals": ["States.ALL"], "Assign": noted, "Next": failed or following}]
    return state


def passing(state: State, errors: Sequence[str], *, following: str) -> State:
    """Return a task for which ``errors`` are no fault: they are not retried, and lead to ``following``."""
    named = {"ErrorEquals": list(errors)}
    return {
        **state,
        "Retry": [{**named, "MaxAttempts": 0}, *state["Retry"]],
        "Catch": [{**named, "Next": following}, *state["Catch"]],
    }


def keeping(variable: str, state: State, *, answer: object, otherwise: object) -> State:
    """Return a task with ``variable`` set: to ``answer`` when it succeeded, to ``otherwise`` when it failed."""
    (catch,) = state["Catch"]
    caught = {**catch, "Assign": {**catch["Assign"], variable: otherwise}}
    return {**state, "Assign": {variable: answer}, "Catch": [caught]}


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
    called = task(
        name,
        resource=CALL,
        arguments={"FunctionName": f"${{{name}Arn}}", "Payload": payload},
        fault=fault,
        following=following,
        timeout_s=timeout_s,
    )
    return keeping(answer, called, answer="{% $states.result.Payload %}", otherwise=otherwise)
