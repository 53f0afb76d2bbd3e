"""The functions: the same defaults, each its own settings, and a place for every event that fails."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from infra.overlay import AWS
from tests.infra.synthesis import ROOT
from tests.infra.template import Resource, Template

SETTINGS = {"DEFAULT_SETTINGS_PARAMETER": "{SettingsStackDefault}", "SETTINGS_PATH": "/TrainGuard/settings/"}
BRAKES = {"BRAKES_PARAMETER": "/TrainGuard/brakes"}
EVALUATION = SETTINGS | {
    "JOBS_TABLE": "{StorageJobs}",
    "NODE_STATE_TABLE": "{StorageNodeState}",
    "BOOKKEEPING_TABLE": "{StorageBookkeeping}",
    "RULE_STATE_TABLE": "{StorageRuleState}",
    "TASK_QUEUE_URL": "{IngestDoorbells}",
    "FIRE_STATE_MACHINE_ARN": "{ActionsFire.Arn}",
    "REPORT_STATE_MACHINE_ARN": "{ReportsReport.Arn}",
    "KERNELS_STATE_MACHINE_ARN": "{CapturesKernels.Arn}",
    "PROFILE_BUCKET": "{StorageProfiles}",
    **BRAKES,
}
FUNCTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "EvaluationEvaluateObjectsFunction": ("evaluate_objects", EVALUATION),
    "EvaluationSchedulerFunction": (
        "scheduler",
        {
            "JOBS_TABLE": "{StorageJobs}",
            "PROFILE_BUCKET": "{StorageProfiles}",
            "CANARY": "on",
            "DEFAULT_SETTINGS_PARAMETER": SETTINGS["DEFAULT_SETTINGS_PARAMETER"],
            "RECONCILE_JOB_FUNCTION": "{EvaluationReconcileJobLive}",
        }
        | BRAKES,
    ),
    "EvaluationReconcileJobFunction": ("reconcile_job", EVALUATION),
    "LifecycleJobLifecycleFunction": (
        "job_lifecycle",
        SETTINGS
        | {
            "JOBS_TABLE": "{StorageJobs}",
            "NODE_STATE_TABLE": "{StorageNodeState}",
            "TASK_QUEUE_URL": "{IngestDoorbells}",
            "PROFILE_BUCKET": "{StorageProfiles}",
            "FIRE_STATE_MACHINE_ARN": "{ActionsFire.Arn}",
        },
    ),
    "ActionsDecideStopFunction": (
        "decide_stop",
        {
            "STOP_SWITCH_PARAMETER": "{ActionsStopSwitch}",
            "STOP_SWITCH_OVERRIDE_PARAMETER": "/TrainGuard/stop-switch-override",
            **BRAKES,
            "JOBS_TABLE": "{StorageJobs}",
            "RULE_STATE_TABLE": "{StorageRuleState}",
            "BOOKKEEPING_TABLE": "{StorageBookkeeping}",
            "STOP_BUDGET_TABLE": "{StorageBookkeeping}",
            "MAX_STOPS_PER_HOUR": "5",
            "STOPPABLE_RESOURCES": "none",
        },
    ),
    "CanaryFunction": (
        "canary",
        {
            "RULE_STATE_TABLE": "{StorageRuleState}",
            "JOBS_TABLE": "{StorageJobs}",
            "PROFILE_BUCKET": "{StorageProfiles}",
        },
    ),
    "ActionsRecordFireFunction": ("record_fire", {"RULE_STATE_TABLE": "{StorageRuleState}"}),
    "ActionsStopJobFunction": (
        "stop_job",
        {"RULE_STATE_TABLE": "{StorageRuleState}", "BOOKKEEPING_TABLE": "{StorageBookkeeping}"},
    ),
    "ActionsSendAlertFunction": (
        "send_alert",
        {
            "BOOKKEEPING_TABLE": "{StorageBookkeeping}",
            "ALERT_TOPIC_ARN": "{ActionsAlerts}",
            "CHAT_TOPIC_ARN": "{ActionsChat}",
            **BRAKES,
        },
    ),
    "ReportsPlanReportFunction": (
        "plan_report",
        {"JOBS_TABLE": "{StorageJobs}", "NODE_STATE_TABLE": "{StorageNodeState}"},
    ),
    "ReportsDigestProfileFunction": ("digest_profile", {}),
    "ReportsBuildReportFunction": (
        "build_report",
        {"JOBS_TABLE": "{StorageJobs}", "NODE_STATE_TABLE": "{StorageNodeState}"},
    ),
    "CapturesPlanCaptureFunction": ("plan_capture", {}),
    "CapturesDigestTraceFunction": ("digest_trace", {}),
    "CapturesJoinCaptureFunction": ("join_capture", {"TASK_QUEUE_URL": "{IngestDoorbells}"}),
}


def test_template_has_exactly_these_functions(template: Template) -> None:
    assert set(template.of_type("AWS::Lambda::Function")) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_common_defaults_and_own_environment(template: Template, name: str) -> None:
    folder, environment = FUNCTIONS[name]
    function = template.one("AWS::Lambda::Function", name)
    assert function["Handler"] == "handler.handler"
    assert (ROOT / "lambdas" / folder / "handler.py").is_file()
    assert function["Runtime"] == f"python{AWS.python_version}"
    assert function["Architectures"] == ["arm64"]
    assert function["Layers"] == ["{RulesLayer}"]
    assert function["TracingConfig"] == {"Mode": "PassThrough"}
    assert function["LoggingConfig"] == {"LogGroup": "{" + name.removesuffix("Function") + "Logs}"}
    assert function["Environment"]["Variables"] == environment | {
        "POWERTOOLS_SERVICE_NAME": folder,
        "POWERTOOLS_METRICS_NAMESPACE": "TrainGuard",
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }


@pytest.mark.parametrize("name", ["EvaluationSchedulerFunction", "LifecycleJobLifecycleFunction", "CanaryFunction"])
def test_event_is_kept_after_every_attempt_failed(template: Template, name: str) -> None:
    function = template.one("AWS::Lambda::Function", name)
    assert function["DeadLetterConfig"] == {"TargetArn": "{IngestEventDeadLetters.Arn}"}


def test_asynchronous_functions_retry_as_their_work_allows(template: Template) -> None:
    settings: dict[str, Any] = {
        config.properties["FunctionName"]: (
            config.properties["MaximumRetryAttempts"],
            config.properties["MaximumEventAgeInSeconds"],
        )
        for config in template.of_type("AWS::Lambda::EventInvokeConfig").values()
    }
    assert settings == {
        "{EvaluationSchedulerFunction}": (0, 60),
        "{EvaluationReconcileJobFunction}": (0, 60),
        "{LifecycleJobLifecycleFunction}": (2, 6 * 3600),
        "{CanaryFunction}": (2, 600),
    }


def test_event_of_a_failed_request_is_kept_with_the_reason(
    template: Template,
) -> None:
    configs = [each.properties for each in template.of_type("AWS::Lambda::EventInvokeConfig").values()]
    (look,) = (each for each in configs if each["FunctionName"] == "{EvaluationReconcileJobFunction}")
    assert look["DestinationConfig"] == {"OnFailure": {"Destination": "{IngestEventDeadLetters.Arn}"}}
    assert "DeadLetterConfig" not in template.one("AWS::Lambda::Function", "EvaluationReconcileJobFunction")


def test_function_memory_is_configurable_one_by_one(template: Template, variants: Path) -> None:
    chosen = {
        "EvaluationEvaluateObjectsFunction": 1536,
        "EvaluationSchedulerFunction": 256,
        "EvaluationReconcileJobFunction": 1769,
        "LifecycleJobLifecycleFunction": 640,
        "ReportsPlanReportFunction": 1200,
        "ReportsDigestProfileFunction": 3008,
        "ReportsBuildReportFunction": 3008,
        "CapturesDigestTraceFunction": 2560,
        "CapturesJoinCaptureFunction": 1792,
    }
    default = {name: each.properties["MemorySize"] for name, each in template.of_type("AWS::Lambda::Function").items()}
    sized = Template(variants / "sized" / "TrainGuard.template.json").of_type("AWS::Lambda::Function")
    assert {name: each.properties["MemorySize"] for name, each in sized.items()} == default | chosen
    reserved = {name: each.properties.get("ReservedConcurrentExecutions") for name, each in sized.items()}
    assert reserved == dict.fromkeys(sized) | {"EvaluationReconcileJobFunction": 20}


def test_given_the_clock_when_read_then_it_ticks_every_minute(template: Template) -> None:
    rule = template.one("AWS::Events::Rule", "EvaluationEveryMinute")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert [target["Arn"] for target in rule["Targets"]] == ["{EvaluationSchedulerFunction.Arn}"]


def test_lifecycle_rule_takes_training_job_state_changes(template: Template) -> None:
    rule = template.one("AWS::Events::Rule", "LifecycleTrainingJobStateChanged")
    assert rule["EventPattern"] == {
        "source": ["aws.sagemaker"],
        "detail-type": ["SageMaker Training Job State Change"],
    }
    assert [target["Arn"] for target in rule["Targets"]] == ["{LifecycleJobLifecycleFunction.Arn}"]


def test_outputs_name_every_place(template: Template) -> None:
    assert template.outputs == {
        "ProfilerOutputUri": "s3://{StorageProfiles}/",
        "JobsTable": "{StorageJobs}",
        "RuleStateTable": "{StorageRuleState}",
        "NodeStateTable": "{StorageNodeState}",
        "BookkeepingTable": "{StorageBookkeeping}",
        "DoorbellQueueUrl": "{IngestDoorbells}",
        "DoorbellDeadLetterQueueUrl": "{IngestDoorbellDeadLetters}",
        "EventDeadLetterQueueUrl": "{IngestEventDeadLetters}",
        "FireStateMachineArn": "{ActionsFire.Arn}",
        "ReportStateMachineArn": "{ReportsReport.Arn}",
        "KernelsStateMachineArn": "{CapturesKernels.Arn}",
        "StopSwitchParameter": "{ActionsStopSwitch}",
        "StopSwitchOverrideParameter": "/TrainGuard/stop-switch-override",
        "BrakesParameter": "/TrainGuard/brakes",
        "DefaultSettingsParameter": "{SettingsStackDefault}",
        "SettingsPath": "/TrainGuard/settings/",
        "AlertTopicArn": "{ActionsAlerts}",
        "ChatTopicArn": "{ActionsChat}",
        "OperationsTopicArn": "{MonitoringOperations}",
        "Version": version("trainguard"),
    }


def test_stop_switch_takes_three_words(template: Template) -> None:
    parameter = template.one("AWS::SSM::Parameter", "ActionsStopSwitch")
    assert parameter["Name"] == "/TrainGuard/stop-switch"
    assert parameter["Value"] == "enabled"
    assert parameter["AllowedPattern"] == "^(enabled|dry-run|disabled)$"


def test_upgrade_writes_nothing_of_operators(template: Template) -> None:
    written_by_operators = {template.outputs[name] for name in ("StopSwitchOverrideParameter", "BrakesParameter")}
    names = {each.properties.get("Name") for each in template.of_type("AWS::SSM::Parameter").values()}
    assert written_by_operators == {"/TrainGuard/stop-switch-override", "/TrainGuard/brakes"}
    assert len(names) > 1
    assert not written_by_operators & names
    actions = {action for _, statement in template.role_statements() for action in statement.actions}
    assert {action for action in actions if action.startswith("ssm:")} == {"ssm:GetParameter"}


def test_log_of_stops_and_brakes_is_kept_over_a_year(template: Template) -> None:
    audited = {name for name, each in template.of_type("AWS::Logs::LogGroup").items() if days_of(each) > 365}
    assert audited == {"ActionsDecideStopLogs", "ActionsStopJobLogs", "EvaluationSchedulerLogs"}


def days_of(log_group: Resource) -> int:
    return int(log_group.properties["RetentionInDays"])


@pytest.mark.parametrize(
    ("variant", "stack", "evaluate"),
    [
        ("second", "TrainGuard-Research", '"all"'),
        ("person", "TrainGuard", '"tagged"'),
        ("everything", "Everything", '["prod-*", "llm-*"]'),
    ],
    ids=["own bucket", "existing bucket", "by name"],
)
def test_default_settings_evaluate_all_only_in_an_own_bucket(
    variants: Path, variant: str, stack: str, evaluate: str
) -> None:
    template = Template(variants / variant / f"{stack}.template.json")
    parameter = template.one("AWS::SSM::Parameter", "SettingsStackDefault")
    assert parameter["Name"] == f"/{stack}/default-settings"
    assert parameter["Value"] == f'{{"evaluate": {evaluate}}}'
    assert template.outputs["SettingsPath"] == f"/{stack}/settings/"
