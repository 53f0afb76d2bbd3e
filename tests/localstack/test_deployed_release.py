"""A release over its life, beside another stack and without CDK: created, upgraded amid a job, deleted."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from infra.release.folder import project_version
from infra.teardown import describe, empty, read_fate
from tests.localstack.account import existing, layers, versions
from tests.localstack.assemblies import RELEASE, SAID
from tests.localstack.emulator_kit import deleting, until
from tests.localstack.plain_stack import PlainStack
from tests.localstack.stack import PATIENCE_S, Job, Stack, subscribed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from emulator.launch import Emulator
    from tests.localstack.assemblies import Written

pytestmark = pytest.mark.localstack

NAME = "Released"
BUCKET = "our-releases"
PREFIX = "tools/trainguard/"
RULE = "CPUBottleneck"
SWITCHES = ("StopSwitchParameter", "StopSwitchOverrideParameter")
STOP_SWITCH_SAYS = "Whether TrainGuard may stop opted-in training jobs"
HALF_MINUTES = 3.3
WHOLE_MINUTES = 7.3
CHOSEN = {
    "AssetBucket": BUCKET,
    "AssetPrefix": PREFIX,
    "AlertEmail": "ml@example.com",
    "StopSwitch": "dry-run",
    "Canary": "false",
    "Dashboard": "false",
    "EvaluatorMemoryMb": "1536",
}
# Parameters of the upgrade.
LATER = {**CHOSEN, "StopSwitch": "enabled", "Canary": "true"}


@dataclass(frozen=True)
class Life:
    """What was seen of a release that was deployed, upgraded and deleted around two jobs."""

    before: set[tuple[str, str]]
    deployed: set[tuple[str, str]]
    after: set[tuple[str, str]]
    layers: tuple[set[str], set[str]]
    layers_left: int
    functions: tuple[set[str], set[str]]
    outputs: tuple[Mapping[str, str], Mapping[str, str]]
    evaluator_mb: int
    mails: set[str]
    fired: Mapping[str, object]
    alerts: list[Mapping[str, Any]]
    upgraded: Mapping[str, object]
    whole: Mapping[str, object]
    fires: int
    switches: tuple[str, ...]
    stop_decision: Mapping[str, object]
    stops: list[str | None]
    told: str


@pytest.fixture(scope="module")
def release(written: Written) -> Path:
    """The folder of a release for the emulator, which keeps no data."""
    out = written(RELEASE)
    folder = out / f"trainguard-{project_version()}"
    assert out.with_name(SAID).read_text(encoding="utf-8") == f"{folder}\n{folder}.zip\n"
    return folder


class Releases:
    """The bucket of a release in an account in which nothing was bootstrapped: it has all that the stack needs."""

    def __init__(self, emulator: Emulator, release: Path, folder: Path) -> None:
        self._s3 = emulator.client("s3")
        self._release = release
        self._folder = folder
        self._s3.create_bucket(Bucket=BUCKET)
        for file in (release / "assets").iterdir():
            self._s3.upload_file(str(file), BUCKET, f"{PREFIX}{file.name}")

    def put_template(self) -> None:
        """Put the template where the stack takes it from."""
        self._s3.upload_file(str(self._release / "trainguard.template.json"), BUCKET, "template.json")

    def put_earlier_template(self) -> None:
        """Put one whose layer differs, as that of an earlier version does, and a property of the stop switch."""
        text = (self._release / "trainguard.template.json").read_text(encoding="utf-8")
        (layer,) = (self._release / "assets").glob("layer-*.zip")
        earlier = self._folder / "layer-earlier.zip"
        earlier.write_bytes(layer.read_bytes())
        with zipfile.ZipFile(earlier, "a") as archive:
            archive.writestr("python/trainguard/earlier.py", "EARLIER = True\n")
        self._s3.upload_file(str(earlier), BUCKET, f"{PREFIX}{earlier.name}")
        assert layer.name in text
        assert STOP_SWITCH_SAYS in text
        text = text.replace(layer.name, earlier.name).replace(STOP_SWITCH_SAYS, "As an earlier version described it")
        self._s3.put_object(Bucket=BUCKET, Key="template.json", Body=text.encode())

    def delete(self) -> None:
        empty(self._s3, BUCKET)
        with deleting():
            self._s3.delete_bucket(Bucket=BUCKET)


def _fire_of(job: Job) -> Any:
    """Return the input of the execution that handled the job's fire."""
    (fire,) = job.fires(RULE)
    arn = f"{job.stack.outputs['FireStateMachineArn'].replace(':stateMachine:', ':execution:')}:{fire.name}"
    return json.loads(job.stack.emulator.client("stepfunctions").describe_execution(executionArn=arn)["input"])


@pytest.fixture(scope="module")
def life(emulator: Emulator, stack: Stack, release: Path, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Let the release live beside the stack that the other tests use."""
    stack.await_quiet()
    before = existing(emulator)
    bucket = Releases(emulator, release, tmp_path_factory.mktemp("earlier"))
    plain = PlainStack(emulator, NAME, {"TemplateURL": f"{emulator.endpoint}/{BUCKET}/template.json"})
    bucket.put_earlier_template()
    outputs = plain.deploy("create_stack", CHOSEN)
    released = subscribed(emulator, outputs, NAME)
    deployed, earlier = existing(emulator), layers(released)
    evaluator = released.functions["evaluate_objects"]
    evaluate = emulator.client("lambda").get_function_configuration(FunctionName=evaluator)
    topic = emulator.client("sns").list_subscriptions_by_topic(TopicArn=outputs["AlertTopicArn"])["Subscriptions"]
    job = Job(released, "cpu_bottleneck", "upgraded", allowed=True)
    job.await_applied(job.upload(until_minute=HALF_MINUTES))
    fired = job.await_row(RULE, AlertId=None, ReportUri=None)
    alerts = until(lambda: job.alerts(RULE), timeout_s=PATIENCE_S, what="the alert")
    ssm = emulator.client("ssm")
    for name in SWITCHES:
        ssm.put_parameter(Name=outputs[name], Value="disabled", Type="String", Overwrite=True)

    bucket.put_template()
    later = plain.deploy("update_stack", LATER)
    upgraded = Stack(released.deployment, NAME)
    switches = tuple(ssm.get_parameter(Name=outputs[name])["Parameter"]["Value"] for name in SWITCHES)
    decision = upgraded.invoke("decide_stop", _fire_of(job))
    job.upload(until_minute=WHOLE_MINUTES)
    job.end()
    whole = Job(released, "cpu_bottleneck", "whole-run", start=job.feed.start)
    whole.upload(until_minute=WHOLE_MINUTES)
    whole.end()
    verdicts, fires, used = (job.verdicts(), whole.verdicts()), len(job.fires(RULE)), (earlier, layers(upgraded))

    fate = read_fate(emulator.client("cloudformation"), NAME)
    for name in fate.buckets:
        empty(emulator.client("s3"), name)
    plain.delete()
    bucket.delete()
    with deleting():
        ssm.delete_parameter(Name=outputs["StopSwitchOverrideParameter"])
    with deleting():
        emulator.client("sqs").delete_queue(QueueUrl=released.deployment.alert_queue)
    return Life(
        before=before,
        deployed=deployed,
        after=existing(emulator),
        layers=used,
        layers_left=versions(emulator, used[0] | used[1]),
        functions=(set(released.functions), set(upgraded.functions)),
        outputs=(outputs, later),
        evaluator_mb=evaluate["MemorySize"],
        mails={each["Endpoint"] for each in topic if each["Protocol"] == "email"},
        fired=fired,
        alerts=alerts,
        upgraded=verdicts[0],
        whole=verdicts[1],
        fires=fires,
        switches=switches,
        stop_decision=decision,
        stops=job.stops(),
        told=describe(NAME, fate),
    )


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


def test_release_deployed_without_cdk_fires_with_its_parameters(life: Life) -> None:
    (alert,) = (alert for alert in life.alerts if alert["kind"] == "fire")
    assert alert["alert_id"] == life.fired["AlertId"]
    assert str(life.fired["Action"]).startswith("Training job not stopped: the stop switch is 'dry-run'")
    assert life.mails == {"ml@example.com"}
    assert life.evaluator_mb == 1536


def test_upgrade_takes_new_parameters_and_keeps_its_places(life: Life) -> None:
    earlier, later = life.functions
    assert later - earlier == {"canary"}
    assert earlier - later == set()
    assert life.outputs[0] == life.outputs[1]


def test_upgrade_during_a_job_gives_verdicts_of_a_whole_run(life: Life) -> None:
    earlier, later = life.layers
    assert len(earlier) == len(later) == 1
    assert earlier != later
    assert life.upgraded == life.whole
    assert life.fires == 1


def test_forbidden_stops_survive_an_upgrade_of_the_switch(life: Life) -> None:
    assert life.switches == ("enabled", "disabled")
    assert (life.stop_decision["decision"], life.stop_decision["why"]) == ("refused", "its override is 'disabled'")
    assert life.stops == []


def test_deleted_release_beside_another_stack_leaves_nothing(life: Life) -> None:
    assert {kind for kind, _ in life.deployed - life.before} >= {"buckets", "tables", "functions", "logs", "parameters"}
    assert life.after - life.before == set()
    assert life.before - life.after == set()
    assert life.layers_left == 0
    assert "0 stay" in life.told
    assert "is emptied and goes: bucket" in life.told
