"""Checks of functions: ready, allowed to run, called by the queue, the scheduler once a minute, and its requests."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from trainguard.cli.doctor.check import DEPLOY, CheckResult, asking, fail, ok, span, unless, warn
from trainguard.cli.doctor.site import Site, metric_values
from trainguard.core.units import counted

if TYPE_CHECKING:
    from mypy_boto3_lambda.type_defs import EventSourceMappingConfigurationTypeDef

_CONCURRENT_EXECUTIONS_QUOTA = "L-B99A9384"
_SPARE = 10
"""Concurrent executions for the functions beside the evaluators."""

_SCHEDULER_WINDOW_MIN = 15
_FEWEST_SCHEDULER_RUNS = 8
"""Of fifteen; the metric comes minutes late."""


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


AGE_LIMIT_S = 900.0

_AGE_WINDOW_MIN = 10


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
    outputs = ("DoorbellDeadLetterQueueUrl", "EventDeadLetterQueueUrl")
    faults = [fault for output in outputs for fault in _grade_dead_letters(site, output)]
    return unless(faults, "none, of messages and of events")


def _grade_dead_letters(site: Site, output: str) -> Iterator[CheckResult]:
    url = site.deployment.output(output)
    waiting = sum(_depth(site, url).values())
    if waiting == 0:
        return
    if output == "DoorbellDeadLetterQueueUrl":
        arn = site.deployment.arn("sqs", url.rpartition("/")[2])
        yield fail(
            f"{counted(waiting, 'message')} failed five times",
            "The log of evaluate_objects names what failed (evaluation_failures); repair it, then redrive the queue.",
            site.aws("sqs", "start-message-move-task", "--source-arn", arn),
        )
    else:
        words = ("--max-number-of-messages", "10", "--message-attribute-names", "All")
        yield fail(
            f"{counted(waiting, 'event')} or notices were not delivered, or their function failed",
            "Read them, repair, and send them again.",
            site.aws("sqs", "receive-message", "--queue-url", url, *words),
        )


def _depth(site: Site, url: str) -> Mapping[str, int]:
    with asking("sqs:GetQueueAttributes"):
        answer = site.clients.sqs.get_queue_attributes(
            QueueUrl=url,
            AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        )
    return {name: int(value) for name, value in answer["Attributes"].items()}
