"""The policy of the command line: every action that the reading commands use, and no other."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.client import BaseClient
from moto import mock_aws
from typer.testing import CliRunner

from tests.functional.cli import doctor_account, doctor_stack, healthy_answers
from tests.functional.cli.doctor_account import Account, endpoint
from tests.functional.offline import REGION, offline_clients
from tests.functional.tables import BOOKKEEPING, JOBS, NODE_STATE, RULE_STATE
from tests.functional.worlds import BUCKET, MotoUnderTest
from trainguard.aws.endpoints import GATEWAY_SERVICES, INTERFACE_SERVICES
from trainguard.cli.main import app
from trainguard.cli.services.deployment import Deployment
from trainguard.core.finding import Finding
from trainguard.core.records import JobRecord, RuleRow, Status, StreamKey, StreamRecord
from trainguard.engine.profiler.system_stream import SystemState
from trainguard.state.codec import CODEC, encode_state

POLICY = Path(__file__).parents[4] / "examples" / "cli_policy.json"
JOB = "resnet50"
# Operations whose action has another name.
ACTIONS = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "s3:GetBucketNotificationConfiguration": "s3:GetBucketNotification",
    "s3:GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "stepfunctions:DescribeStateMachine": "states:DescribeStateMachine",
    "stepfunctions:ListExecutions": "states:ListExecutions",
}

READS = re.compile(r"[a-z0-9]+:(Get|List|Describe|Query|Scan|Test|Simulate)[A-Za-z]*")


def policy() -> Any:
    """Return the policy that the page on the command line gives."""
    return json.loads(POLICY.read_text("utf-8"))


def allowed() -> set[str]:
    return {action for statement in policy()["Statement"] for action in statement["Action"]}


class Recorder:
    """The actions that were used."""

    def __init__(self) -> None:
        self.actions: set[str] = set()

    def add(self, service: str, operation: str) -> None:
        asked = f"{service}:{operation}"
        self.actions.add(ACTIONS.get(asked, asked))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    make_call = BaseClient._make_api_call  # type: ignore[attr-defined]  # the one door of every client

    def recorded(client: Any, operation: str, given: Any) -> Any:
        recorder.add(client.meta.service_model.service_name, operation)
        return make_call(client, operation, given)

    monkeypatch.setattr(BaseClient, "_make_api_call", recorded)
    return recorder


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Deploy stores with one job whose rule fired, and its report."""
    outputs = {"JobsTable": JOBS, "NodeStateTable": NODE_STATE, "RuleStateTable": RULE_STATE}
    outputs |= {"BookkeepingTable": BOOKKEEPING}
    deployment = Deployment(
        stack="TrainGuard",
        status="CREATE_COMPLETE",
        region=REGION,
        partition="aws",
        account="1",
        outputs=outputs,
        clients=offline_clients(),
    )
    monkeypatch.setattr("trainguard.cli.services.deployment.find_deployment", lambda _: deployment)
    with mock_aws():
        world = MotoUnderTest(offline_clients())
        world.jobs.register(JobRecord(job=JOB, arn="arn", bucket=BUCKET, prefix=""))
        state = encode_state(SystemState())
        world.nodes.save(StreamRecord(StreamKey(JOB, "algo-1", "system"), state=state, codec=CODEC))
        world.rows.publish(
            [RuleRow(job=JOB, finding=Finding(rule="BatchSize", node=None, reason="all is well"), status=Status.OK)]
        )
        world.objects.put(BUCKET, f"{JOB}/rule-output/TrainGuardReport/report.html", b"<html>", "text/html")
        yield


def test_published_policy_allows_only_reads() -> None:
    assert policy()["Version"] == "2012-10-17"
    assert {statement["Effect"] for statement in policy()["Statement"]} == {"Allow"}
    assert [action for action in sorted(allowed()) if not READS.fullmatch(action)] == []


@pytest.mark.parametrize(
    "words",
    [
        ["jobs"],
        ["jobs", "--active", "--fired"],
        ["status"],
        ["status", JOB, "--nodes"],
        ["explain", JOB, "BatchSize"],
        ["open", JOB],
        ["params", "BatchSize", "--job", JOB],
        ["report", JOB],
    ],
)
def test_commands_use_no_action_beyond_the_policy(
    deployed: None, recorder: Recorder, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code in {0, 3}, result.output  # 3: a report of a job of which nothing could be evaluated
    assert recorder.actions
    assert recorder.actions <= allowed()


def test_doctor_uses_every_action_of_the_policy(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    account.encrypt_bucket(healthy_answers.KEY)
    kinds = dict.fromkeys(GATEWAY_SERVICES, "Gateway") | dict.fromkeys(INTERFACE_SERVICES, "Interface")
    account.place_in_vpc(routes=[], endpoints=[endpoint(service, kind) for service, kind in kinds.items()])
    doctor_account.install(account)
    monkeypatch.setattr("trainguard.cli.services.deployment.Session", lambda **_: doctor_account.session())
    result = CliRunner().invoke(app, ["doctor", "--region", doctor_stack.REGION, "--job", JOB])
    assert result.exit_code == 0, result.output
    named_on_failure = {"cloudformation:ListStacks"}
    assert recorder.actions - {"sts:GetCallerIdentity"} == allowed() - named_on_failure
