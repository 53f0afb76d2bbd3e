"""Checks of functions: ready, allowed to run, called by the queue, the scheduler once a minute, and its requests."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from trainguard.cli.doctor.check import DEPLOY, CheckResult, asking, fail, ok, span, unless, warn
from trainguard.cli.doctor.site import Metric, Site, metric_values
from trainguard.core.units import counted

if TYPE_CHECKING:
    from mypy_boto3_lambda.type_defs import EventSourceMappingConfigurationTypeDef, FunctionConfigurationResponseTypeDef

_CONCURRENT_EXECUTIONS_QUOTA = "L-B99A9384"
_SPARE = 10
"""Concurrent executions for the functions beside the evaluators."""

_SCHEDULER_WINDOW_MIN = 15
_FEWEST_SCHEDULER_RUNS = 8
"""Of fifteen; the metric comes minutes late."""


def check_functions(site: Site) -> Iterable[CheckResult]:
    """Judge the state of each function and of its last update."""
    functions = site.functions
    faults = [fault for name, each in functions.items() for fault in grade_function(name, each)]
    if not functions:
        faults = [fail("the stack has no function", "Deploy it again: `make deploy`.")]
    return unless(faults, f"{counted(len(functions), 'function')} active, last updates successful")


def grade_function(name: str, configuration: "FunctionConfigurationResponseTypeDef") -> Iterator[CheckResult]:
    """Yield what is wrong with a function."""
    state = configuration.get("State", "Active")
    if state == "Pending":
        yield warn(f"{name} is Pending", "It is being made: look again in a minute.")
    elif state == "Failed":
        yield fail(f"{name} is Failed: {configuration.get('StateReason', 'no reason given')}", DEPLOY)
    update = configuration.get("LastUpdateStatus", "Successful")
    if update == "InProgress":
        yield warn(f"{name} is being updated", "Look again in a minute.")
    elif update == "Failed":
        reason = configuration.get("LastUpdateStatusReason", "no reason given")
        yield fail(f"the last update of {name} failed: {reason}", DEPLOY)


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


def grade_mappings(mappings: "list[EventSourceMappingConfigurationTypeDef]", site: Site) -> Iterator[CheckResult]:
    """Judge the mappings of the evaluation queue."""
    if not mappings:
        yield fail("no function is called for the evaluation queue", "Deploy it again: `make deploy`.")
    for mapping in mappings:
        state, last = mapping.get("State", "unknown"), mapping.get("LastProcessingResult", "")
        enable = site.aws("lambda", "update-event-source-mapping", "--uuid", mapping["UUID"], "--enabled")
        if state in {"Disabled", "Disabling", "Deleting"}:
            yield fail(f"the mapping is {state}: no message is evaluated", "Enable it.", enable)
        elif state != "Enabled":
            yield warn(f"the mapping is {state}", "Look again in a minute.")
        elif last.startswith("PROBLEM"):
            yield fail(f"Lambda cannot read the queue: {last}", "Are role and queue as deployed?")
        else:
            most = _most_at_once(mapping)
            yield ok(f"enabled, batches of {mapping.get('BatchSize', 0)}, {most} at once at most")


def check_scheduler(site: Site) -> Iterator[CheckResult]:
    """Judge by the function's metrics, which are fresher than its log, whether the scheduler runs every minute."""
    if site.functions.get("scheduler") is None:
        yield fail("the stack has no function scheduler", "Deploy it again: `make deploy`.")
        return
    yield grade_scheduler(*_recent(site, "scheduler", ("Invocations", "Errors")))


def check_looks(site: Site) -> Iterator[CheckResult]:
    """Check by the metrics of `reconcile_job` whether every job is evaluated; without a job there are none."""
    if site.functions.get("reconcile_job") is None:
        yield fail("the stack has no function reconcile_job", "Deploy it again: `make deploy`.")
        return
    yield judge_looks(*_recent(site, "reconcile_job", ("Invocations", "Errors", "AsyncEventsDropped")))


def _recent(site: Site, name: str, metrics: tuple[str, ...]) -> tuple[dict[str, float], str]:
    """Return the sums of a function's metrics in the last minutes, and the command that shows its log."""
    configuration = site.functions[name]
    function = configuration["FunctionName"]
    counts = {
        each: sum(
            metric_values(site, Metric("AWS/Lambda", each, {"FunctionName": function}, "Sum"), _SCHEDULER_WINDOW_MIN)
        )
        for each in metrics
    }
    log = configuration.get("LoggingConfig", {}).get("LogGroup", f"/aws/lambda/{function}")
    return counts, site.aws("logs", "tail", log, "--since", f"{_SCHEDULER_WINDOW_MIN}m")


def grade_scheduler(counts: Mapping[str, float], log: str) -> CheckResult:
    """Judge the scheduler by its invocations and recent errors; ``log`` is the command that shows its log."""
    ran, failed = counts["Invocations"], counts["Errors"]
    found = f"ran {ran:.0f} times in the last {_SCHEDULER_WINDOW_MIN} min, {failed:.0f} with an error"
    if ran == 0:
        return fail(found, "Is its EventBridge rule enabled (see above), was it deployed just now?", log)
    if failed > 0:
        return fail(found, "Its log has the reason.", log)
    if ran < _FEWEST_SCHEDULER_RUNS:
        return warn(found, "Is it throttled, or was it deployed just now? Its log has more.", log)
    return ok(found)


def judge_looks(counts: Mapping[str, float], log: str) -> CheckResult:
    """Judge the looks at jobs by how many failed, or were dropped because they waited for too long."""
    ran, failed, dropped = counts["Invocations"], counts["Errors"], counts["AsyncEventsDropped"]
    found = (
        f"{ran:.0f} in the last {_SCHEDULER_WINDOW_MIN} min, {failed:.0f} ended in an error, "
        f"{dropped:.0f} came to nothing"
    )
    if failed > 0:
        return fail(found, "A job is not evaluated: the event dead letters name it, the log says why.", log)
    if dropped > 0:
        return warn(found, "They waited for over a minute: raise reconcile_concurrency, or the account's quota.")
    return ok(found)


def queue_mappings(site: Site) -> "list[EventSourceMappingConfigurationTypeDef]":
    """Return the mappings of the evaluation queue to its function."""
    with asking("lambda:ListEventSourceMappings"):
        return site.clients.functions.list_event_source_mappings(EventSourceArn=site.queue_arn)["EventSourceMappings"]


def _most_at_once(mapping: "EventSourceMappingConfigurationTypeDef") -> int:
    return mapping.get("ScalingConfig", {}).get("MaximumConcurrency", 0)


AGE_LIMIT_S = 900.0

_AGE_WINDOW_MIN = 10


def check_evaluation_queue(site: Site) -> CheckResult:
    """Say how many messages wait."""
    counts = _depth(site, site.queue_url)
    hidden = counts["ApproximateNumberOfMessagesNotVisible"]
    return ok(f"{counts['ApproximateNumberOfMessages']:,} waiting, {hidden:,} being evaluated")


def check_delay(site: Site) -> CheckResult:
    """Judge how long the oldest message waits."""
    queue = site.queue_url.rpartition("/")[2]
    metric = Metric("AWS/SQS", "ApproximateAgeOfOldestMessage", {"QueueName": queue}, "Maximum")
    ages = metric_values(site, metric, _AGE_WINDOW_MIN)
    return grade_delay(ages[0] if ages else None)


def grade_delay(age_s: float | None) -> CheckResult:
    """Judge the age of the oldest message, in seconds; None is a queue of which CloudWatch has measured nothing."""
    if age_s is None:
        return ok(f"CloudWatch has no age of the last {_AGE_WINDOW_MIN} min: the queue has long been empty")
    found = f"the oldest waits for {span(age_s)}"
    if age_s > AGE_LIMIT_S:
        advice = "Verdicts are late: look at the functions above, and for throttles; raise evaluator_concurrency."
        return fail(found, advice)
    return ok(found)


def check_dead_letters(site: Site) -> Iterable[CheckResult]:
    """Judge the queues of what could not be handled."""
    outputs = ("DoorbellDeadLetterQueueUrl", "EventDeadLetterQueueUrl")
    faults = [fault for output in outputs for fault in _grade_dead_letters(site, output)]
    return unless(faults, "none, of messages and of events")


def _grade_dead_letters(site: Site, output: str) -> Iterator[CheckResult]:
    url = site.deployment.output(output)
    waiting = sum(_depth(site, url).values())
    if waiting == 0:
        return
    if output == "DoorbellDeadLetterQueueUrl":
        arn = site.arn("sqs", url.rpartition("/")[2])
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
            AttributeNames=[
                "ApproximateNumberOfMessages",
                "ApproximateNumberOfMessagesNotVisible",
            ],
        )
    return {name: int(value) for name, value in answer["Attributes"].items()}
