"""Live sources: nothing without the setting, and a role that reads the listed services alone."""

from pathlib import Path

import pytest

from infra.config import DeploymentConfig, DeploymentConfigError
from tests.infra.template import Template
from tests.infra.variants import LIVE_SECRET, LIVE_SOURCES, TRACKING_SERVER


@pytest.fixture
def deployed(variants: Path) -> Template:
    return Template(variants / "live" / "TrainGuard.template.json")


def statements(template: Template, role_name: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    held = [each for role, each in template.role_statements() if role == role_name]
    return {str(each.sid): (tuple(each.actions), tuple(each.resources)) for each in held}


def test_given_the_default_when_synthesised_then_nothing_polls(template: Template) -> None:
    assert not any("Poll" in name for name in template.of_type("AWS::Lambda::Function"))
    assert "PollSources" not in statements(template, "EvaluationReconcileJobRole")


def test_service_role_reads_its_services_and_writes_by_profiles(
    deployed: Template,
) -> None:
    held = statements(deployed, "LiveSourcesPollSourceRole")
    assert held["ReadRuns"] == (("sagemaker-mlflow:GetRun", "sagemaker-mlflow:GetMetricHistory"), (TRACKING_SERVER,))
    assert held["ReadTokens"] == (("secretsmanager:GetSecretValue",), (LIVE_SECRET,))
    (workspace,) = held["QueryWorkspaces"][1]
    assert workspace.endswith(":workspace/ws-1a2b")
    (group,) = held["ReadLogs"][1]
    assert group.endswith(":log-group:/aws/sagemaker/TrainingJobs:*")
    written = [resource.partition("/")[2] for resource in held["WriteProfiles"][1]]
    assert written == ["*/profiler-output/system/*", "*/tensorboard-output/live-source/*", "*/live-source/*.json"]
    assert not any("*" in each or "Delete" in each for actions, _ in held.values() for each in actions)


def test_run_file_events_reach_the_function(deployed: Template) -> None:
    rules = deployed.of_type("AWS::Events::Rule")
    (rule,) = (each.properties for name, each in rules.items() if "RunFileWritten" in name)
    assert rule["EventPattern"]["detail"]["object"]["key"] == [{"wildcard": "*/wandb/*run-*.wandb"}]
    bucket = deployed.one("AWS::S3::Bucket", "StorageProfiles")
    assert bucket["NotificationConfiguration"] == {"EventBridgeConfiguration": {"EventBridgeEnabled": True}}


def test_services_as_text_or_list_mean_the_same() -> None:
    listed = DeploymentConfig.from_context({"live_sources": LIVE_SOURCES.split(",")}).live_sources
    assert DeploymentConfig.from_context({"live_sources": LIVE_SOURCES}).live_sources == listed
    assert len(listed) == 5


@pytest.mark.parametrize(
    "given", ["prometheus", "prometheus+ftp://host", "mlflow+arn:aws:s3:::a", "logs+name with spaces", "https://host"]
)
def test_invalid_service_error_says_what_one_is(given: str) -> None:
    with pytest.raises(DeploymentConfigError, match="services such as prometheus"):
        DeploymentConfig.from_context({"live_sources": given})


def test_secret_without_services_is_refused() -> None:
    with pytest.raises(DeploymentConfigError, match="live_source_secret needs live_sources"):
        DeploymentConfig.from_context({"live_source_secret": LIVE_SECRET})
