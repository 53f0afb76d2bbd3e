"""Checks of what leaves the stack: stops by the switch, messages to people by the topics."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from trainguard.aws.brakes import SsmBrakes
from trainguard.aws.ssm import stored_switches
from trainguard.cli.doctor.site import DEPLOY, CheckResult, Site, asking, fail, ok, span, unless, warn
from trainguard.cli.services.brakes import BRAKES_OUTPUT
from trainguard.core.units import counted
from trainguard.engine.settings.tag_names import STOP_ALLOWED, STOP_TAG
from trainguard.stack.actions.stop_switch import StopSwitch, StopSwitches, is_known

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch.type_defs import MetricAlarmTypeDef
    from mypy_boto3_stepfunctions.type_defs import ExecutionListItemTypeDef

_OWN, _OVERRIDE = "StopSwitchParameter", "StopSwitchOverrideParameter"
_MEANINGS = {
    StopSwitch.ENABLED: f"a fire stops its job if that has the tag {STOP_TAG} = {STOP_ALLOWED}",
    StopSwitch.DRY_RUN: "nothing is stopped; the alert says what would have been",
    StopSwitch.DISABLED: "nothing is stopped",
}
_PENDING = "PendingConfirmation"
_FIRES = "FireStateMachineArn"
_UNSENT = " `trainguard alerts list` shows the alerts that were not sent."
_DAY_S = 86_400.0
_ALARMS_A_CALL = 100
_LOOKED_AT = 50
_BAD_ENDS: tuple[Literal["FAILED", "TIMED_OUT", "ABORTED"], ...] = ("FAILED", "TIMED_OUT", "ABORTED")


def stop_switches(site: Site) -> StopSwitches:
    own, override = (site.deployment.output(name) for name in (_OWN, _OVERRIDE))
    with asking("ssm:GetParameter"):
        return stored_switches(site.clients.ssm, parameter=own, override=override)


def check_switch(site: Site) -> Iterable[CheckResult]:
    """Judge the stop switch and its override, and say what they mean."""
    switches = stop_switches(site)
    given = (
        (_OWN, f"the stack's value {switches.deployed!r}", switches.deployed, StopSwitch.ENABLED),
        (_OVERRIDE, f"the override {switches.override!r}", switches.override, StopSwitch.DISABLED),
    )
    faults = []
    for output, what, value, wanted in given:
        if value is not None and not is_known(value):
            words = ("--overwrite", "--name", site.deployment.output(output), "--value", wanted)
            meant = f"Set it to one of {', '.join(StopSwitch)}."
            faults.append(fail(f"{what} counts as disabled", meant, site.aws("ssm", "put-parameter", *words)))
    override = "there is no override" if switches.override is None else f"the override {switches.override}"
    in_force = switches.in_force
    found = f"{in_force}: {_MEANINGS[in_force]} (the stack's value is {switches.deployed}, {override})"
    return unless(faults, found)


def check_brakes(site: Site) -> Iterable[CheckResult]:
    """Say which brakes are in force; one that cannot be read forbids stops."""
    parameter = site.deployment.output(BRAKES_OUTPUT)
    with asking("ssm:GetParameter"):
        found = SsmBrakes(client=lambda: site.clients.ssm, parameter=parameter).read()
    history = site.aws("ssm", "get-parameter-history", "--name", parameter)
    faults = [
        fail(each, "Nothing is stopped until it can be read: correct the parameter, or release it.", history)
        for each in found.faults
    ]
    faults += [
        warn(f"{each.scope} are held back: {each.words}", f"`trainguard brake release {each.id}` ends it.")
        for each in found.in_force(site.now)
    ]
    return unless(faults, "none is on")


def check_topic(site: Site, output: str, what: str, setting: str) -> Iterator[CheckResult]:
    """Judge whether anybody is notified of ``what`` by the topic of an output; ``setting`` subscribes people."""
    topic = site.deployment.output(output)
    confirmed, pending = 0, []
    with asking("sns:ListSubscriptionsByTopic"):
        for page in site.clients.sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic):
            for each in page["Subscriptions"]:
                if each.get("SubscriptionArn") == _PENDING:
                    pending.append(f"{each.get('Protocol')} {each.get('Endpoint')}")
                elif each.get("SubscriptionArn", "").startswith("arn:"):
                    confirmed += 1
    if pending:
        waiting = f"{counted(len(pending), 'subscription')} not confirmed: {', '.join(pending)}"
        yield warn(waiting, "Its owner must follow the link in the message from AWS Notifications.")
    if confirmed:
        yield ok(f"{counted(confirmed, 'confirmed subscription')}")
    elif not pending:
        words = ("--topic-arn", topic, "--protocol", "email", "--notification-endpoint", "YOU@EXAMPLE.COM")
        advice = f"Nobody is notified of {what}: subscribe somebody, or deploy with -c {setting}=…."
        yield warn("no subscription", advice, site.aws("sns", "subscribe", *words))


def check_alarms(site: Site) -> Iterable[CheckResult]:
    names = site.names("AWS::CloudWatch::Alarm")
    alarms: list[MetricAlarmTypeDef] = []
    for first in range(0, len(names), _ALARMS_A_CALL):
        with asking("cloudwatch:DescribeAlarms"):
            answer = site.clients.cloudwatch.describe_alarms(
                AlarmNames=names[first : first + _ALARMS_A_CALL], MaxRecords=_ALARMS_A_CALL
            )
        alarms += answer["MetricAlarms"]
    faults: list[CheckResult] = []
    for alarm in alarms:
        name = alarm.get("AlarmName", "")
        if alarm.get("StateValue") == "ALARM":
            history = site.aws("cloudwatch", "describe-alarm-history", "--alarm-name", name)
            meaning = alarm.get("AlarmDescription") or "it has no description"
            faults.append(fail(f"{name} is in ALARM", f"{meaning}. docs/operations.md has more.", history))
        if not alarm.get("ActionsEnabled", True):
            enable = site.aws("cloudwatch", "enable-alarm-actions", "--alarm-names", name)
            faults.append(warn(f"{name} notifies nobody: its actions are off", "Switch them on.", enable))
    gone = sorted(set(names) - {alarm.get("AlarmName", "") for alarm in alarms})
    if gone or not names:
        faults.append(warn(f"alarms are missing: {', '.join(gone) or 'all of them'}", DEPLOY))
    return unless(faults, f"{counted(len(alarms), 'alarm')}, none of them in alarm")


def check_machines(site: Site) -> Iterable[CheckResult]:
    machines = site.names("AWS::StepFunctions::StateMachine")
    faults = [] if machines else [fail("the stack has no state machine", DEPLOY)]
    for machine in machines:
        with asking("states:DescribeStateMachine"):
            state = site.clients.stepfunctions.describe_state_machine(stateMachineArn=machine).get("status", "ACTIVE")
        if state != "ACTIVE":
            faults.append(fail(f"{_name(machine)} is {state}", f"No fire has an effect. {DEPLOY}"))
    return unless(faults, f"{counted(len(machines), 'state machine')} active")


def check_executions(site: Site) -> Iterable[CheckResult]:
    """Judge how the executions of the last day ended."""
    faults: list[CheckResult] = []
    for machine in site.names("AWS::StepFunctions::StateMachine"):
        for end in _BAD_ENDS:
            with asking("states:ListExecutions"):
                newest_first = site.clients.stepfunctions.list_executions(
                    stateMachineArn=machine, statusFilter=end, maxResults=_LOOKED_AT
                )["executions"]
            recent = [each for each in newest_first if site.now - _ended(each) <= _DAY_S]
            if recent:
                newest, more = recent[0], "or more " if len(recent) == _LOOKED_AT else ""
                found = (
                    f"{len(recent)} {more}of {_name(machine)} {end} in the last 24 h, the last {newest['name']} "
                    f"{span(site.now - _ended(newest))} ago"
                )
                unsent = _UNSENT if machine == site.deployment.outputs.get(_FIRES) else ""
                describe = site.aws("stepfunctions", "describe-execution", "--execution-arn", newest["executionArn"])
                faults.append(warn(found, f"Its cause names the step that failed.{unsent}", describe))
    return unless(faults, "none failed in the last 24 h")


def _ended(execution: "ExecutionListItemTypeDef") -> float:
    return execution.get("stopDate", execution["startDate"]).timestamp()


def _name(arn: str) -> str:
    return arn.rpartition(":")[2]
