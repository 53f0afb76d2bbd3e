"""The report state machine, in Amazon States Language with JSONata.

An execution makes the full report of one job: a function plans which nodes and days are to be read, a Map has each of
them digested, and a function puts the digests together. Many items go through a Distributed Map, so that neither
payloads nor the history outgrow their limits. A digest that fails at every attempt is missing in the report, which says
so; every other fault fails the execution at its end.

The input is ``{"job": name}``, at a job's end with ``"kind": "end"``: then a report that cannot be planned, or not be
put together, is built from state; on request it would replace a full one by less. With ``"kind": "hang"`` the dumps
of a job that stands still are read, and its report is built from state; so it is with ``"kind": "fire"``, and its place
is recorded in the row of the ``fire``. The variables:

=========== ======================================================================================================
job, run    the job's name; this execution's name, under which the parts lie
atEnd       whether the job's end asks for it
kind, fire  the input's, empty on request
plan        answer of `plan_report`: ``count``, ``bucket``, ``key``, and ``items`` where they are few; while it has
            ``more`` to list, its next call takes its ``listing``
report      answer of `build_report`
…Fault      what went wrong: an empty text, or ``<state>: <error>: <cause>``
=========== ======================================================================================================
"""

from aws_cdk import ArnFormat, Stack

from infra.constructs.states import ERROR_TEXT, State, call, choice, digest_maps, invoke

# Longer than the function that builds reports may run.
REPORT_TIMEOUT_S = 610

DIGEST_TIMEOUT_S = 910
# Each longer than its function may run.
PLAN_TIMEOUT_S = 310

REPORT, MAP_LABEL = "Report", "Digests"
_BY_COLON = ArnFormat.COLON_RESOURCE_NAME

_IS_OF_STATE = "$kind in ['hang', 'fire']"

_EXECUTION_TIMEOUT_S = 24 * 3600

_FAULTS = ("planFault", "mapFault", "reportFault", "stateFault", "recordFault", "dropFault")
# The faults that are there; `$filter` alone may give no list.
_NOTED = f"[$filter([{', '.join(f'${fault}' for fault in _FAULTS)}], function($text) {{ $text != '' }})]"


def report_machine_arn(stack: Stack, stack_name: str) -> str:
    """Return the ARN by the machine's name, before the machine is built."""
    return stack.format_arn(
        service="states", resource="stateMachine", resource_name=f"{stack_name}-{REPORT}", arn_format=_BY_COLON
    )


def definition() -> State:
    return {
        "Comment": "Makes the full report of a training job, with time lines",
        "QueryLanguage": "JSONata",
        "TimeoutSeconds": _EXECUTION_TIMEOUT_S,
        "StartAt": "TakeInput",
        "States": {
            "TakeInput": {
                "Type": "Pass",
                "Assign": {
                    "job": "{% $states.input.job %}",
                    "run": "{% $states.context.Execution.Name %}",
                    "atEnd": "{% $states.input.kind = 'end' %}",
                    "kind": "{% $type($states.input.kind) = 'string' ? $states.input.kind : '' %}",
                    "fire": "{% $type($states.input.fire) = 'object' ? $states.input.fire : {} %}",
                    "plan": {"listing": None, "count": 0},
                    **dict.fromkeys(_FAULTS, ""),
                },
                "Next": "IsOfState",
            },
            "IsOfState": choice(_IS_OF_STATE, then="BuildFromState", otherwise="PlanReport"),
            "PlanReport": invoke(
                "PlanReport",
                payload={"job": "{% $job %}", "run": "{% $run %}", "listing": "{% $plan.listing %}"},
                answer="plan",
                otherwise={"count": 0, "items": [], "more": False},
                fault="planFault",
                following="IsMoreToList",
                timeout_s=PLAN_TIMEOUT_S,
            ),
            "IsMoreToList": choice("$plan.more = true", then="PlanReport", otherwise="IsAnythingToRead"),
            "IsAnythingToRead": choice("$plan.count > 0", then="AreFew", otherwise="IsPlanned"),
            "AreFew": choice("$count($plan.items) > 0", then="DigestFew", otherwise="DigestMany"),
            **digest_maps(
                MAP_LABEL,
                _digesting_states,
                following="BuildReport",
                noted=lambda name: {"Assign": {"mapFault": f"{{% '{name}: ' & {ERROR_TEXT} %}}"}},
            ),
            **_building_states(),
            "AllDone": choice(f"$count({_NOTED}) = 0", then="Done", otherwise="SomeStepFailed"),
            "Done": {"Type": "Succeed"},
            "SomeStepFailed": {
                "Type": "Fail",
                "Error": "TrainGuard.StepFailed",
                "Cause": f"{{% $join({_NOTED}, '; ') %}}",
            },
        },
    }


def _building_states() -> State:
    """Build the report, at a job's end of state alone when that fails, and delete the parts that it was made of."""
    return {
        "IsPlanned": choice("$planFault = ''", then="BuildReport", otherwise="IsStateWanted"),
        "BuildReport": invoke(
            "BuildReport",
            payload={"job": "{% $job %}", "run": "{% $run %}"},
            answer="report",
            otherwise={"reportUri": ""},
            fault="reportFault",
            following="IsStateWanted",
            timeout_s=REPORT_TIMEOUT_S,
        ),
        "IsStateWanted": choice(
            "$atEnd and ($planFault != '' or $reportFault != '')", then="BuildFromState", otherwise="AreThereParts"
        ),
        "BuildFromState": invoke(
            "BuildFromState",
            payload={"job": "{% $job %}", "kind": "{% $kind %}"},
            answer="report",
            otherwise={"reportUri": ""},
            fault="stateFault",
            following="IsOfFire",
            timeout_s=REPORT_TIMEOUT_S,
        ),
        "IsOfFire": choice("$kind = 'fire' and $stateFault = ''", then="RecordFire", otherwise="AreThereParts"),
        "RecordFire": invoke(
            "RecordFire",
            payload={"fire": "{% $fire %}", "reportUri": "{% $report.reportUri %}"},
            answer="recorded",
            otherwise={},
            fault="recordFault",
            following="AllDone",
        ),
        "AreThereParts": choice(f"$planFault = '' and $not({_IS_OF_STATE})", then="DropParts", otherwise="AllDone"),
        "DropParts": invoke(
            "DropParts",
            payload={"job": "{% $job %}", "run": "{% $run %}", "drop": True},
            answer="dropped",
            otherwise={},
            fault="dropFault",
            following="AllDone",
            timeout_s=REPORT_TIMEOUT_S,
        ),
    }


def _digesting_states(ending: str) -> State:
    """Digest one item, calling the function again until it says that nothing is left, or it fails for good."""
    digest, left, digested = f"DigestProfile{ending}", f"IsAnyLeft{ending}", f"Digested{ending}"
    return {
        digest: {
            **call("DigestProfile", "{% $states.input %}", timeout_s=DIGEST_TIMEOUT_S),
            "Output": "{% $states.result.Payload %}",
            "Catch": [{"ErrorEquals": ["States.ALL"], "Output": {}, "Next": digested}],
            "Next": left,
        },
        left: choice("$states.input.more = true", then=digest, otherwise=digested),
        digested: {"Type": "Pass", "Output": {}, "End": True},
    }
