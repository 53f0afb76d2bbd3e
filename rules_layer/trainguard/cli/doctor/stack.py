"""Checks of the caller, and of the stack: its state, its outputs, its version."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainguard.cli.doctor.check import CheckResult, asking, fail, ok, unless, warn
from trainguard.cli.doctor.functions import queue_mappings
from trainguard.cli.doctor.site import Site
from trainguard.core.units import counted
from trainguard.running_costs.sizing import SIZES, Size, size_for

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

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
_DEPLOY = "Deploy it again from the checkout of its version: `make deploy`."


def check_credentials(site: Site) -> CheckResult:
    with asking("sts:GetCallerIdentity"):
        identity = site.clients.sts.get_caller_identity()
    return ok(f"{identity['Arn']} in account {identity['Account']}, Region {site.deployment.region}")


def check_stack(site: Site) -> Iterator[CheckResult]:
    """Judge the stack's state, and whether it has the outputs that the commands need."""
    deployment = site.deployment
    events = site.aws("cloudformation", "describe-stack-events", "--stack-name", deployment.stack)
    missing = [name for name in EXPECTED_OUTPUTS if name not in deployment.outputs]
    if missing:
        lacks = f"stack {deployment.stack} has no output {', '.join(missing)}"
        yield fail(lacks, f"It is an older TrainGuard, or something else. {_DEPLOY}")
    is_now = f"{deployment.stack} is {deployment.status}"
    if deployment.status.endswith("_FAILED"):
        yield fail(is_now, "Its last change failed half-way: see its events, repair, deploy again.", events)
    elif deployment.status.endswith("_IN_PROGRESS"):
        yield warn(is_now, "It is being changed: try again when that is done.", events)
    elif "ROLLBACK" in deployment.status:
        yield warn(is_now, "Its last change failed and was undone: see its events.", events)
    elif not missing:
        yield ok(f"{is_now}, {len(deployment.outputs)} outputs")


def grade_version(own: str | None, deployed: str | None) -> CheckResult:
    """Judge the two versions; None is a checkout that is not installed, and a stack without a version."""
    if own is None or deployed is None:
        text = [f"the command line is {own or 'not installed'}", f"the stack is {deployed or 'without a version'}"]
        return ok(", ".join(text))
    if deployed == own:
        return ok(f"the command line and the stack are {own}")
    found = f"the command line is {own}, the stack {deployed}"
    return warn(found, "Install the stack's version, or deploy this one: `make deploy`.")


_TABLES = ("JobsTable", "NodeStateTable", "RuleStateTable")
_EXPIRES_AT = "ExpiresAt"
_WORKING = frozenset({"ACTIVE", "UPDATING"})


def check_tables(site: Site) -> Iterable[CheckResult]:
    faults: list[CheckResult] = []
    sizes = []
    for output in _TABLES:
        table = _table(site, output)
        name = table.get("TableName", "")
        if (state := table.get("TableStatus", "unknown")) not in _WORKING:
            faults.append(fail(f"{name} is {state}", "See it in the console of DynamoDB, under Tables."))
        for index in table.get("GlobalSecondaryIndexes", []):
            if (state := index.get("IndexStatus", "unknown")) not in _WORKING:
                found = f"index {index.get('IndexName')} of {name} is {state}: the scheduler finds no jobs"
                wait = "Wait until it is made; see the console of DynamoDB, under Tables, Indexes."
                faults.append(fail(found, wait))
        sizes.append(f"{output.removesuffix('Table')} {table.get('ItemCount', 0):,}")
    return unless(faults, f"3 tables active; items, as of the last hours: {', '.join(sizes)}")


def check_expiry(site: Site) -> Iterable[CheckResult]:
    faults = []
    for table in (site.deployment.output(output) for output in _TABLES):
        with asking("dynamodb:DescribeTimeToLive"):
            set_to = site.clients.dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
        state, column = set_to.get("TimeToLiveStatus", "DISABLED"), set_to.get("AttributeName")
        if state not in {"ENABLED", "ENABLING"} or column != _EXPIRES_AT:
            wanted = ("--time-to-live-specification", f"Enabled=true,AttributeName={_EXPIRES_AT}")
            found = f"time to live of {table} is {state}" + ("" if column is None else f" on {column}")
            enable = site.aws("dynamodb", "update-time-to-live", "--table-name", table, *wanted)
            faults.append(warn(found, "Items of jobs that ended stay for ever: enable it.", enable))
    return unless(faults, f"time to live is on for 3 tables, by {_EXPIRES_AT}")


def check_backups(site: Site) -> Iterable[CheckResult]:
    faults = []
    for table in (site.deployment.output(output) for output in _TABLES):
        with asking("dynamodb:DescribeContinuousBackups"):
            answer = site.clients.dynamodb.describe_continuous_backups(TableName=table)
        recovery = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
        if (state := recovery.get("PointInTimeRecoveryStatus", "DISABLED")) != "ENABLED":
            wanted = ("--point-in-time-recovery-specification", "PointInTimeRecoveryEnabled=true")
            enable = site.aws("dynamodb", "update-continuous-backups", "--table-name", table, *wanted)
            found = f"point-in-time recovery of {table} is {state}"
            faults.append(warn(found, "What is deleted by mistake is lost: enable it.", enable))
    return unless(faults, "point-in-time recovery is on for 3 tables")


_PAGE = "docs/reliability.md"


def check_sizing(site: Site) -> Iterator[CheckResult]:
    """Compare the stack's settings with the row of the table for the nodes of all jobs that run."""
    with asking("dynamodb:Scan"):
        pages = site.clients.dynamodb.get_paginator("scan").paginate(
            TableName=site.deployment.output("JobsTable"),
            FilterExpression="attribute_exists(#active)",
            ProjectionExpression="#count",
            ExpressionAttributeNames={"#active": "Active", "#count": "InstanceCount"},
        )
        nodes = sum(int(item.get("InstanceCount", {}).get("N", "1")) for page in pages for item in page["Items"])
    if nodes == 0:
        yield ok("no job runs")
        return
    row = size_for(nodes)
    if row is None:
        most = SIZES[-1].nodes
        found = f"{nodes:,} nodes run at once, and the sizing table ends at {most:,}"
        yield warn(found, f"Run a second stack for some of the jobs: see {_PAGE}.")
        return
    yield grade_settings(nodes, row, _deployed(site))


def grade_settings(nodes: int, row: Size, deployed: dict[str, int]) -> CheckResult:
    """Judge the settings of a stack, by name; unknown ones are missing in ``deployed``."""
    small = {name: value for name, value in row.settings.items() if deployed.get(name, value) < value}
    if not small:
        return ok(f"{counted(nodes, 'node')} at once, settings enough for {row.nodes:,}")
    has = ", ".join(f"{name} is {deployed[name]:,}" for name in small)
    words = " ".join(f"-c {name}={value}" for name, value in small.items())
    return warn(
        f"{counted(nodes, 'node')} at once: {has}",
        f"Verdicts may be late. Deploy with the settings of {_PAGE} for {row.nodes:,} nodes.",
        f'make deploy CDK_ARGS="{words}"',
    )


def _deployed(site: Site) -> dict[str, int]:
    found = {}
    for name, function in (("evaluator_memory_mb", "evaluate_objects"), ("reconcile_memory_mb", "reconcile_job")):
        memory = site.functions[function].get("MemorySize") if function in site.functions else None
        if memory is not None:
            found[name] = memory
    at_once = [each.get("ScalingConfig", {}).get("MaximumConcurrency", 0) for each in queue_mappings(site)]
    if at_once and all(at_once):
        found["evaluator_concurrency"] = min(at_once)
    throughputs = [_table(site, output).get("OnDemandThroughput", {}) for output in _TABLES]
    if units := [most for each in throughputs if (most := each.get("MaxWriteRequestUnits", -1)) > 0]:
        found["max_write_units"] = min(units)
    return found


def _table(site: Site, output: str) -> "TableDescriptionTypeDef":
    with asking("dynamodb:DescribeTable"):
        return site.clients.dynamodb.describe_table(TableName=site.deployment.output(output))["Table"]
