"""The state machine that judges a capture of kernel traces, in Amazon States Language with JSONata.

A function plans which traces are to be read, a Map has each of them digested, and a function joins the ranks. The
capture's verdict names a trace whose function fails at every attempt; every other fault fails the execution, and the
evaluator asks for another one.

The input is a `trainguard.stack.captures.plan.CaptureCall`. The variables:

======= ========================================================================
call    the input
plan    answer of `plan_capture`: ``count``, ``bucket``, ``key``, and ``items``
======= ========================================================================
"""

from infra.constructs.states import CALL, RETRY, State, choice

DIGESTS_AT_ONCE = 40
"""As many as an inline Map runs at once, and few beside the thousand functions that an account may run."""

PLAN_TIMEOUT_S = 310
DIGEST_TIMEOUT_S = 910
JOIN_TIMEOUT_S = 910
"""Each longer than its function may run."""

MAP_LABEL = "Traces"

EXECUTION_TIMEOUT_S = 2 * 3600
"""After `trainguard.engine.kernels.session.AGAIN_S` the evaluator asks for another one."""


def definition() -> State:
    """Return the state machine's definition."""
    return {
        "Comment": "Judges a capture of kernel traces",
        "QueryLanguage": "JSONata",
        "TimeoutSeconds": EXECUTION_TIMEOUT_S,
        "StartAt": "PlanCapture",
        "States": {
            "PlanCapture": {
                **_call("PlanCapture", PLAN_TIMEOUT_S, "{% $states.input %}"),
                "Assign": {"call": "{% $states.input %}", "plan": "{% $states.result.Payload %}"},
                "Next": "IsAnythingToRead",
            },
            "IsAnythingToRead": choice("$plan.count > 0", then="AreFew", otherwise="JoinCapture"),
            "AreFew": choice("$count($plan.items) > 0", then="DigestFew", otherwise="DigestMany"),
            "DigestFew": _map({"Mode": "INLINE"}, of="", Items="{% $plan.items %}"),
            "DigestMany": _map(
                {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
                of="OfMany",
                Label=MAP_LABEL,
                ItemReader={
                    "Resource": "arn:${Partition}:states:::s3:getObject",
                    "ReaderConfig": {"InputType": "JSON"},
                    "Arguments": {"Bucket": "{% $plan.bucket %}", "Key": "{% $plan.key %}"},
                },
                ToleratedFailurePercentage=100.0,
            ),
            "JoinCapture": {**_call("JoinCapture", JOIN_TIMEOUT_S, "{% $call %}"), "Output": {}, "End": True},
        },
    }


def _call(function: str, timeout_s: int, payload: str) -> State:
    return {
        "Type": "Task",
        "Resource": f"arn:${{Partition}}:states:::{CALL}",
        "Arguments": {"FunctionName": f"${{{function}Arn}}", "Payload": payload},
        "TimeoutSeconds": timeout_s,
        "Retry": RETRY,
    }


def _map(processor: State, *, of: str, **where_from: object) -> State:
    """Return a Map over the traces; the ranks are joined in any case.

    Step Functions wants unique names of states: those in this map end in ``of``.
    """
    digest, digested = f"DigestTrace{of}", f"Digested{of}"
    states = {
        digest: {
            **_call("DigestTrace", DIGEST_TIMEOUT_S, "{% $states.input %}"),
            "Output": {},
            "Catch": [{"ErrorEquals": ["States.ALL"], "Output": {}, "Next": digested}],
            "Next": digested,
        },
        digested: {"Type": "Pass", "Output": {}, "End": True},
    }
    return {
        "Type": "Map",
        **where_from,
        "MaxConcurrency": DIGESTS_AT_ONCE,
        "ItemProcessor": {"ProcessorConfig": processor, "StartAt": digest, "States": states},
        "Output": {},
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "JoinCapture"}],
        "Next": "JoinCapture",
    }
