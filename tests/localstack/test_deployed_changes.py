"""The stack over its life: deployed, upgraded in the middle of a job, unchanged, destroyed; beside another stack."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from demo.live.stage import synthesise
from emulator.deploy import deploy, destroy, differences
from infra.teardown import describe, empty, read_fate
from tests.infra.synthesis import copy_checkout
from tests.localstack.emulator_kit import deleting
from tests.localstack.stack import Job, Stack, deploy_assembly

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack

NAME = "Passing"
CONTEXT = {"stack_name": NAME, "retain_data": "false"}
RULE = "CPUBottleneck"
STOP_SWITCH_SAYS = "Whether TrainGuard may stop opted-in training jobs"
HALF_MINUTES = 3.3
WHOLE_MINUTES = 7.3

LISTED: Mapping[str, tuple[str, str, str]] = {
    "alarms": ("cloudwatch", "describe_alarms", "MetricAlarms"),
    "buckets": ("s3", "list_buckets", "Buckets"),
    "dashboards": ("cloudwatch", "list_dashboards", "DashboardEntries"),
    "functions": ("lambda", "list_functions", "Functions"),
    "logs": ("logs", "describe_log_groups", "logGroups"),
    "machines": ("stepfunctions", "list_state_machines", "stateMachines"),
    "mappings": ("lambda", "list_event_source_mappings", "EventSourceMappings"),
    "parameters": ("ssm", "describe_parameters", "Parameters"),
    "queues": ("sqs", "list_queues", "QueueUrls"),
    "roles": ("iam", "list_roles", "Roles"),
    "rules": ("events", "list_rules", "Rules"),
    "subscriptions": ("sns", "list_subscriptions", "Subscriptions"),
    "tables": ("dynamodb", "list_tables", "TableNames"),
    "topics": ("sns", "list_topics", "Topics"),
}
"""What of each service is listed: its client, the call, and where the answer holds it.

The emulator lists no saved queries, and no layers once all versions of one are gone: see `Life.layers_left`.
"""

EMULATORS_LOGS = "/aws/lambda/"
"""The emulator makes a log group beside a function's own; Lambda does not, and the function's role may not."""

_NAMES = (
    "AlarmName",
    "DashboardName",
    "FunctionName",
    "RoleName",
    "SubscriptionArn",
    "TopicArn",
    "UUID",
    "logGroupName",
    "Name",
    "name",
)


def existing(emulator: Emulator) -> set[tuple[str, str]]:
    """Return all that exists in the account, of every service that the stack uses, by kind and name."""
    found = set()
    for kind, (service, call, held) in LISTED.items():
        for each in getattr(emulator.client(service), call)().get(held, []):
            found.add((kind, each if isinstance(each, str) else _name(each)))
    return {(kind, name) for kind, name in found if not name.startswith(EMULATORS_LOGS)}


def _name(described: Mapping[str, Any]) -> str:
    return str(next(described[name] for name in _NAMES if name in described))


@dataclass(frozen=True)
class Life:
    """What was seen of a stack that was deployed, upgraded and destroyed around two jobs."""

    before: set[tuple[str, str]]
    deployed: set[tuple[str, str]]
    after: set[tuple[str, str]]
    differing: tuple[int, int, int]
    layers: tuple[set[str], set[str]]
    layers_left: int
    upgraded: Mapping[str, object]
    whole: Mapping[str, object]
    fires: int
    switches: tuple[str, str]
    stop_decision: Mapping[str, object]
    stops: list[str | None]
    told: str


def _layers(stack: Stack) -> set[str]:
    functions = stack.emulator.client("lambda").list_functions()["Functions"]
    ours = [each for each in functions if each["FunctionName"].startswith(f"{stack.name}-")]
    return {layer["Arn"] for each in ours for layer in each["Layers"]}


def _versions(emulator: Emulator, arns: set[str]) -> int:
    """Return how many versions of layers there are, by the ARNs of versions that there were."""
    client = emulator.client("lambda")
    names = {arn.rpartition(":")[0] for arn in arns}
    return sum(len(client.list_layer_versions(LayerName=name)["LayerVersions"]) for name in names)


def _older_checkout(folder: Path) -> Path:
    """Return a checkout whose layer differs, as that of an earlier version does, and a property of the stop switch."""
    root = copy_checkout(folder)
    actions = root / "infra" / "constructs" / "actions.py"
    text = actions.read_text(encoding="utf-8")
    assert STOP_SWITCH_SAYS in text
    actions.write_text(text.replace(STOP_SWITCH_SAYS, "As an earlier version described it"), encoding="utf-8")
    package = root / "rules_layer" / "trainguard" / "__init__.py"
    package.write_text(f"{package.read_text(encoding='utf-8')}\nEARLIER = True\n", encoding="utf-8")
    return root


def _switches(stack: Stack) -> tuple[str, str]:
    """Return the stack's own stop switch, and the operators' override."""
    ssm = stack.emulator.client("ssm")
    own, override = (
        ssm.get_parameter(Name=stack.outputs[name])["Parameter"]["Value"]
        for name in ("StopSwitchParameter", "StopSwitchOverrideParameter")
    )
    return own, override


def _fire_of(job: Job) -> Any:
    """Return the input of the execution that handled the job's fire."""
    (fire,) = job.fires(RULE)
    arn = f"{job.stack.outputs['FireStateMachineArn'].replace(':stateMachine:', ':execution:')}:{fire.name}"
    return json.loads(job.stack.emulator.client("stepfunctions").describe_execution(executionArn=arn)["input"])


@pytest.fixture(scope="module")
def life(emulator: Emulator, stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Let the stack live beside the one that the other tests use."""
    folder = tmp_path_factory.mktemp("life")
    assembly, home = folder / "cdk.out", folder / "home"
    stack.await_quiet()
    before = existing(emulator)
    synthesise(assembly, context=CONTEXT, root=_older_checkout(folder / "older"))
    passing = deploy_assembly(emulator, folder, NAME)
    deployed, earlier = existing(emulator), _layers(passing)
    unchanged = differences(emulator, assembly=assembly, home=home)
    job = Job(passing, "cpu_bottleneck", "upgraded", allowed=True)
    ssm = emulator.client("ssm")
    for name in ("StopSwitchParameter", "StopSwitchOverrideParameter"):
        ssm.put_parameter(Name=passing.outputs[name], Value="disabled", Type="String", Overwrite=True)
    job.await_applied(job.upload(until_minute=HALF_MINUTES))
    job.await_row(RULE, AlertId=None)

    synthesise(assembly, context=CONTEXT)
    changed = differences(emulator, assembly=assembly, home=home)
    deploy(emulator, assembly=assembly, home=home)
    upgraded = differences(emulator, assembly=assembly, home=home)
    layers = earlier, _layers(passing)
    switches = _switches(passing)
    decision = passing.invoke("decide_stop", _fire_of(job))
    job.upload(until_minute=WHOLE_MINUTES)
    job.end()
    whole = Job(passing, "cpu_bottleneck", "whole-run", start=job.feed.start)
    whole.upload(until_minute=WHOLE_MINUTES)
    whole.end()
    verdicts, fires = (job.verdicts(), whole.verdicts()), len(job.fires(RULE))

    fate = read_fate(emulator.client("cloudformation"), NAME)
    for bucket in fate.buckets:
        empty(emulator.client("s3"), bucket)
    destroy(emulator, assembly=assembly, home=home)
    with deleting():
        ssm.delete_parameter(Name=passing.outputs["StopSwitchOverrideParameter"])
    with deleting():
        emulator.client("sqs").delete_queue(QueueUrl=passing.deployment.alert_queue)
    return Life(
        before=before,
        deployed=deployed,
        after=existing(emulator),
        differing=(unchanged, changed, upgraded),
        layers=layers,
        layers_left=_versions(emulator, layers[0] | layers[1]),
        upgraded=verdicts[0],
        whole=verdicts[1],
        fires=fires,
        switches=switches,
        stop_decision=decision,
        stops=job.stops(),
        told=describe(NAME, fate),
    )


def test_deployed_stack_differs_only_once_its_template_changes(
    life: Life,
) -> None:
    assert life.differing == (0, 1, 0)


def test_upgrade_during_a_job_gives_verdicts_of_a_whole_run(
    life: Life,
) -> None:
    earlier, later = life.layers
    assert len(earlier) == len(later) == 1
    assert earlier != later
    assert life.upgraded == life.whole
    assert life.fires == 1


def test_forbidden_stops_survive_an_upgrade_of_the_switch(
    life: Life,
) -> None:
    assert life.switches == ("enabled", "disabled")
    assert (life.stop_decision["decision"], life.stop_decision["why"]) == ("refused", "its override is 'disabled'")
    assert life.stops == []


def test_destroyed_stack_beside_another_leaves_nothing(life: Life) -> None:
    assert {kind for kind, _ in life.deployed - life.before} >= {"buckets", "tables", "functions", "logs", "parameters"}
    assert life.after - life.before == set()
    assert life.before - life.after == set()
    assert life.layers_left == 0
    assert "0 stay" in life.told
    assert "is emptied and goes: bucket" in life.told


def test_kept_bucket_tables_and_logs_are_named(emulator: Emulator, stack: Stack) -> None:
    fate = read_fate(emulator.client("cloudformation"), stack.name)
    kinds = {kind for kind, _ in fate.stays}
    assert kinds == {"AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::Logs::LogGroup"}
    assert stack.deployment.bucket in {name for _, name in fate.stays}
    assert fate.buckets == ()
