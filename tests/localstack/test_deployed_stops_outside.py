"""The deployed stack stops what a job outside SageMaker runs on, after its warning, and only with its owner's tags."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.localstack.stack import Job, Stack
from tests.localstack.test_deployed_stack import FIRES_BY_MINUTE, RULE
from tests.localstack.test_deployed_stops import heard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack

ALLOWED = "trainguard:stop-on-fire"


class OutsideJob(Job):
    """A job that SageMaker does not know; its profile begins when its resource has started.

    A resource that started after the profile is another run's, and no wrong clock may be ahead by more than 300 s: the
    profile begins in the current minute, and the rule fires before its fifth is over.
    """

    def __init__(self, stack: Stack, name: str, resources: Mapping[str, Any], **settings: str) -> None:
        self._resources = resources
        super().__init__(stack, "cpu_bottleneck", name, start=int(time.time()) // 60 * 60, allowed=True, tags=settings)

    def _create(self, allowed: bool, settings: Mapping[str, str]) -> None:
        self._file = {"name": self.name, "settings": {**settings}, "resources": self._resources}
        self._write("InProgress")

    def finish(self, status: str = "Completed") -> None:
        self._write(status)

    def _write(self, status: str) -> None:
        body = json.dumps({**self._file, "status": status})
        self._s3.put_object(Bucket=self.stack.deployment.bucket, Key=f"{self.name}/job.json", Body=body)


class Batch:
    """A job of AWS Batch."""

    def __init__(self, emulator: Emulator, tags: Mapping[str, str]) -> None:
        self._client = emulator.client("batch")
        self.id = self._client.submit_job(jobName="train", jobQueue="gpus", jobDefinition="train:1", tags=tags)["jobId"]
        self.named = {"batch_job": self.id}

    def untag(self) -> None:
        self._client.untag_resource(resourceArn=self._described()["jobArn"], tagKeys=[ALLOWED])

    @property
    def runs(self) -> bool:
        return not self._described().get("isTerminated")

    def _described(self) -> dict[str, Any]:
        (job,) = self._client.describe_jobs(jobs=[self.id])["jobs"]
        return dict(job)


class Instances:
    """Two instances of EC2."""

    def __init__(self, emulator: Emulator, tags: Mapping[str, str]) -> None:
        self._client = emulator.client("ec2")
        image = self._client.describe_images()["Images"][0]["ImageId"]
        held = [{"Key": name, "Value": value} for name, value in tags.items()]
        made = self._client.run_instances(
            ImageId=image, MinCount=2, MaxCount=2, TagSpecifications=[{"ResourceType": "instance", "Tags": held}]
        )
        self._ids = [each["InstanceId"] for each in made["Instances"]]
        self.named = {"instances": self._ids}

    def untag(self) -> None:
        self._client.delete_tags(Resources=self._ids[1:], Tags=[{"Key": ALLOWED}])

    @property
    def runs(self) -> bool:
        found = self._client.describe_instances(InstanceIds=self._ids)["Reservations"]
        return all(each["State"]["Name"] == "running" for held in found for each in held["Instances"])


KINDS = [pytest.param(Batch, id="batch"), pytest.param(Instances, id="ec2")]


def named(make: Any, job: str) -> str:
    return f"{make.__name__.lower()}-{job}"


def tags_of(job: str, **more: str) -> dict[str, str]:
    return {ALLOWED: "allowed", "trainguard:job": job, **more}


def test_only_what_has_consent_is_stopped_after_its_warning(stack: Stack) -> None:
    """Both kinds, with consent and without, at once: what is stopped waits for the end of its warning."""
    checks = [partial(check, stack, make) for make in (Batch, Instances) for check in (stopped, untagged)]
    with ThreadPoolExecutor(len(checks)) as pool:
        for done in [pool.submit(check) for check in checks]:
            done.result()


def untagged(stack: Stack, make: Any) -> None:
    runs_on(stack, make, "untagged", "has not opted in")


def stopped(stack: Stack, make: Any) -> None:
    name = named(make, "stopped")
    resource = make(stack.emulator, tags_of(name))
    job = OutsideJob(stack, name, resource.named)
    job.upload(until_minute=FIRES_BY_MINUTE)
    warning = heard(job, "warning")
    assert resource.runs
    outcome = heard(job, "fire")
    row = job.await_row(RULE, StopDecision="stop", StopMade=True, AlertId=None)

    assert not resource.runs
    assert (warning["stop"]["decision"], warning["stop"]["made"]) == ("grace", False)
    assert "save a checkpoint" in warning["stop"]["why"]
    assert (outcome["stop"]["made"], row["StopFireId"]) == (True, row["FireId"])
    job.end()
    (execution,) = job.fires(RULE)
    assert (execution.status, execution.cause) == ("SUCCEEDED", "")


@pytest.mark.thorough
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    ("refused", "why"),
    [
        ("exempt", "is exempt by its tag"),
        ("another", "expected '"),
        ("dry", "its owner asked for a dry run"),
    ],
)
def test_resource_without_consent_runs_on(stack: Stack, make: Any, refused: str, why: str) -> None:
    runs_on(stack, make, refused, why)


def runs_on(stack: Stack, make: Any, refused: str, why: str) -> None:
    name = named(make, refused)
    tags = {
        "untagged": {"trainguard:job": name},
        "exempt": tags_of(name, **{"trainguard:stop-exempt": "yes"}),
        "another": tags_of("another"),
        "dry": tags_of(name),
    }[refused]
    resource = make(stack.emulator, tags)
    job = OutsideJob(stack, name, resource.named, **({"stop-dry-run": "true"} if refused == "dry" else {}))
    job.upload(until_minute=FIRES_BY_MINUTE)
    alert = heard(job, "fire")
    row = job.await_row(RULE, StopDecision="dry-run" if refused == "dry" else "refused", AlertId=None)

    assert resource.runs
    assert why in row["StopWhy"]
    assert (alert["stop"]["made"], alert["stop"]["why"]) == (False, row["StopWhy"])
    job.end()


@pytest.mark.thorough
@pytest.mark.parametrize("make", KINDS)
def test_tag_removed_after_the_warning_keeps_all_running(stack: Stack, make: Any) -> None:
    name = named(make, "spared")
    resource = make(stack.emulator, tags_of(name))
    job = OutsideJob(stack, name, resource.named)
    job.upload(until_minute=FIRES_BY_MINUTE)
    heard(job, "warning")
    resource.untag()
    heard(job, "fire")
    row = job.await_row(RULE, StopDecision="refused", AlertId=None)

    assert resource.runs
    assert "has not opted in" in row["StopWhy"]
    job.end()
