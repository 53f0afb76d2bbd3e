"""The construct of the wheel, in an application of others that has no checkout."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.bundling import find_uv
from infra.config import DeploymentConfig, DeploymentConfigError
from infra.places import PROJECT_ROOT
from tests.infra.synthesis import bare_environment

APP = """\
import sys
from aws_cdk import App, Stack, aws_ec2 as ec2, aws_s3 as s3
from trainguard_cdk import TrainGuard

app = App(outdir="out")
data = Stack(app, "Data")
bucket = s3.Bucket(data, "Profiles", event_bridge_enabled=True)
vpc = ec2.Vpc(data, "Network", max_azs=2)
inside = {"vpc_id": vpc.vpc_id, "subnet_ids": [each.subnet_id for each in vpc.private_subnets]}
guard = TrainGuard(app, "Guard", profile_bucket=bucket.bucket_name, **inside, max_stops_per_hour=2, canary=False)
TrainGuard(app, "Other", alert_emails=["you@example.com"], retain_data=False)
app.synth()
"""


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what the application synthesises with the wheel and its extra, in an environment of its own."""
    folder = tmp_path_factory.mktemp("application")
    python = folder / "environment" / "bin" / "python"
    environment = bare_environment(folder / "home") | {"XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("PYTHONPATH", None)
    (folder / "node_modules").symlink_to(PROJECT_ROOT / "node_modules", target_is_directory=True)
    (folder / "app.py").write_text(APP, encoding="utf-8")
    install = [find_uv(), "pip", "install", "--quiet", "--python", python]
    for command in (
        [find_uv(), "build", "--quiet", "--wheel", "--out-dir", folder, PROJECT_ROOT],
        [find_uv(), "venv", "--quiet", "--python", sys.executable, folder / "environment"],
        # The cache of all runs may hold another wheel of this name, place and version.
        [*install, "--refresh-package", "trainguard", "trainguard[cdk]", "--find-links", folder],
        [python, "app.py"],
    ):
        words = [str(each) for each in command]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


def resources(assembly: Path, stack: str, kind: str) -> list[dict[str, Any]]:
    template = json.loads((assembly / f"{stack}.template.json").read_bytes())
    return [each["Properties"] for each in template["Resources"].values() if each["Type"] == kind]


def test_construct_has_each_function_in_the_applications_network(assembly: Path) -> None:
    functions = resources(assembly, "Guard", "AWS::Lambda::Function")
    named = {each["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] for each in functions}
    assert named >= {"evaluate_objects", "scheduler", "reconcile_job", "job_lifecycle", "stop_job", "build_report"}
    assert "canary" not in named
    for each in functions:
        assert all("PrivateSubnet" in json.dumps(subnet) for subnet in each["VpcConfig"]["SubnetIds"])
        assert each["Environment"]["Variables"]["POWERTOOLS_METRICS_NAMESPACE"] == "Guard"
    of_data = json.dumps([each["Environment"]["Variables"].get("PROFILE_BUCKET") for each in functions])
    assert "RefProfiles" in of_data
    assert not resources(assembly, "Guard", "AWS::S3::Bucket")
    assert resources(assembly, "Other", "AWS::S3::Bucket")


def test_assets_of_the_construct_have_code_and_bytecode(assembly: Path) -> None:
    held = json.loads((assembly / "Guard.assets.json").read_bytes())["files"].values()
    folders = [assembly / each["source"]["path"] for each in held if each["source"]["packaging"] == "zip"]
    (layer,) = (each for each in folders if (each / "python").is_dir())
    assert (layer / "python" / "trainguard" / "core" / "__pycache__" / "errors.cpython-313.pyc").is_file()
    assert all("aarch64" in file.name for file in layer.rglob("*.cpython-*.so"))
    assert (layer / "sbom.cdx.json").is_file()
    functions = resources(assembly, "Guard", "AWS::Lambda::Function")
    code = {each["Code"]["S3Key"].partition(".")[0] for each in functions}
    assert code <= {each.name.removeprefix("asset.") for each in folders if (each / "handler.py").is_file()}


def test_unknown_and_wrong_settings_are_refused_together() -> None:
    with pytest.raises(DeploymentConfigError) as refused:
        DeploymentConfig.from_values({"max_stop_per_hour": 1, "canary": "maybe", "vpc_id": "${Token[1]}"}, {"vpc_id"})
    assert refused.value.faults == [
        "canary is 'maybe', expected true or false",
        "max_stop_per_hour is no setting",
        "vpc_id needs subnet_ids or route_table_ids",
    ]
