"""The environment of each function, as a value that is complete or does not exist."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, TypeVar

from trainguard.core.errors import EnvironmentConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Environment = TypeVar("Environment", bound=DataclassInstance)


def _variable(expected: str) -> str:
    """Declare a field of the variable of its name in capitals; ``expected`` says what belongs there."""
    value: str = field(metadata={"expected": expected})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateObjectsEnvironment:
    """Environment of ``evaluate_objects``."""

    jobs_table: str = _variable("the name of the Jobs table")
    node_state_table: str = _variable("the name of the NodeState table")
    rule_state_table: str = _variable("the name of the RuleState table")
    profile_bucket: str = _variable("the name of the bucket that profiles are written to")
    task_queue_url: str = _variable("the URL of the evaluation queue")
    fire_state_machine_arn: str = _variable("the ARN of the fire state machine")
    report_state_machine_arn: str = _variable("the ARN of the report state machine")
    kernels_state_machine_arn: str = _variable("the ARN of the state machine of kernel profiles")
    default_settings_parameter: str = _variable("the name of the SSM parameter with the stack's default settings")
    settings_path: str = _variable("the path of the SSM parameters that a job may name")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileJobEnvironment(EvaluateObjectsEnvironment):
    """Environment of ``reconcile_job``, which works with the same stores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollSourceEnvironment:
    """Environment of ``poll_source``."""

    jobs_table: str = _variable("the name of the Jobs table")
    live_sources: str = _variable("the services that may be read, for example prometheus+https://host:9090")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerEnvironment:
    """Environment of ``scheduler``."""

    jobs_table: str = _variable("the name of the Jobs table")
    reconcile_job_function: str = _variable("the name of the function that reconciles one job")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLifecycleEnvironment:
    """Environment of ``job_lifecycle``."""

    jobs_table: str = _variable("the name of the Jobs table")
    node_state_table: str = _variable("the name of the NodeState table")
    task_queue_url: str = _variable("the URL of the evaluation queue")
    profile_bucket: str = _variable("the name of the bucket that profiles are written to")
    fire_state_machine_arn: str = _variable("the ARN of the fire state machine")
    default_settings_parameter: str = _variable("the name of the SSM parameter with the stack's default settings")
    settings_path: str = _variable("the path of the SSM parameters that a job may name")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideStopEnvironment:
    """Environment of ``decide_stop``."""

    stop_switch_parameter: str = _variable("the name of the SSM parameter that allows stops")
    stop_switch_override_parameter: str = _variable("the name of the operators' SSM parameter that may forbid them")
    jobs_table: str = _variable("the name of the Jobs table")
    rule_state_table: str = _variable("the name of the RuleState table")
    stop_budget_table: str = _variable("the name or the ARN of the RuleState table that counts stops")
    max_stops_per_hour: str = _variable("how many training jobs may be stopped within an hour")
    stoppable_resources: str = _variable("kinds of resources that may be stopped, separated by commas, or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFireEnvironment:
    """Environment of ``record_fire``."""

    rule_state_table: str = _variable("the name of the RuleState table")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJobEnvironment(RecordFireEnvironment):
    """Environment of ``stop_job``, which writes the same rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAlertEnvironment:
    """Environment of ``send_alert``."""

    rule_state_table: str = _variable("the name of the RuleState table")
    alert_topic_arn: str = _variable("the ARN of the topic of alerts")
    chat_topic_arn: str = _variable("the ARN of the topic of alerts for chats")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReportEnvironment:
    """Environment of ``build_report``."""

    jobs_table: str = _variable("the name of the Jobs table")
    node_state_table: str = _variable("the name of the NodeState table")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReportEnvironment(BuildReportEnvironment):
    """Environment of ``plan_report``, which reads the same tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCaptureEnvironment:
    """Environment of ``join_capture``."""

    task_queue_url: str = _variable("the URL of the evaluation queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictEnvironment:
    """Environment of ``verdict``."""

    jobs_table: str = _variable("the name of the Jobs table")
    rule_state_table: str = _variable("the name of the RuleState table")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyDigestEnvironment:
    """Environment of ``weekly_digest``."""

    jobs_table: str = _variable("the name of the Jobs table")
    rule_state_table: str = _variable("the name of the RuleState table")
    alert_topic_arn: str = _variable("the ARN of the topic of alerts")
    chat_topic_arn: str = _variable("the ARN of the topic of alerts for chats")
    stack_name: str = _variable("the name of the stack")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryEnvironment:
    """Environment of ``canary``."""

    rule_state_table: str = _variable("the name of the RuleState table")
    profile_bucket: str = _variable("the name of the bucket that profiles are written to")


def load_environment(kind: "type[Environment]", environ: Mapping[str, str], *, function: str) -> "Environment":
    """Read the environment of ``function``; raises EnvironmentConfigError with all missing or empty variables."""
    values: dict[str, str] = {}
    faults: list[str] = []
    for declared in fields(kind):
        variable = declared.name.upper()
        given = environ.get(variable)
        if given is None or not given.strip():
            state = "not set" if given is None else f"empty ({given!r})"
            faults.append(f"{variable} is {state}, expected {declared.metadata['expected']}")
        else:
            values[declared.name] = given.strip()
    if faults:
        raise EnvironmentConfigError(function, faults)
    return kind(**values)
