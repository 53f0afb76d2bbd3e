"""A release, deployed as a user does it: the assets uploaded, the template created with parameters, and no CDK."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from demo.live.stage import Deployment, subscribe
from infra.release.folder import project_version
from infra.teardown import empty
from tests.localstack.emulator_kit import deleting
from tests.localstack.plain_stack import PlainStack
from tests.localstack.stack import Job, Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack

ROOT = Path(__file__).parents[2]
NAME = "Released"
BUCKET = "our-releases"
PREFIX = "tools/trainguard/"
RULE = "CPUBottleneck"
FIRES_BY_MINUTE = 4.5
CHOSEN = {
    "AssetBucket": BUCKET,
    "AssetPrefix": PREFIX,
    "AlertEmail": "ml@example.com",
    "StopSwitch": "dry-run",
    "Canary": "false",
    "Dashboard": "false",
    "EvaluatorMemoryMb": "1536",
}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release for the emulator, which keeps no data."""
    out = tmp_path_factory.mktemp("release")
    settings = ("-c", "emulator=true", "-c", "retain_data=false", "--out", str(out))
    done = subprocess.run([sys.executable, "-m", "infra.release", *settings], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folder = out / f"trainguard-{project_version()}"
    assert done.stdout == f"{folder}\n{folder}.zip\n"
    return folder


@pytest.fixture(scope="module")
def plain(emulator: Emulator, release: Path) -> PlainStack:
    """The stack of the release, in an account in which nothing was bootstrapped: one bucket has all that it needs."""
    s3 = emulator.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    for file in (release / "assets").iterdir():
        s3.upload_file(str(file), BUCKET, f"{PREFIX}{file.name}")
    s3.upload_file(str(release / "trainguard.template.json"), BUCKET, "template.json")
    return PlainStack(emulator, NAME, {"TemplateURL": f"{emulator.endpoint}/{BUCKET}/template.json"})


@pytest.fixture(scope="module")
def released(plain: PlainStack) -> Iterator[Stack]:
    """The stack, created and at the end deleted."""
    emulator = plain.emulator
    outputs = plain.deploy("create_stack", CHOSEN)
    queue = subscribe(emulator, outputs["AlertTopicArn"], f"alerts-of-{NAME}")
    stack = Stack(Deployment(emulator=emulator, outputs=outputs, alert_queue=queue), NAME)
    yield stack
    empty(emulator.client("s3"), stack.deployment.bucket)
    plain.delete()
    with deleting():
        emulator.client("sqs").delete_queue(QueueUrl=queue)
    empty(emulator.client("s3"), BUCKET)
    with deleting():
        emulator.client("s3").delete_bucket(Bucket=BUCKET)


def test_release_files_are_all_in_the_checksum_list(release: Path) -> None:
    lines = [line.split("  ") for line in (release / "SHA256SUMS").read_text("utf-8").splitlines()]
    listed = {name: digest for digest, name in lines}
    files = [file for file in release.rglob("*") if file.is_file() and file.name != "SHA256SUMS"]
    assert listed == {
        file.relative_to(release).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }
    version = project_version()
    assert {file for file in listed if "/" not in file} == {
        *("README.md", "sbom.cdx.json", "trainguard.template.json"),
        *(f"trainguard-{version}-py3-none-any.whl", f"trainguard-{version}.tar.gz"),
        "trainguard_collector-1.0.0-py3-none-any.whl",
    }
    with zipfile.ZipFile(release.with_name(f"{release.name}.zip")) as archive:
        assert sorted(archive.namelist()) == sorted(f"{release.name}/{name}" for name in (*listed, "SHA256SUMS"))


def test_release_sbom_is_that_of_the_layer(
    release: Path,
) -> None:
    (layer,) = (release / "assets").glob("layer-*.zip")
    with zipfile.ZipFile(layer) as archive:
        held = json.loads(archive.read("sbom.cdx.json"))
    assert held == json.loads((release / "sbom.cdx.json").read_text("utf-8"))
    assert held["metadata"]["component"]["version"] == project_version()


def test_release_deployed_without_cdk_fires_with_its_parameters(released: Stack) -> None:
    emulator = released.emulator
    job = Job(released, "cpu_bottleneck", "under-a-release", allowed=True)
    job.upload(until_minute=FIRES_BY_MINUTE)
    row = job.await_row(RULE, Status="FIRED", AlertId=None, ReportUri=None)
    job.end()

    (alert,) = (alert for alert in job.alerts(RULE) if alert["kind"] == "fire")
    assert alert["alert_id"] == row["AlertId"]
    assert row["Action"].startswith("Training job not stopped: the stop switch is 'dry-run'")
    assert job.stops() == []
    topic = released.outputs["AlertTopicArn"]
    subscribed = emulator.client("sns").list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert {each["Endpoint"] for each in subscribed if each["Protocol"] == "email"} == {"ml@example.com"}
    assert "canary" not in released.functions
    evaluate = emulator.client("lambda").get_function_configuration(FunctionName=released.functions["evaluate_objects"])
    assert evaluate["MemorySize"] == 1536


@pytest.mark.thorough
def test_updated_release_uses_new_parameters_and_keeps_its_data(released: Stack, plain: PlainStack) -> None:
    ssm, switch = released.emulator.client("ssm"), released.outputs["StopSwitchParameter"]
    outputs = plain.deploy("update_stack", {**CHOSEN, "StopSwitch": "disabled", "Canary": "true"})
    assert switch == f"/{NAME}/stop-switch"
    assert ssm.get_parameter(Name=switch)["Parameter"]["Value"] == "disabled"
    assert outputs == released.outputs
    assert Stack(released.deployment, NAME).functions.keys() == {*released.functions, "canary"}
