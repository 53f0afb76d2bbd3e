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

from infra.constructs.states import State, call, choice, digest_maps

PLAN_TIMEOUT_S = 310
DIGEST_TIMEOUT_S = 910
# Each longer than its function may run.
JOIN_TIMEOUT_S = 910

MAP_LABEL = "Traces"

# After `trainguard.engine.kernels.session.AGAIN_S` the evaluator asks for another one.
EXECUTION_TIMEOUT_S = 2 * 3600


def definition() -> State:
    return {
        "Comment": "Judges a capture of kernel traces",
        "QueryLanguage": "JSONata",
        "TimeoutSeconds": EXECUTION_TIMEOUT_S,
        "StartAt": "PlanCapture",
        "States": {
            "PlanCapture": {
                **call("PlanCapture", "{% $states.input %}", timeout_s=PLAN_TIMEOUT_S),
                "Assign": {"call": "{% $states.input %}", "plan": "{% $states.result.Payload %}"},
                "Next": "IsAnythingToRead",
            },
            "IsAnythingToRead": choice("$plan.count > 0", then="AreFew", otherwise="JoinCapture"),
            "AreFew": choice("$count($plan.items) > 0", then="DigestFew", otherwise="DigestMany"),
            **digest_maps(MAP_LABEL, _digesting_states, following="JoinCapture"),
            "JoinCapture": {
                **call("JoinCapture", "{% $call %}", timeout_s=JOIN_TIMEOUT_S),
                "Output": {},
                "End": True,
            },
        },
    }


def _digesting_states(ending: str) -> State:
    digest, digested = f"DigestTrace{ending}", f"Digested{ending}"
    return {
        digest: {
            **call("DigestTrace", "{% $states.input %}", timeout_s=DIGEST_TIMEOUT_S),
            "Output": {},
            "Catch": [{"ErrorEquals": ["States.ALL"], "Output": {}, "Next": digested}],
            "Next": digested,
        },
        digested: {"Type": "Pass", "Output": {}, "End": True},
    }
