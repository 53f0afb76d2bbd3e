"""Checks of the caller, of the stack, its tables and its size, and of its functions: ready, called, once a minute."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from trainguard.cli.doctor.site import DEPLOY, CheckResult, Site, asking, fail, metric_values, ok, span, unless, warn
from trainguard.core.units import counted
from trainguard.running_costs.sizing import SIZES, Size, size_for

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef
    from mypy_boto3_lambda.type_defs import EventSourceMappingConfigurationTypeDef

_CONCURRENT_EXECUTIONS_QUOTA = "L-B99A9384"
# Concurrent executions for the functions beside the evaluators.
_SPARE = 10

_SCHEDULER_WINDOW_MIN = 15
# Of fifteen; the metric comes minutes late.
_FEWEST_SCHEDULER_RUNS = 8
AGE_LIMIT_S = 900.0
_AGE_WINDOW_MIN = 10
_DEPLOY = "Deploy it again from the checkout of its version: `make deploy`."
_TABLES = ("JobsTable", "NodeStateTable", "RuleStateTable", "BookkeepingTable")
_EXPIRES_AT = "ExpiresAt"
_WORKING = frozenset({"ACTIVE", "UPDATING"})
_PAGE = "docs/reliability.md"


def check_functions(site: Site) -> Iterable[CheckResult]:
    faults = [] if site.functions else [fail("the stack has no function", DEPLOY)]
    for name, configuration in site.functions.items():
        state = configuration.get("State", "Active")
        if state == "Pending":
            faults.append(warn(f"{name} is Pending", "It is being made: try again in a minute."))
        elif state == "Failed":
            reason = configuration.get("StateReason", "no reason given")
            faults.append(fail(f"{name} is Failed: {reason}", DEPLOY))
        update = configuration.get("LastUpdateStatus", "Successful")
        if update == "InProgress":
            faults.append(warn(f"{name} is being updated", "Try again in a minute."))
        elif update == "Failed":
            reason = configuration.get("LastUpdateStatusReason", "no reason given")
            faults.append(fail(f"the last update of {name} failed: {reason}", DEPLOY))
    return unless(faults, f"{counted(len(site.functions), 'function')} active, last updates successful")


def check_concurrency(site: Site) -> Iterable[CheckResult]:
    """Judge whether the functions may run as often at once as they need."""
    faults = []
    for name, configuration in site.functions.items():
        function = configuration["FunctionName"]
        with asking("lambda:GetFunctionConcurrency"):
            answer = site.clients.functions.get_function_concurrency(FunctionName=function)
        if answer.get("ReservedConcurrentExecutions") == 0:
            release = site.aws("lambda", "delete-function-concurrency", "--function-name", function)
            found = f"{name} has a reserved concurrency of 0 and cannot run"
            faults.append(fail(found, "Take the reservation away.", release))
    needed = _SPARE + max((_most_at_once(each) for each in queue_mappings(site)), default=0)
    with asking("lambda:GetAccountSettings"):
        limits = site.clients.functions.get_account_settings()["AccountLimit"]
    free = limits.get("UnreservedConcurrentExecutions", 0)
    if free < needed:
        found = f"the account leaves {free:,} concurrent executions to functions without a reservation, {needed} wanted"
        words = ("--service-code", "lambda", "--quota-code", _CONCURRENT_EXECUTIONS_QUOTA, "--desired-value", "1000")
        more = site.aws("service-quotas", "request-service-quota-increase", *words)
        faults.append(warn(found, "Evaluators may be throttled: ask for a higher quota.", more))
    return unless(faults, f"no function held back, {free:,} executions at once free in the account")


def check_mappings(site: Site) -> Iterator[CheckResult]:
    mappings = queue_mappings(site)
    if not mappings:
        yield fail("no function is called for the evaluation queue", DEPLOY)
    for mapping in mappings:
        state, last = mapping.get("State", "unknown"), mapping.get("LastProcessingResult", "")
        enable = site.aws("lambda", "update-event-source-mapping", "--uuid", mapping["UUID"], "--enabled")
        if state in {"Disabled", "Disabling", "Deleting"}:
            yield fail(f"the mapping is {state}: no message is evaluated", "Enable it.", enable)
        elif state != "Enabled":
            yield warn(f"the mapping is {state}", "Try again in a minute.")
        elif last.startswith("PROBLEM"):
            yield fail(f"Lambda cannot read the queue: {last}", "Are role and queue as deployed?")
        else:
            most = _most_at_once(mapping)
            yield ok(f"enabled, batches of {mapping.get('BatchSize', 0)}, {most} at once at most")


def check_scheduler(site: Site) -> CheckResult:
    """Judge by the function's metrics, which are fresher than its log, whether the scheduler runs every minute."""
    if "scheduler" not in site.functions:
        return fail("the stack has no function scheduler", DEPLOY)
    (ran, failed), log = _recent(site, "scheduler", "Invocations", "Errors")
    found = f"ran {ran:.0f} times in the last {_SCHEDULER_WINDOW_MIN} min, {failed:.0f} with an error"
    if ran == 0:
        return fail(found, "Is its EventBridge rule enabled (see above), was it deployed just now?", log)
    if failed > 0:
        return fail(found, "Its log has the reason.", log)
    if ran < _FEWEST_SCHEDULER_RUNS:
        return warn(found, "Is it throttled, or was it deployed just now? Its log has more.", log)
    return ok(found)


def check_reconciliations(site: Site) -> CheckResult:
    """Judge by the metrics of `reconcile_job` how many runs failed, or were dropped because they waited too long."""
    if "reconcile_job" not in site.functions:
        return fail("the stack has no function reconcile_job", DEPLOY)
    (ran, failed, dropped), log = _recent(site, "reconcile_job", "Invocations", "Errors", "AsyncEventsDropped")
    found = (
        f"{ran:.0f} in the last {_SCHEDULER_WINDOW_MIN} min, {failed:.0f} ended in an error, {dropped:.0f} were dropped"
    )
    if failed > 0:
        return fail(found, "A job is not evaluated: the event dead letters name it, the log says why.", log)
    if dropped > 0:
        return warn(found, "They waited for over a minute: raise reconcile_concurrency, or the account's quota.")
    return ok(found)


def _recent(site: Site, name: str, *metrics: str) -> tuple[list[float], str]:
    """Return the sums of a function's metrics in the last minutes, and the command that shows its log."""
    configuration = site.functions[name]
    function = configuration["FunctionName"]
    about = {"FunctionName": function}
    counts = [sum(metric_values(site, "AWS/Lambda", each, about, "Sum", _SCHEDULER_WINDOW_MIN)) for each in metrics]
    log = configuration.get("LoggingConfig", {}).get("LogGroup", f"/aws/lambda/{function}")
    return counts, site.aws("logs", "tail", log, "--since", f"{_SCHEDULER_WINDOW_MIN}m")


def queue_mappings(site: Site) -> "list[EventSourceMappingConfigurationTypeDef]":
    with asking("lambda:ListEventSourceMappings"):
        return site.clients.functions.list_event_source_mappings(EventSourceArn=site.deployment.queue_arn)[
            "EventSourceMappings"
        ]


def _most_at_once(mapping: "EventSourceMappingConfigurationTypeDef") -> int:
    return mapping.get("ScalingConfig", {}).get("MaximumConcurrency", 0)


def check_evaluation_queue(site: Site) -> CheckResult:
    counts = _depth(site, site.queue_url)
    hidden = counts["ApproximateNumberOfMessagesNotVisible"]
    return ok(f"{counts['ApproximateNumberOfMessages']:,} waiting, {hidden:,} being evaluated")


def check_delay(site: Site) -> CheckResult:
    queue = {"QueueName": site.queue_url.rpartition("/")[2]}
    ages = metric_values(site, "AWS/SQS", "ApproximateAgeOfOldestMessage", queue, "Maximum", _AGE_WINDOW_MIN)
    if not ages:
        return ok(f"CloudWatch has no age of the last {_AGE_WINDOW_MIN} min: the queue has long been empty")
    found = f"the oldest waits for {span(ages[0])}"
    if ages[0] > AGE_LIMIT_S:
        advice = "Verdicts are late: look at the functions above, and for throttles; raise evaluator_concurrency."
        return fail(found, advice)
    return ok(found)


def check_dead_letters(site: Site) -> Iterable[CheckResult]:
    messages, events = map(site.deployment.output, ("DoorbellDeadLetterQueueUrl", "EventDeadLetterQueueUrl"))
    faults = []
    if waiting := sum(_depth(site, messages).values()):
        arn = site.deployment.arn("sqs", messages.rpartition("/")[2])
        found = f"{counted(waiting, 'message')} failed five times"
        remedy = (
            "The log of evaluate_objects names what failed (evaluation_failures); repair it, then redrive the queue."
        )
        faults.append(fail(found, remedy, site.aws("sqs", "start-message-move-task", "--source-arn", arn)))
    if waiting := sum(_depth(site, events).values()):
        words = ("--queue-url", events, "--max-number-of-messages", "10", "--message-attribute-names", "All")
        found = f"{counted(waiting, 'event')} or notices were not delivered, or their function failed"
        read = site.aws("sqs", "receive-message", *words)
        faults.append(fail(found, "Read them, repair, and send them again.", read))
    return unless(faults, "none, of messages and of events")


def _depth(site: Site, url: str) -> Mapping[str, int]:
    with asking("sqs:GetQueueAttributes"):
        answer = site.clients.sqs.get_queue_attributes(
            QueueUrl=url,
            AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        )
    return {name: int(value) for name, value in answer["Attributes"].items()}


EXPECTED_OUTPUTS = (
    "ProfilerOutputUri",
    "JobsTable",
    "RuleStateTable",
    "NodeStateTable",
    "BookkeepingTable",
    "DoorbellQueueUrl",
    "DoorbellDeadLetterQueueUrl",
    "EventDeadLetterQueueUrl",
    "FireStateMachineArn",
    "ReportStateMachineArn",
    "KernelsStateMachineArn",
    "StopSwitchParameter",
    "StopSwitchOverrideParameter",
    "BrakesParameter",
    "DefaultSettingsParameter",
    "SettingsPath",
    "AlertTopicArn",
    "OperationsTopicArn",
)


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
    return unless(faults, f"{len(_TABLES)} tables active; items, as of the last hours: {', '.join(sizes)}")


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
    return unless(faults, f"time to live is on for {len(_TABLES)} tables, by {_EXPIRES_AT}")


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
    return unless(faults, f"point-in-time recovery is on for {len(_TABLES)} tables")


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
