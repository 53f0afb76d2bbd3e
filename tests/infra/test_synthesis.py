"""``cdk synth`` needs no credentials and no Docker, and gives the same bytes anywhere and every time."""

from pathlib import Path

from tests.infra.synthesis import docker_calls, read_json
from tests.infra.template import Template


def test_synthesis_without_warnings_prints_nothing(elsewhere: Path) -> None:
    assert (elsewhere / "said.txt").read_text(encoding="utf-8").strip() == ""


def test_other_checkout_gives_the_same_template_bytes(production: Path, elsewhere: Path) -> None:
    name = "TrainGuard.template.json"
    assert (elsewhere / "assembly" / name).read_bytes() == (production / name).read_bytes()


def test_other_checkout_gives_the_same_asset_hashes(production: Path, elsewhere: Path) -> None:
    name = "TrainGuard.assets.json"
    files = read_json(elsewhere / "assembly" / name)["files"]
    assert isinstance(files, dict)
    assert len(files) >= 3
    assert files == read_json(production / name)["files"]


def test_synthesis_never_calls_docker(production: Path, elsewhere: Path) -> None:
    assert docker_calls(production.parent.with_name("assemblies-home")) == []
    assert docker_calls(elsewhere / "home") == []


def test_template_has_no_custom_resource(template: Template) -> None:
    kinds = {resource.type for resource in template.resources}
    assert not [kind for kind in kinds if kind.startswith("Custom::") or kind == "AWS::CloudFormation::CustomResource"]


def test_bucket_topics_and_removal_follow_the_context(variants: Path) -> None:
    assert not (variants / "person.error").exists()
    template = Template(variants / "person" / "TrainGuard.template.json")
    assert not template.of_type("AWS::S3::Bucket")
    assert template.outputs["ProfilerOutputUri"] == "s3://our-profiles/"
    pattern = template.one("AWS::Events::Rule", "IngestProfileObjectCreated")["EventPattern"]
    assert pattern["detail"]["bucket"] == {"name": ["our-profiles"]}
    subscribed = {
        (entry.properties["Endpoint"], entry.properties["TopicArn"])
        for entry in template.of_type("AWS::SNS::Subscription").values()
    }
    assert subscribed == {
        ("ml@example.com", "{ActionsAlerts}"),
        ("oncall@example.com", "{ActionsAlerts}"),
        ("platform@example.com", "{MonitoringOperations}"),
    }
    kept = [resource.name for resource in template.resources if str(resource.deletion_policy).startswith("Retain")]
    assert kept == []
    assert template.one("AWS::SSM::Parameter", "ActionsStopSwitch")["Value"] == "dry-run"
