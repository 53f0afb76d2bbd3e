"""A function's environment is complete or the function says everything that is wrong with it."""

from dataclasses import FrozenInstanceError, fields

import pytest

from trainguard.adapters.environment import (
    BuildReportEnvironment,
    ComposeAlertEnvironment,
    DecideStopEnvironment,
    EvaluateObjectsEnvironment,
    JobLifecycleEnvironment,
    TickEnvironment,
    load_environment,
)
from trainguard.errors import EnvironmentConfigError

EVALUATOR = {"JOBS_TABLE", "NODE_STATE_TABLE", "RULE_STATE_TABLE", "TASK_QUEUE_URL", "FIRE_STATE_MACHINE_ARN"}


@pytest.mark.parametrize(
    ("kind", "variables"),
    [
        (EvaluateObjectsEnvironment, EVALUATOR),
        (TickEnvironment, EVALUATOR),
        (JobLifecycleEnvironment, {"JOBS_TABLE", "NODE_STATE_TABLE", "TASK_QUEUE_URL", "PROFILE_BUCKET"}),
        (DecideStopEnvironment, {"JOBS_TABLE", "STOP_SWITCH_PARAMETER"}),
        (ComposeAlertEnvironment, set()),
        (BuildReportEnvironment, {"JOBS_TABLE", "NODE_STATE_TABLE", "RULE_STATE_TABLE"}),
    ],
)
def test_given_exactly_its_variables_when_loaded_then_each_field_holds_its_own(
    kind: type[TickEnvironment], variables: set[str]
) -> None:
    loaded = load_environment(kind, {name: f"value of {name}" for name in variables}, function="any")
    held = {field.name.upper(): getattr(loaded, field.name) for field in fields(loaded)}
    assert held == {name: f"value of {name}" for name in variables}


def test_given_variables_that_are_missing_or_empty_when_loaded_then_one_error_names_them_all() -> None:
    given = {"NODE_STATE_TABLE": "", "TASK_QUEUE_URL": "  ", "PROFILE_BUCKET": "profiles"}
    with pytest.raises(EnvironmentConfigError) as caught:
        load_environment(JobLifecycleEnvironment, given, function="job_lifecycle")
    assert caught.value.function == "job_lifecycle"
    assert caught.value.faults == [
        "JOBS_TABLE is not set, expected the name of the Jobs table",
        "NODE_STATE_TABLE is empty (''), expected the name of the NodeState table",
        "TASK_QUEUE_URL is empty ('  '), expected the URL of the doorbell queue",
    ]


def test_given_an_environment_when_changed_then_it_refuses() -> None:
    loaded = load_environment(
        DecideStopEnvironment, {"JOBS_TABLE": "Jobs", "STOP_SWITCH_PARAMETER": "/stop"}, function="decide_stop"
    )
    with pytest.raises(FrozenInstanceError):
        loaded.jobs_table = "Others"  # type: ignore[misc]  # that it is refused is what is tested
