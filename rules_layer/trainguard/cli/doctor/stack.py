"""Who asks, and the stack itself: its state, its outputs, its version."""

from collections.abc import Iterator

from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.site import Site
from trainguard.cli.services.deployment import Deployment
from trainguard.cli.version import own_version

CREDENTIALS = Check("credentials")
STACK = Check("stack")
VERSION = Check("version")

EXPECTED_OUTPUTS = (
    "ProfilerOutputUri",
    "JobsTable",
    "RuleStateTable",
    "NodeStateTable",
    "DoorbellQueueUrl",
    "DoorbellDeadLetterQueueUrl",
    "EventDeadLetterQueueUrl",
    "FireStateMachineArn",
    "ReportStateMachineArn",
    "KernelsStateMachineArn",
    "StopSwitchParameter",
    "StopSwitchOverrideParameter",
    "DefaultSettingsParameter",
    "SettingsPath",
    "AlertTopicArn",
    "OperationsTopicArn",
)
_VERSION_OUTPUT = "Version"
_DEPLOY = "Deploy it again from the checkout of its version: `make deploy`."


def check_credentials(site: Site) -> Iterator[CheckResult]:
    """Say who asks, and where."""
    with asking("sts:GetCallerIdentity"):
        identity = site.clients.sts.get_caller_identity()
    yield CREDENTIALS.ok(f"{identity['Arn']} in account {identity['Account']}, Region {site.deployment.region}")


def check_stack(site: Site) -> Iterator[CheckResult]:
    """Judge the stack's state, and whether it has what the commands need."""
    events = site.aws("cloudformation", "describe-stack-events", "--stack-name", site.deployment.stack)
    yield from grade_stack(site.deployment, events)


def grade_stack(deployment: Deployment, events: str) -> Iterator[CheckResult]:
    """Judge a stack by its state and outputs; ``events`` is the command that shows what happened to it."""
    missing = [name for name in EXPECTED_OUTPUTS if name not in deployment.outputs]
    if missing:
        lacks = f"stack {deployment.stack} has no output {', '.join(missing)}"
        yield STACK.fail(lacks, f"It is an older TrainGuard, or something else. {_DEPLOY}")
    is_now = f"{deployment.stack} is {deployment.status}"
    if deployment.status.endswith("_FAILED"):
        yield STACK.fail(is_now, "Its last change failed half-way: see its events, repair, deploy again.", events)
    elif deployment.status.endswith("_IN_PROGRESS"):
        yield STACK.warn(is_now, "It is being changed: look again when that is done.", events)
    elif "ROLLBACK" in deployment.status:
        yield STACK.warn(is_now, "Its last change failed and was undone: see its events.", events)
    elif not missing:
        yield STACK.ok(f"{is_now}, {len(deployment.outputs)} outputs")


def check_version(site: Site) -> Iterator[CheckResult]:
    """Compare the version of this command line with the stack's, where the stack says it."""
    yield grade_version(own_version(), site.deployment.outputs.get(_VERSION_OUTPUT))


def grade_version(own: str | None, deployed: str | None) -> CheckResult:
    """Judge the two versions; None is a checkout that is not installed, and a stack that does not say its own."""
    if own is None or deployed is None:
        said = [f"the command line is {own or 'not installed'}", f"the stack is {deployed or 'silent on its version'}"]
        return VERSION.ok(", ".join(said))
    if deployed == own:
        return VERSION.ok(f"the command line and the stack are {own}")
    found = f"the command line is {own}, the stack {deployed}"
    return VERSION.warn(found, "Install the stack's version, or deploy this one: `make deploy`.")
