"""The fire state machine, in Amazon States Language with JSONata.

An execution handles one fire: stop where opted in, alert, report from state; or tells what became of one later: that
its finding escalates, or is over; or reports faults in a job's settings. No step and no branch keeps another from
running, but for a stop: what could not be announced or recorded is not done. What went wrong fails the execution at its
very end, where a rule tells operators of it, and where a redrive sends what was not sent. An execution with ``resend``
in its input sends the alert of another one that could not; it marks, decides, stops and reports nothing. The variables:

=========== ======================================================================================================
fire        the execution's input, of the ``kind`` fire, escalation, cleared or notice
markFault   what went wrong in `MarkFired`; like every fault an empty text, or ``<state>: <error>: <cause>``
decision    answer of `decide_stop`: ``stop``, ``decision``, ``why``, ``stopAt``, ``optedIn``
warning     answer of `compose_alert` for a stop that is to come
stop        outcome of `StopTrainingJob`, or of what stops another resource: ``made``, ``error``
alert       answer of `compose_alert`, see `BARE_ALERT` for its parts
=========== ======================================================================================================
"""

from collections.abc import Sequence

from infra.constructs import fire_alerts, fire_stops
from infra.constructs.fire_alerts import alerting_states
from infra.constructs.fire_rows import marking_states, update_row
from infra.constructs.fire_stops import NO_DECISION, stopping_states
from infra.constructs.fire_unsent import UNSENT, ending_states
from infra.constructs.states import State, choice, invoke, listed

REPORT_TIMEOUT_S = 610
"""Longer than the function that builds reports may run."""

EXECUTION_TIMEOUT_S = 9 * 86_400
"""Longer than a day of grace and a week of quiet hours; what works and does not wait is limited task by task."""

_IS_RESEND = "$type($fire.resend) = 'object'"
_IS_NEW_FIRE = f"$fire.kind = 'fire' and $not({_IS_RESEND})"


def definition(stoppable: Sequence[str] = ()) -> State:
    """Return the state machine's definition; ``stoppable`` are kinds of resources beside training jobs."""
    return {
        "Comment": "Handles one fire of a rule, or a later notification about it: stop where opted in, alert, report",
        "QueryLanguage": "JSONata",
        "TimeoutSeconds": EXECUTION_TIMEOUT_S,
        "StartAt": "TakeInput",
        "States": {
            "TakeInput": {
                "Type": "Pass",
                "Assign": {"fire": "{% $states.input %}", "markFault": ""},
                "Next": "IsNew",
            },
            "IsNew": choice(_IS_NEW_FIRE, then="MarkFired", otherwise="ActAndReport"),
            **marking_states(following="ActAndReport"),
            "ActAndReport": {
                "Type": "Parallel",
                "Branches": [_act_branch(stoppable), _report_branch()],
                "Output": {
                    "faults": listed("$markFault", "$states.result.faults"),
                    "unsent": "{% $states.result.unsent %}",
                },
                "Next": "AllDone",
            },
            **ending_states(),
        },
    }


def _act_branch(stoppable: Sequence[str]) -> State:
    """Decide, stop, alert, record: each step runs whatever became of the one before."""
    noted = (*fire_stops.FAULTS, *fire_alerts.FAULTS)
    nothing = {"decision": NO_DECISION, "stop": {"made": False, "error": None}}
    return {
        "StartAt": "PrepareAct",
        "States": {
            "PrepareAct": {"Type": "Pass", "Assign": {**nothing, **dict.fromkeys(noted, "")}, "Next": "IsResend"},
            "IsResend": choice(_IS_RESEND, then="TakeOutcome", otherwise="MayAct"),
            "TakeOutcome": {
                "Type": "Pass",
                "Assign": {"decision": "{% $fire.resend.decision %}", "stop": "{% $fire.resend.stop %}"},
                "Next": "ComposeAlert",
            },
            "MayAct": choice(_IS_NEW_FIRE, then="DecideStop", otherwise="ComposeAlert"),
            **stopping_states(following="ComposeAlert", stoppable=stoppable),
            **alerting_states(following="ActFaults"),
            "ActFaults": _faults(*(name for name in noted if name not in fire_alerts.UNSENT_FAULTS), unsent=UNSENT),
        },
    }


def _report_branch() -> State:
    """Build the report of a fire, or of an escalation, from state, and record its place in the rule's row."""
    return {
        "StartAt": "PrepareReport",
        "States": {
            "PrepareReport": {
                "Type": "Pass",
                "Assign": {"reportFault": "", "placeFault": ""},
                "Next": "IsReported",
            },
            "IsReported": choice(
                f"$fire.kind in ['fire', 'escalation'] and $not({_IS_RESEND})",
                then="BuildReport",
                otherwise="ReportFaults",
            ),
            "BuildReport": invoke(
                "BuildReport",
                payload="{% $merge([$fire, {'kind': 'fire'}]) %}",
                answer="report",
                otherwise={"reportUri": ""},
                fault="reportFault",
                following="IsWritten",
                timeout_s=REPORT_TIMEOUT_S,
            ),
            "IsWritten": choice("$reportFault = ''", then="RecordReport", otherwise="ReportFaults"),
            "RecordReport": update_row(
                "RecordReport",
                values={"ReportUri": "{% {'S': $report.reportUri} %}"},
                fault="placeFault",
                following="ReportFaults",
            ),
            "ReportFaults": _faults("reportFault", "placeFault"),
        },
    }


def _faults(*variables: str, **others: object) -> State:
    """End a branch with the list of what went wrong in it."""
    return {"Type": "Pass", "Output": {"faults": listed(*(f"${name}" for name in variables)), **others}, "End": True}
