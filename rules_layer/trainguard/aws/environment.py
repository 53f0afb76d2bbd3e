"""The environment of a function, as a value that is complete or does not exist."""

import os
from collections.abc import Mapping
from typing import Annotated, get_type_hints

from trainguard.core.errors import EnvironmentConfigError


class Environment:
    """The variables that a function asked for, by name in lower case; each annotation says what belongs there."""

    jobs_table: Annotated[str, "the name of the Jobs table"]
    node_state_table: Annotated[str, "the name of the NodeState table"]
    rule_state_table: Annotated[str, "the name of the RuleState table"]
    bookkeeping_table: Annotated[str, "the name of the Bookkeeping table"]
    profile_bucket: Annotated[str, "the name of the bucket that profiles are written to"]
    task_queue_url: Annotated[str, "the URL of the evaluation queue"]
    fire_state_machine_arn: Annotated[str, "the ARN of the fire state machine"]
    report_state_machine_arn: Annotated[str, "the ARN of the report state machine"]
    kernels_state_machine_arn: Annotated[str, "the ARN of the state machine of kernel profiles"]
    default_settings_parameter: Annotated[str, "the name of the SSM parameter with the stack's default settings"]
    settings_path: Annotated[str, "the path of the SSM parameters that a job may name"]
    live_sources: Annotated[str, "the services that may be read, for example prometheus+https://host:9090"]
    reconcile_job_function: Annotated[str, "the name of the function that reconciles one job"]
    stop_switch_parameter: Annotated[str, "the name of the SSM parameter that allows stops"]
    stop_switch_override_parameter: Annotated[str, "the name of the operators' SSM parameter that may forbid them"]
    canary: Annotated[str, "on or off: whether canaries are planted"]
    brakes_parameter: Annotated[str, "the name of the operators' SSM parameter with their brakes"]
    stop_budget_table: Annotated[str, "the name or the ARN of the Bookkeeping table that counts stops"]
    max_stops_per_hour: Annotated[str, "how many training jobs may be stopped within an hour"]
    stoppable_resources: Annotated[str, "kinds of resources that may be stopped, separated by commas, or none"]
    alert_topic_arn: Annotated[str, "the ARN of the topic of alerts"]
    chat_topic_arn: Annotated[str, "the ARN of the topic of alerts for chats"]
    central_bus_arn: Annotated[str, "the ARN of the central account's event bus"]
    stack_name: Annotated[str, "the name of the stack"]
    canary_image: Annotated[str, "the image of the canary's training jobs"]
    canary_role_arn: Annotated[str, "the ARN of the role of the canary's training jobs"]

    def __init__(self, values: Mapping[str, str]) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is given by the environment, and stays")


# Variables of ``evaluate_objects`` and ``reconcile_job``, which work with the same stores.
EVALUATION = (
    "jobs_table",
    "node_state_table",
    "rule_state_table",
    "bookkeeping_table",
    "profile_bucket",
    "task_queue_url",
    "fire_state_machine_arn",
    "report_state_machine_arn",
    "kernels_state_machine_arn",
    "default_settings_parameter",
    "settings_path",
    "brakes_parameter",
)

# Variables of ``scheduler``.
SCHEDULE = (
    "jobs_table",
    "reconcile_job_function",
    "brakes_parameter",
    "canary",
    "profile_bucket",
    "default_settings_parameter",
)
# Variables of ``decide_stop``.
DECISION = (
    "stop_switch_parameter",
    "stop_switch_override_parameter",
    "brakes_parameter",
    "jobs_table",
    "rule_state_table",
    "bookkeeping_table",
    "stop_budget_table",
    "max_stops_per_hour",
    "stoppable_resources",
)
# Variables of ``canary``, and the further ones where it is a job of SageMaker's.
CANARY = ("rule_state_table", "jobs_table", "profile_bucket")
CANARY_JOB = (
    *CANARY,
    "canary_image",
    "canary_role_arn",
    "settings_path",
    "stack_name",
    "stop_switch_parameter",
    "stop_switch_override_parameter",
    "brakes_parameter",
)


def load_environment(names: tuple[str, ...], environ: Mapping[str, str] = os.environ, *, function: str) -> Environment:
    """Read variables of ``function``; raises EnvironmentConfigError with all that are missing or empty."""
    expected = get_type_hints(Environment, include_extras=True)
    values: dict[str, str] = {}
    faults: list[str] = []
    for name in names:
        variable = name.upper()
        given = environ.get(variable)
        if given is None or not given.strip():
            state = "not set" if given is None else f"empty ({given!r})"
            faults.append(f"{variable} is {state}, expected {expected[name].__metadata__[0]}")
        else:
            values[name] = given.strip()
    if faults:
        raise EnvironmentConfigError(function, faults)
    return Environment(values)
