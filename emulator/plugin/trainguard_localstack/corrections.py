"""Where LocalStack 4.9.2 does otherwise than AWS, or takes longer than tests can wait."""

import dataclasses
import datetime
import functools
import os
import re
from typing import Any
from urllib.parse import unquote

from localstack.services.cloudformation.resource_provider import (
    OperationStatus,
    ProgressEvent,
    ResourceProviderExecutor,
)
from localstack.services.events import event_rule_engine, provider
from localstack.services.events.scheduler import JobScheduler
from localstack.services.lambda_.invocation.event_manager import Poller
from localstack.services.lambda_.resource_providers.aws_lambda_version import LambdaVersionProvider
from localstack.services.lambda_.resource_providers.lambda_alias import LambdaAliasProvider
from localstack.services.s3.notifications import EventBridgeNotifier, S3EventNotificationContext
from localstack.services.stepfunctions.asl.component.state.state_execution.state_task.service import (
    state_task_service_aws_sdk as sdk,
)
from localstack.services.stepfunctions.asl.component.state.state_wait.wait_function.wait_function import WaitFunction

# How long a minute of EventBridge's ``rate(1 minute)`` rules lasts, seconds.
MINUTE_VARIABLE = "TRAINGUARD_MINUTE_S"

# How long a Wait state lasts at most, seconds.
LONGEST_WAIT_VARIABLE = "TRAINGUARD_LONGEST_WAIT_S"

RESOURCE_POLLS_S = 0.1


def install() -> None:
    """Install all of them; one that does not fit this LocalStack stops the start."""
    _correct_patterns()
    _send_plain_keys()
    _send_text_timestamps()
    _replace_versions()
    _take_settings_of_aliases()
    # CloudFormation polls a resource every 5 s: eight functions would take 40 s longer.
    ResourceProviderExecutor.deploy_loop = functools.partialmethod(
        ResourceProviderExecutor.deploy_loop, sleep_time=RESOURCE_POLLS_S
    )
    _let_minutes_last(float(os.environ.get(MINUTE_VARIABLE, "60")))
    if LONGEST_WAIT_VARIABLE in os.environ:
        _shorten_waits(int(os.environ[LONGEST_WAIT_VARIABLE]))


def matches_wildcard(pattern: str, value: object) -> bool:
    """Say whether `value` is a string of the form `pattern`, in which ``*`` stands for any characters or none."""
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    return isinstance(value, str) and re.fullmatch(expression, value, re.DOTALL) is not None


def _correct_patterns() -> None:
    """Let ``*`` of EventBridge stand for nothing, too; refuse invalid patterns, which hide events from later rules."""
    event_rule_engine.EventRuleEngine._evaluate_wildcard = staticmethod(matches_wildcard)
    compiler = event_rule_engine.EventPatternCompiler()
    create_rule_service = provider.EventsProvider.create_rule_service

    def create_checked(
        events: provider.EventsProvider,
        name: str,
        region: str,
        account_id: str,
        schedule_expression: str | None,
        event_pattern: str | None,
        *rest: object,
    ) -> object:
        if event_pattern:
            compiler.compile_event_pattern(event_pattern)
        return create_rule_service(events, name, region, account_id, schedule_expression, event_pattern, *rest)

    provider.EventsProvider.create_rule_service = create_checked


def _send_plain_keys() -> None:
    """Leave keys in S3's events for EventBridge as they are: only the classic notifications encode them on AWS."""
    payload = EventBridgeNotifier._get_event_payload

    def payload_with_plain_key(context: S3EventNotificationContext, config_id: str | None = None) -> Any:
        return payload(dataclasses.replace(context, key_name=unquote(context.key_name)), config_id)

    EventBridgeNotifier._get_event_payload = staticmethod(payload_with_plain_key)


def _send_text_timestamps() -> None:
    """Make ISO 8601 text of timestamps in SDK integrations: no function takes a datetime, nor can JSONata parse it."""
    normalise = sdk.StateTaskServiceAwsSdk._normalise_response

    def normalise_with_text(task: sdk.StateTaskServiceAwsSdk, response: Any, *args: Any, **kwargs: Any) -> None:
        normalise(task, response, *args, **kwargs)
        if isinstance(response, dict):
            response.update(with_text_timestamps(response))

    sdk.StateTaskServiceAwsSdk._normalise_response = normalise_with_text


def with_text_timestamps(value: Any) -> Any:
    """Return a copy of `value` in which each datetime is text like ``2026-01-31T23:59:59.123Z``."""
    if isinstance(value, dict):
        return {name: with_text_timestamps(member) for name, member in value.items()}
    if isinstance(value, list):
        return [with_text_timestamps(member) for member in value]
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def _replace_versions() -> None:
    """Let CloudFormation publish a version again when its description changes, and move an alias to it."""
    LambdaVersionProvider.SCHEMA["createOnlyProperties"].append("/properties/Description")
    # LocalStack takes a reference to a function that changes for another function's name.
    LambdaAliasProvider.SCHEMA["createOnlyProperties"].remove("/properties/FunctionName")

    def update(_: LambdaAliasProvider, request: Any) -> ProgressEvent[Any]:
        model = {**request.desired_state, "Id": request.previous_state["Id"]}
        moved = {name: model[name] for name in ("FunctionName", "Name", "FunctionVersion")}
        request.aws_client_factory.lambda_.update_alias(**moved)
        return ProgressEvent(status=OperationStatus.SUCCESS, resource_model=model)

    LambdaAliasProvider.update = update


def _take_settings_of_aliases() -> None:
    """Let an alias's settings of asynchronous calls hold for the version that it names, which alone is asked."""
    handle = Poller.handle_message

    def handle_by_alias(poller: Poller, message: dict[str, Any]) -> None:
        function, version = poller.version_manager.function, poller.version_manager.function_version.id.qualifier
        settings = function.event_invoke_configs
        for alias in list(function.aliases.values()):
            if alias.function_version == version and alias.name in settings:
                settings[version] = settings[alias.name]
        handle(poller, message)

    Poller.handle_message = handle_by_alias


def _let_minutes_last(minute_s: float) -> None:
    def loop(scheduler: JobScheduler, *_args: object) -> None:
        while not scheduler._stop_event.wait(timeout=minute_s):
            for job in list(scheduler.jobs):
                job.run()

    JobScheduler.loop = loop


def _shorten_waits(longest_s: int) -> None:
    """End a Wait state early: a grace time outside SageMaker takes ten minutes."""
    wait = WaitFunction._wait_interval

    def wait_less(self: WaitFunction, env: Any, wait_seconds: int) -> None:
        wait(self, env, min(wait_seconds, longest_s))

    WaitFunction._wait_interval = wait_less
