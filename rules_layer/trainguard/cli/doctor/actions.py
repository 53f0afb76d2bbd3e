"""What leaves the stack: stops by the switch, messages to people by the topics."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainguard.actions.stop_switch import StopSwitch, StopSwitches, is_known
from trainguard.adapters.ssm_stop_switch import stored_switches
from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.site import Site
from trainguard.engine.jobs.job_description import STOP_ALLOWED, STOP_TAG
from trainguard.rules.units import counted

SWITCH = Check("stop switch")

_OWN, _OVERRIDE = "StopSwitchParameter", "StopSwitchOverrideParameter"
_MEANINGS = {
    StopSwitch.ENABLED: f"a fire stops its job if that has the tag {STOP_TAG} = {STOP_ALLOWED}",
    StopSwitch.DRY_RUN: "nothing is stopped; the alert says what would have been",
    StopSwitch.DISABLED: "nothing is stopped",
}
_PENDING = "PendingConfirmation"


def stop_switches(site: Site) -> StopSwitches:
    """Return the stop switch and its override as they are stored."""
    own, override = (site.deployment.output(name) for name in (_OWN, _OVERRIDE))
    with asking("ssm:GetParameter"):
        return stored_switches(site.clients.ssm, parameter=own, override=override)


def check_switch(site: Site) -> Iterator[CheckResult]:
    """Say what the stop switch and its override are set to, and what that means."""
    switches = stop_switches(site)

    def put(output: str, value: StopSwitch) -> str:
        words = ("--overwrite", "--name", site.deployment.output(output), "--value", value)
        return site.aws("ssm", "put-parameter", *words)

    yield from grade_switch(switches, put(_OWN, StopSwitch.ENABLED), put(_OVERRIDE, StopSwitch.DISABLED))


def grade_switch(switches: StopSwitches, enable: str, disable: str) -> Iterator[CheckResult]:
    """Judge the stop switch; ``enable`` is the command that sets it, and ``disable`` the one that sets its override."""
    meant = f"Set it to one of {', '.join(StopSwitch)}."
    faults = []
    if not is_known(switches.deployed):
        faults.append(SWITCH.fail(f"the stack's value {switches.deployed!r} counts as disabled", meant, enable))
    if switches.override is not None and not is_known(switches.override):
        faults.append(SWITCH.fail(f"the override {switches.override!r} counts as disabled", meant, disable))
    override = "there is no override" if switches.override is None else f"the override {switches.override}"
    in_force = switches.in_force
    found = f"{in_force}: {_MEANINGS[in_force]} (the stack's value is {switches.deployed}, {override})"
    yield from SWITCH.unless(faults, found)


@dataclass(frozen=True, slots=True)
class Audience:
    """A topic's output in the stack, the name of its check, and the setting that subscribes people."""

    output: str
    findings: Check
    what: str
    setting: str


ALERTS = Audience("AlertTopicArn", Check("alert topic"), "findings", "alert_emails")
OPERATIONS = Audience("OperationsTopicArn", Check("operations topic"), "alarms", "operations_emails")


def check_alerts(site: Site) -> Iterator[CheckResult]:
    """Judge whether anybody hears of findings."""
    yield from _check_topic(site, ALERTS)


def check_operations(site: Site) -> Iterator[CheckResult]:
    """Judge whether anybody hears of alarms."""
    yield from _check_topic(site, OPERATIONS)


def _check_topic(site: Site, audience: Audience) -> Iterator[CheckResult]:
    topic = site.deployment.output(audience.output)
    confirmed, pending = 0, []
    with asking("sns:ListSubscriptionsByTopic"):
        for page in site.clients.sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic):
            for each in page["Subscriptions"]:
                if each.get("SubscriptionArn") == _PENDING:
                    pending.append(f"{each.get('Protocol')} {each.get('Endpoint')}")
                elif each.get("SubscriptionArn", "").startswith("arn:"):
                    confirmed += 1
    words = ("--topic-arn", topic, "--protocol", "email", "--notification-endpoint", "YOU@EXAMPLE.COM")
    yield from grade_topic(audience, confirmed, pending, site.aws("sns", "subscribe", *words))


def grade_topic(audience: Audience, confirmed: int, pending: Sequence[str], subscribe: str) -> Iterator[CheckResult]:
    """Judge a topic by its subscriptions; ``subscribe`` is the command that adds one."""
    findings = audience.findings
    if pending:
        waiting = f"{counted(len(pending), 'subscription')} not confirmed: {', '.join(pending)}"
        yield findings.warn(waiting, "Its owner must follow the link in the message from AWS Notifications.")
    if confirmed:
        yield findings.ok(f"{counted(confirmed, 'confirmed subscription')}")
    elif not pending:
        advice = f"Nobody hears of {audience.what}: subscribe somebody, or deploy with -c {audience.setting}=…."
        yield findings.warn("no subscription", advice, subscribe)
