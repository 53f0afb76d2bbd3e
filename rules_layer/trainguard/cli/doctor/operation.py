"""What says by itself that something is wrong: alarms, and executions that failed."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult, span
from trainguard.cli.doctor.site import Site
from trainguard.rules.units import counted

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch.type_defs import MetricAlarmTypeDef
    from mypy_boto3_stepfunctions.type_defs import ExecutionListItemTypeDef

ALARMS = Check("alarms")
MACHINES = Check("state machines")
EXECUTIONS = Check("executions")

_FIRES = "FireStateMachineArn"
_UNSENT = " `trainguard alerts list` shows the alerts that were not sent."
_DAY_S = 86_400.0
_ALARMS_A_CALL = 100
_LOOKED_AT = 50
"""Executions of each kind that are asked for; with more, the newest are enough to see that something is wrong."""

_BAD_ENDS: tuple[Literal["FAILED", "TIMED_OUT", "ABORTED"], ...] = ("FAILED", "TIMED_OUT", "ABORTED")


def check_alarms(site: Site) -> Iterator[CheckResult]:
    """Judge the stack's own alarms."""
    names = site.names("AWS::CloudWatch::Alarm")
    alarms: list[MetricAlarmTypeDef] = []
    for first in range(0, len(names), _ALARMS_A_CALL):
        with asking("cloudwatch:DescribeAlarms"):
            answer = site.clients.cloudwatch.describe_alarms(
                AlarmNames=names[first : first + _ALARMS_A_CALL], MaxRecords=_ALARMS_A_CALL
            )
        alarms += answer["MetricAlarms"]
    yield from grade_alarms(names, alarms, site)


def grade_alarms(names: Sequence[str], alarms: "Sequence[MetricAlarmTypeDef]", site: Site) -> Iterator[CheckResult]:
    """Judge alarms as they are now; ``names`` are those that the stack has made."""
    faults: list[CheckResult] = []
    for alarm in alarms:
        name = alarm.get("AlarmName", "")
        if alarm.get("StateValue") == "ALARM":
            history = site.aws("cloudwatch", "describe-alarm-history", "--alarm-name", name)
            meaning = alarm.get("AlarmDescription") or "it has no description"
            faults.append(ALARMS.fail(f"{name} is in ALARM", f"{meaning}. docs/operations.md has more.", history))
        if not alarm.get("ActionsEnabled", True):
            enable = site.aws("cloudwatch", "enable-alarm-actions", "--alarm-names", name)
            faults.append(ALARMS.warn(f"{name} tells nobody: its actions are off", "Switch them on.", enable))
    gone = sorted(set(names) - {alarm.get("AlarmName", "") for alarm in alarms})
    if gone or not names:
        lacks = ", ".join(gone) or "all of them"
        faults.append(ALARMS.warn(f"alarms are missing: {lacks}", "Deploy the stack again: `make deploy`."))
    yield from ALARMS.unless(faults, f"{counted(len(alarms), 'alarm')}, none of them ringing")


def check_machines(site: Site) -> Iterator[CheckResult]:
    """Judge whether the state machines can be started."""
    machines = site.names("AWS::StepFunctions::StateMachine")
    faults = []
    for machine in machines:
        with asking("states:DescribeStateMachine"):
            state = site.clients.stepfunctions.describe_state_machine(stateMachineArn=machine).get("status", "ACTIVE")
        if state != "ACTIVE":
            found = f"{_name(machine)} is {state}"
            faults.append(MACHINES.fail(found, "No fire has an effect: deploy the stack again, `make deploy`."))
    if not machines:
        faults = [MACHINES.fail("the stack has no state machine", "Deploy it again: `make deploy`.")]
    yield from MACHINES.unless(faults, f"{counted(len(machines), 'state machine')} active")


def check_executions(site: Site) -> Iterator[CheckResult]:
    """Judge how the executions of the last day ended."""
    faults: list[CheckResult] = []
    for machine in site.names("AWS::StepFunctions::StateMachine"):
        for end in _BAD_ENDS:
            with asking("states:ListExecutions"):
                listed = site.clients.stepfunctions.list_executions(
                    stateMachineArn=machine, statusFilter=end, maxResults=_LOOKED_AT
                )["executions"]
            faults += grade_executions(machine, end, listed, site)
    yield from EXECUTIONS.unless(faults, "none failed in the last 24 h")


def grade_executions(
    machine: str, end: str, executions: "Sequence[ExecutionListItemTypeDef]", site: Site
) -> Iterator[CheckResult]:
    """Judge a machine's executions that ended badly, newest first."""
    recent = [each for each in executions if site.now - _ended(each) <= _DAY_S]
    if recent:
        newest = recent[0]
        more = "or more " if len(recent) == _LOOKED_AT else ""
        yield EXECUTIONS.warn(
            f"{len(recent)} {more}of {_name(machine)} {end} in the last 24 h, the last {newest['name']} "
            f"{span(site.now - _ended(newest))} ago",
            "Its cause names the step that failed."
            + (_UNSENT if machine == site.deployment.outputs.get(_FIRES) else ""),
            site.aws("stepfunctions", "describe-execution", "--execution-arn", newest["executionArn"]),
        )


def _ended(execution: "ExecutionListItemTypeDef") -> float:
    return execution.get("stopDate", execution["startDate"]).timestamp()


def _name(arn: str) -> str:
    return arn.rpartition(":")[2]
