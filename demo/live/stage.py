"""Sets the stage: the emulator, the stack deployed into it, a subscriber to its alerts, and training jobs."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from demo.live.feed import JobFeed
from emulator import commands
from emulator.deploy import deploy
from emulator.install import install
from emulator.launch import Emulator, running_emulator

T = TypeVar("T")

STOP_TAG = {"Key": "trainguard:stop-on-fire", "Value": "allowed"}

_ROOT = Path(__file__).resolve().parents[2]

_READS = {
    "cloudformation": "list_stacks",
    "cloudwatch": "describe_alarms",
    "dynamodb": "list_tables",
    "events": "list_rules",
    "iam": "list_roles",
    "lambda": "list_functions",
    "logs": "describe_log_groups",
    "sagemaker": "list_training_jobs",
    "sns": "list_topics",
    "sqs": "list_queues",
    "ssm": "describe_parameters",
    "stepfunctions": "list_state_machines",
}

# Takes a phase, and its seconds.
Notified = Callable[[str, float], None]


class StageError(RuntimeError):
    """The stage cannot be set; the message says what failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The stack as it is deployed; ``alert_queue`` is the URL of a queue that gets the alerts."""

    emulator: Emulator
    outputs: Mapping[str, str]
    alert_queue: str

    @property
    def bucket(self) -> str:
        return self.outputs["ProfilerOutputUri"].removeprefix("s3://").rstrip("/")

    def create_training_job(
        self, feed: JobFeed, *, may_be_stopped: bool, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create the training job of ``feed``; ``settings`` are parameters of rules, ``<Rule>_<parameter>``."""
        tags = [{"Key": f"trainguard:{name}", "Value": value} for name, value in (settings or {}).items()]
        self.emulator.client("sagemaker").create_training_job(
            TrainingJobName=feed.job,
            AlgorithmSpecification={"TrainingInputMode": "File", "TrainingImage": "pytorch-training"},
            RoleArn=f"arn:aws:iam::{self.emulator.account}:role/training",
            OutputDataConfig={"S3OutputPath": f"s3://{self.bucket}"},
            ResourceConfig={"InstanceType": feed.instance_type, "InstanceCount": feed.nodes, "VolumeSizeInGB": 200},
            StoppingCondition={"MaxRuntimeInSeconds": 86_400},
            ProfilerConfig={
                "S3OutputPath": f"s3://{self.bucket}",
                "ProfilingIntervalInMilliseconds": feed.interval_ms,
            },
            Tags=[*tags, STOP_TAG] if may_be_stopped else tags,
        )


@contextmanager
def deployment(folder: Path, *, lambda_python: Path, minute_s: float, on_phase: Notified) -> Iterator[Deployment]:
    """Run the emulator with the stack deployed, for the time of a ``with`` block.

    ``minute_s`` is seconds between two scheduler runs. What an earlier run left in ``folder`` is replaced or used
    again. Raises EmulatorError when the emulator or the stack cannot be set up; StageError when the template cannot be
    written.
    """
    # The assembly stays from run to run: the command line keeps the archives of its assets in it.
    assembly = folder / "cdk.out"
    for stale in (folder / "emulator", folder / "home"):
        shutil.rmtree(stale, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1) as pool:
        synthesis = pool.submit(_timed, lambda: synthesise(assembly))
        _, took_s = _timed(install)
        on_phase("emulator installed", took_s)
        began_s = time.monotonic()
        with running_emulator(
            state_dir=folder / "emulator", lambda_python=lambda_python, log=folder / "localstack.log", minute_s=minute_s
        ) as emulator:
            on_phase(f"{emulator.version} started at {emulator.endpoint}", time.monotonic() - began_s)
            wake(emulator)
            on_phase("template synthesised in parallel", synthesis.result()[1])
            outputs, took_s = _timed(lambda: deploy(emulator, assembly=assembly, home=folder / "home"))
            on_phase("stack deployed", took_s)
            queue = subscribe(emulator, outputs["AlertTopicArn"])
            yield Deployment(emulator=emulator, outputs=outputs, alert_queue=queue)


def synthesise(
    assembly: Path, *, context: Mapping[str, object] | None = None, root: Path = _ROOT, app: str = "infra.app"
) -> None:
    """Write the template that goes to AWS, with the overlay for an emulator, in a process of its own.

    Importing CDK takes a second, in which the emulator can start. Raises StageError.
    """
    on_phase = {
        "CDK_OUTDIR": str(assembly.resolve()),
        "CDK_CONTEXT_JSON": json.dumps({"emulator": "true", **(context or {})}),
    }
    done = commands.run([sys.executable, "-m", app], environment={**os.environ, **on_phase}, folder=root)
    if done.returncode != 0:
        raise StageError(f"python -m {app} ended with {done.returncode}:\n{done.stderr.strip()[-3000:]}")
    _drop_stale_assets(assembly)


def _drop_stale_assets(assembly: Path) -> None:
    """Delete the assets that earlier assemblies in this folder had, and their archives: each layer takes 70 MB."""
    for listing in assembly.glob("*.assets.json"):
        current = set(json.loads(listing.read_text(encoding="utf-8"))["files"])
        for copy in assembly.glob("asset.*"):
            if copy.name.partition(".")[2].partition(".")[0] not in current:
                shutil.rmtree(copy)
        for archive in (assembly / ".cache").glob("*.zip"):
            if archive.stem not in current:
                archive.unlink()


def wake(emulator: Emulator) -> None:
    """Let the emulator load the services of the stack, which it does at the first request to each."""
    for service, read in _READS.items():
        getattr(emulator.client(service), read)()


def subscribe(emulator: Emulator, topic: str, queue: str = "trainguard-alerts") -> str:
    """Subscribe a queue to a topic, raw as a machine wants it, and return the queue's URL."""
    sqs = emulator.client("sqs")
    url: str = sqs.create_queue(QueueName=queue)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    emulator.client("sns").subscribe(
        TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"}
    )
    return url


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began_s = time.monotonic()
    return work(), time.monotonic() - began_s
