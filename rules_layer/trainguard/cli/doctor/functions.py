"""The functions: ready, allowed to run, called by the queue, and the tick once a minute, with its looks at jobs."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.metrics import Metric, metric_values
from trainguard.cli.doctor.site import Site
from trainguard.rules.units import counted

if TYPE_CHECKING:
    from mypy_boto3_lambda.type_defs import (
        EventSourceMappingConfigurationTypeDef,
        FunctionConfigurationResponseTypeDef,
    )

FUNCTIONS = Check("functions")
CONCURRENCY = Check("concurrency")
QUEUE_MAPPING = Check("queue to function")
TICK = Check("tick")
LOOKS = Check("looks at jobs")

_CONCURRENT_EXECUTIONS_QUOTA = "L-B99A9384"
_SPARE = 10
"""Concurrent executions for the functions beside the evaluators."""

_TICK_WINDOW_MIN = 15
_FEWEST_TICKS = 8
"""Of fifteen; the metric comes minutes late."""


def check_functions(site: Site) -> Iterator[CheckResult]:
    """Judge the state of each function and of its last update."""
    functions = site.functions
    faults = [fault for name, each in functions.items() for fault in grade_function(name, each)]
    if not functions:
        faults = [FUNCTIONS.fail("the stack has no function", "Deploy it again: `make deploy`.")]
    yield from FUNCTIONS.unless(faults, f"{counted(len(functions), 'function')} active, last updates successful")


def grade_function(name: str, configuration: "FunctionConfigurationResponseTypeDef") -> Iterator[CheckResult]:
    """Yield what is wrong with a function."""
    again = "Deploy the stack again: `make deploy`."
    state = configuration.get("State", "Active")
    if state == "Pending":
        yield FUNCTIONS.warn(f"{name} is Pending", "It is being made: look again in a minute.")
    elif state == "Failed":
        yield FUNCTIONS.fail(f"{name} is Failed: {configuration.get('StateReason', 'no reason given')}", again)
    update = configuration.get("LastUpdateStatus", "Successful")
    if update == "InProgress":
        yield FUNCTIONS.warn(f"{name} is being updated", "Look again in a minute.")
    elif update == "Failed":
        reason = configuration.get("LastUpdateStatusReason", "no reason given")
        yield FUNCTIONS.fail(f"the last update of {name} failed: {reason}", again)


def check_concurrency(site: Site) -> Iterator[CheckResult]:
    """Judge whether the functions may run as often at once as they need."""
    faults = []
    for name, configuration in site.functions.items():
        function = configuration["FunctionName"]
        with asking("lambda:GetFunctionConcurrency"):
            answer = site.clients.functions.get_function_concurrency(FunctionName=function)
        if answer.get("ReservedConcurrentExecutions") == 0:
            release = site.aws("lambda", "delete-function-concurrency", "--function-name", function)
            found = f"{name} has a reserved concurrency of 0 and cannot run"
            faults.append(CONCURRENCY.fail(found, "Take the reservation away.", release))
    needed = _SPARE + max((_most_at_once(each) for each in queue_mappings(site)), default=0)
    with asking("lambda:GetAccountSettings"):
        limits = site.clients.functions.get_account_settings()["AccountLimit"]
    free = limits.get("UnreservedConcurrentExecutions", 0)
    if free < needed:
        found = f"the account leaves {free:,} concurrent executions to functions without a reservation, {needed} wanted"
        words = ("--service-code", "lambda", "--quota-code", _CONCURRENT_EXECUTIONS_QUOTA, "--desired-value", "1000")
        more = site.aws("service-quotas", "request-service-quota-increase", *words)
        faults.append(CONCURRENCY.warn(found, "Evaluators may be throttled: ask for a higher quota.", more))
    yield from CONCURRENCY.unless(faults, f"no function held back, {free:,} executions at once free in the account")


def check_queue_mapping(site: Site) -> Iterator[CheckResult]:
    """Judge the event source mapping by which messages reach their function."""
    yield from grade_mappings(queue_mappings(site), site)


def grade_mappings(mappings: "list[EventSourceMappingConfigurationTypeDef]", site: Site) -> Iterator[CheckResult]:
    """Judge the mappings of the evaluation queue."""
    if not mappings:
        yield QUEUE_MAPPING.fail("no function is called for the evaluation queue", "Deploy it again: `make deploy`.")
    for mapping in mappings:
        state, last = mapping.get("State", "unknown"), mapping.get("LastProcessingResult", "")
        enable = site.aws("lambda", "update-event-source-mapping", "--uuid", mapping["UUID"], "--enabled")
        if state in {"Disabled", "Disabling", "Deleting"}:
            yield QUEUE_MAPPING.fail(f"the mapping is {state}: no message is evaluated", "Enable it.", enable)
        elif state != "Enabled":
            yield QUEUE_MAPPING.warn(f"the mapping is {state}", "Look again in a minute.")
        elif last.startswith("PROBLEM"):
            yield QUEUE_MAPPING.fail(f"Lambda cannot read the queue: {last}", "Are role and queue as deployed?")
        else:
            most = _most_at_once(mapping)
            yield QUEUE_MAPPING.ok(f"enabled, batches of {mapping.get('BatchSize', 0)}, {most} at once at most")


def check_tick(site: Site) -> Iterator[CheckResult]:
    """Judge by the function's metrics whether the tick runs every minute.

    Metrics need one permission, which the queue's age needs too, and say it at once; a log group's last event time may
    be an hour late, and watermarks move only while a job runs.
    """
    if site.functions.get("tick") is None:
        yield TICK.fail("the stack has no function tick", "Deploy it again: `make deploy`.")
        return
    yield grade_tick(*_recent(site, "tick", ("Invocations", "Errors")))


def check_looks(site: Site) -> Iterator[CheckResult]:
    """Check by the metrics of `look_after_job` whether every job is evaluated; without a job there are none."""
    if site.functions.get("look_after_job") is None:
        yield LOOKS.fail("the stack has no function look_after_job", "Deploy it again: `make deploy`.")
        return
    yield judge_looks(*_recent(site, "look_after_job", ("Invocations", "Errors", "AsyncEventsDropped")))


def _recent(site: Site, name: str, metrics: tuple[str, ...]) -> tuple[dict[str, float], str]:
    """Return the sums of a function's metrics in the last minutes, and the command that shows its log."""
    configuration = site.functions[name]
    function = configuration["FunctionName"]
    counts = {
        each: sum(metric_values(site, Metric("AWS/Lambda", each, {"FunctionName": function}, "Sum"), _TICK_WINDOW_MIN))
        for each in metrics
    }
    log = configuration.get("LoggingConfig", {}).get("LogGroup", f"/aws/lambda/{function}")
    return counts, site.aws("logs", "tail", log, "--since", f"{_TICK_WINDOW_MIN}m")


def grade_tick(counts: Mapping[str, float], log: str) -> CheckResult:
    """Judge the tick by its invocations and errors of the last minutes; ``log`` is the command that shows its log."""
    ran, failed = counts["Invocations"], counts["Errors"]
    found = f"ran {ran:.0f} times in the last {_TICK_WINDOW_MIN} min, {failed:.0f} with an error"
    if ran == 0:
        return TICK.fail(found, "Is its EventBridge rule enabled (see above), was it deployed just now?", log)
    if failed > 0:
        return TICK.fail(found, "Its log has the reason.", log)
    if ran < _FEWEST_TICKS:
        return TICK.warn(found, "Is it throttled, or was it deployed just now? Its log has more.", log)
    return TICK.ok(found)


def judge_looks(counts: Mapping[str, float], log: str) -> CheckResult:
    """Judge the looks at jobs by how many ended in an error, or were dropped because they waited for too long."""
    ran, failed, dropped = counts["Invocations"], counts["Errors"], counts["AsyncEventsDropped"]
    found = (
        f"{ran:.0f} in the last {_TICK_WINDOW_MIN} min, {failed:.0f} ended in an error, {dropped:.0f} came to nothing"
    )
    if failed > 0:
        return LOOKS.fail(found, "A job is not evaluated: the event dead letters name it, the log says why.", log)
    if dropped > 0:
        return LOOKS.warn(found, "They waited for over a minute: raise look_after_concurrency, or the account's quota.")
    return LOOKS.ok(found)


def queue_mappings(site: Site) -> "list[EventSourceMappingConfigurationTypeDef]":
    """Return the mappings of the evaluation queue to its function."""
    queue = site.arn("sqs", site.deployment.output("DoorbellQueueUrl").rpartition("/")[2])
    with asking("lambda:ListEventSourceMappings"):
        return site.clients.functions.list_event_source_mappings(EventSourceArn=queue)["EventSourceMappings"]


def _most_at_once(mapping: "EventSourceMappingConfigurationTypeDef") -> int:
    return mapping.get("ScalingConfig", {}).get("MaximumConcurrency", 0)
