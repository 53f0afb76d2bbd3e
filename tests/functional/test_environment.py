"""A function's environment is complete or the function says everything that is wrong with it."""

import pytest

from tests.functional.deployment import Deployment, load_handler
from trainguard.aws.environment import load_environment
from trainguard.core.errors import EnvironmentConfigError

FUNCTIONS = [
    "evaluate_objects",
    "scheduler",
    "reconcile_job",
    "job_lifecycle",
    "decide_stop",
    "build_report",
    "plan_report",
]
SETTINGS = {"DEFAULT_SETTINGS_PARAMETER", "SETTINGS_PATH"}
EVALUATOR = SETTINGS | {
    "JOBS_TABLE",
    "NODE_STATE_TABLE",
    "RULE_STATE_TABLE",
    "BOOKKEEPING_TABLE",
    "PROFILE_BUCKET",
    "TASK_QUEUE_URL",
    "FIRE_STATE_MACHINE_ARN",
    "REPORT_STATE_MACHINE_ARN",
    "KERNELS_STATE_MACHINE_ARN",
    "BRAKES_PARAMETER",
}
LIFECYCLE = (
    "jobs_table",
    "node_state_table",
    "task_queue_url",
    "profile_bucket",
    "fire_state_machine_arn",
    "default_settings_parameter",
    "settings_path",
)
ASKED = {
    "evaluate_objects": EVALUATOR,
    "reconcile_job": EVALUATOR,
    "scheduler": {"JOBS_TABLE", "RECONCILE_JOB_FUNCTION", "BRAKES_PARAMETER", "CANARY", "PROFILE_BUCKET"}
    | {"DEFAULT_SETTINGS_PARAMETER"},
    "job_lifecycle": SETTINGS
    | {"JOBS_TABLE", "NODE_STATE_TABLE", "TASK_QUEUE_URL", "PROFILE_BUCKET", "FIRE_STATE_MACHINE_ARN"},
    "decide_stop": {"STOP_SWITCH_PARAMETER", "STOP_SWITCH_OVERRIDE_PARAMETER", "JOBS_TABLE", "RULE_STATE_TABLE"}
    | {"BOOKKEEPING_TABLE", "STOP_BUDGET_TABLE", "MAX_STOPS_PER_HOUR", "STOPPABLE_RESOURCES", "BRAKES_PARAMETER"},
    "build_report": {"JOBS_TABLE", "NODE_STATE_TABLE"},
    "plan_report": {"JOBS_TABLE", "NODE_STATE_TABLE"},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_asks_for_its_variables(deployment: Deployment, name: str) -> None:
    deployment.function(name)
    asked = vars(load_handler(name).environment)
    assert {variable.upper() for variable in asked} == ASKED[name]
    assert {variable.upper(): value for variable, value in asked.items()} == deployment.environments[name]


def test_missing_or_empty_variables_are_named_in_one_error() -> None:
    known = {"PROFILE_BUCKET": "profiles", "FIRE_STATE_MACHINE_ARN": "arn", "SETTINGS_PATH": "/settings/"}
    given = {"NODE_STATE_TABLE": "", "TASK_QUEUE_URL": "  ", "DEFAULT_SETTINGS_PARAMETER": "/default"} | known
    with pytest.raises(EnvironmentConfigError) as caught:
        load_environment(LIFECYCLE, given, function="job_lifecycle")
    assert caught.value.function == "job_lifecycle"
    assert caught.value.faults == [
        "JOBS_TABLE is not set, expected the name of the Jobs table",
        "NODE_STATE_TABLE is empty (''), expected the name of the NodeState table",
        "TASK_QUEUE_URL is empty ('  '), expected the URL of the evaluation queue",
    ]


def test_given_an_environment_when_changed_then_it_refuses() -> None:
    given = {"JOBS_TABLE": "Jobs", "NODE_STATE_TABLE": "NodeState"}
    loaded = load_environment(("jobs_table", "node_state_table"), given, function="build_report")
    with pytest.raises(AttributeError, match="jobs_table is given"):
        loaded.jobs_table = "Others"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_without_environment_names_all_it_lacks(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    deployment.function(name)
    variables = deployment.environments[name]
    for variable in variables:
        monkeypatch.delenv(variable)
    with pytest.raises(EnvironmentConfigError) as caught:
        load_handler(name)
    assert caught.value.function == name
    assert [fault.split()[0] for fault in caught.value.faults] == list(variables)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_with_one_missing_variable_does_not_start(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable, value in deployment.environments[name].items():
        deployment.function(name)
        monkeypatch.delenv(variable)
        with pytest.raises(EnvironmentConfigError, match=f"{variable} is not set"):
            load_handler(name)
        monkeypatch.setenv(variable, value)
