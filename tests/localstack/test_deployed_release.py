"""A release over its life, beside another stack and without CDK: created, upgraded amid a job, deleted."""

from __future__ import annotations

import hashlib
import json
import lzma
import zipfile
from dataclasses import dataclass
from pathlib import Path
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

    from emulator.launch import Emulator
    from tests.localstack.assemblies import Written

pytestmark = pytest.mark.localstack

NAME = "Released"
BUCKET = "our-releases"
PREFIX = "tools/trainguard/"
RULE = "CPUBottleneck"
SWITCHES = ("StopSwitchParameter", "StopSwitchOverrideParameter")
# The template of a release by its emulator's settings, without metadata.
LAST = Path(__file__).with_name("last_release.template.json.xz")
BRAKE = '[{"id": "b1", "what": "alerts", "since": "2026-01-01T00:00:00Z", "by": "us", "why": "known", "job": "other"}]'
OWN_SETTINGS = json.dumps({"evaluate": "tagged"})
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
LATER = {**CHOSEN, "StopSwitch": "enabled", "Canary": "true", "EvaluatorMemoryMb": "1792"}


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
    live: tuple[Mapping[str, Any], Mapping[str, Any]]
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
    kept: tuple[tuple[Any, ...], ...]


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

    def put_last_template(self) -> None:
        """Put that of the release before, for this machine's platform, with an earlier layer."""
        document, names = json.loads(lzma.decompress(LAST.read_bytes())), []
        present = json.loads((self._release / "trainguard.template.json").read_text(encoding="utf-8"))["Resources"]
        platforms = {each["Type"]: each["Properties"] for each in present.values()}
        for resource in document["Resources"].values():
            properties = resource["Properties"]
            if code := properties.get("Code") or properties.get("Content"):
                same = {"Runtime", "Architectures", "CompatibleRuntimes", "CompatibleArchitectures"} & properties.keys()
                properties |= {name: platforms[resource["Type"]][name] for name in same}
                names.append(code["S3Key"]["Fn::Sub"].removeprefix("${AssetPrefix}"))
        for name in names:
            (asset,) = (self._release / "assets").glob(f"{name.rpartition('-')[0]}-*.zip")
            earlier = self._folder / name
            earlier.write_bytes(asset.read_bytes())
            if name.startswith("layer-"):
                with zipfile.ZipFile(earlier, "a") as archive:
                    archive.writestr("python/trainguard/earlier.py", "EARLIER = True\n")
            self._s3.upload_file(str(earlier), BUCKET, f"{PREFIX}{name}")
        self._s3.put_object(Bucket=BUCKET, Key="template.json", Body=json.dumps(document).encode())

    def delete(self) -> None:
        empty(self._s3, BUCKET)
        with deleting():
            self._s3.delete_bucket(Bucket=BUCKET)


def _fire_of(job: Job) -> Any:
    """Return the input of the execution that handled the job's fire."""
    (fire,) = job.fires(RULE)
    arn = f"{job.stack.outputs['FireStateMachineArn'].replace(':stateMachine:', ':execution:')}:{fire.name}"
    return json.loads(job.stack.emulator.client("stepfunctions").describe_execution(executionArn=arn)["input"])


def _kept(job: Job, own: Mapping[str, str]) -> tuple[Any, ...]:
    """Return a job's items and rows, with what operators wrote."""
    ssm = job.stack.emulator.client("ssm")
    told = {name: ssm.get_parameter(Name=name)["Parameter"]["Value"] for name in own}
    return job.item(), job.rows(), job.verdicts(), told


@pytest.fixture(scope="module")
def life(emulator: Emulator, stack: Stack, release: Path, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Let the release live beside the stack that the other tests use."""
    stack.await_quiet()
    before = existing(emulator)
    bucket = Releases(emulator, release, tmp_path_factory.mktemp("earlier"))
    plain = PlainStack(emulator, NAME, {"TemplateURL": f"{emulator.endpoint}/{BUCKET}/template.json"})
    bucket.put_last_template()
    outputs = plain.deploy("create_stack", CHOSEN)
    released = subscribed(emulator, outputs, NAME)
    deployed, earlier = existing(emulator), layers(released)
    evaluator = released.functions["evaluate_objects"]
    first = emulator.client("lambda").get_function_configuration(FunctionName=evaluator)
    topic = emulator.client("sns").list_subscriptions_by_topic(TopicArn=outputs["AlertTopicArn"])["Subscriptions"]
    job = Job(released, "cpu_bottleneck", "upgraded", allowed=True)
    job.await_applied(job.upload(until_minute=HALF_MINUTES))
    fired = job.await_row(RULE, AlertId=None, ReportUri=None)
    alerts = until(lambda: job.alerts(RULE), timeout_s=PATIENCE_S, what="the alert")
    ssm = emulator.client("ssm")
    for name in SWITCHES:
        ssm.put_parameter(Name=outputs[name], Value="disabled", Type="String", Overwrite=True)
    own = {outputs["BrakesParameter"]: BRAKE, f"{outputs['SettingsPath']}team": OWN_SETTINGS}
    for name, value in own.items():
        ssm.put_parameter(Name=name, Value=value, Type="String")

    bucket.put_template()
    later = plain.deploy("update_stack", LATER)
    upgraded = Stack(released.deployment, NAME)
    second = emulator.client("lambda").get_function(FunctionName=evaluator, Qualifier="live")["Configuration"]
    switches = tuple(ssm.get_parameter(Name=outputs[name])["Parameter"]["Value"] for name in SWITCHES)
    decision = upgraded.invoke("decide_stop", _fire_of(job))
    job.upload(until_minute=WHOLE_MINUTES)
    job.end()
    whole = Job(released, "cpu_bottleneck", "whole-run", start=job.feed.start)
    whole.upload(until_minute=WHOLE_MINUTES)
    whole.end()
    verdicts, fires, used = (job.verdicts(), whole.verdicts()), len(job.fires(RULE)), (earlier, layers(upgraded))

    kept = [_kept(whole, own)]
    bucket.put_last_template()
    plain.deploy("update_stack", CHOSEN)
    kept.append(_kept(whole, own))
    again = Job(released, "cpu_bottleneck", "downgraded")
    again.await_applied(again.upload(until_minute=1.3))

    fate = read_fate(emulator.client("cloudformation"), NAME)
    for name in fate.buckets:
        empty(emulator.client("s3"), name)
    plain.delete()
    bucket.delete()
    with deleting():
        ssm.delete_parameters(Names=[outputs["StopSwitchOverrideParameter"], *own])
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
        live=(first, second),
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
        kept=tuple(kept),
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


def test_upgrade_publishes_what_the_queue_calls(life: Life) -> None:
    first, second = life.live
    assert (first["MemorySize"], second["MemorySize"]) == (1536, 1792)
    assert (first["Version"], second["Version"]) == ("$LATEST", "1")
    assert ({first["Layers"][0]["Arn"]}, {second["Layers"][0]["Arn"]}) == life.layers


def test_downgrade_keeps_jobs_rows_brakes_and_settings(life: Life) -> None:
    upgraded, downgraded = life.kept
    assert upgraded == downgraded
    assert list(upgraded[-1].values()) == [BRAKE, OWN_SETTINGS]
    assert upgraded[1][RULE]["TimesFired"] == 1


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
