"""The policy in docs/cli.md: every action that the reading commands use, and no other."""

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
from tests.functional.cli.doctor_account import Account
from tests.functional.offline import REGION, offline_clients
from tests.functional.tables import JOBS, NODE_STATE, RULE_STATE
from tests.functional.worlds import BUCKET, MotoUnderTest
from trainguard.adapters.clients import Clients
from trainguard.cli.main import app
from trainguard.cli.services.deployment import Deployment
from trainguard.families.profiler.system_stream import SystemState
from trainguard.finding import Finding
from trainguard.records import JobRecord, NodeRecord, RuleRow, Status, StreamKey
from trainguard.state.codec import CODEC, encode_state

PAGE = Path(__file__).parents[4] / "docs" / "cli.md"
JOB = "resnet50"
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
"""Operations whose action has another name."""

READS = re.compile(r"[a-z0-9]+:(Get|List|Describe|Query|Scan|Test|Simulate)[A-Za-z]*")


def policy() -> Any:
    """Return the first JSON document of the page's section on permissions."""
    section = PAGE.read_text("utf-8").partition("\n## Permissions\n")[2]
    return json.loads(section.partition("```json\n")[2].partition("```")[0])


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
    """Deploy stores with one job whose rule rang, and its report."""
    outputs = {"JobsTable": JOBS, "NodeStateTable": NODE_STATE, "RuleStateTable": RULE_STATE}
    deployment = Deployment(
        stack="TrainGuard", status="CREATE_COMPLETE", region=REGION, partition="aws", account="1", outputs=outputs
    )

    def found(*_: object) -> tuple[Deployment, Clients]:
        return deployment, offline_clients()

    monkeypatch.setattr("trainguard.cli.services.deployment.find_deployment", found)
    with mock_aws():
        world = MotoUnderTest(offline_clients())
        world.jobs.register(JobRecord(job=JOB, arn="arn", bucket=BUCKET, prefix=""))
        state = encode_state(SystemState())
        world.nodes.save(NodeRecord(StreamKey(JOB, "algo-1", "system"), state=state, codec=CODEC))
        world.rows.publish(
            [RuleRow(job=JOB, finding=Finding(rule="BatchSize", node=None, reason="all is well"), status=Status.OK)]
        )
        world.objects.put(BUCKET, f"{JOB}/rule-output/TrainGuardReport/report.html", b"<html>", "text/html")
        yield


def test_given_the_page_when_its_policy_is_read_then_it_allows_reads_alone() -> None:
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
def test_given_the_policy_when_a_command_runs_then_it_uses_no_other_action(
    deployed: None, recorder: Recorder, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code in {0, 3}, result.output  # 3: a report of a job of which nothing could be evaluated
    assert recorder.actions
    assert recorder.actions <= allowed()


def test_given_the_policy_when_the_doctor_examines_a_stack_and_a_job_then_it_uses_all_of_it(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account()
    account.encrypt_bucket(healthy_answers.KEY)
    doctor_account.install(account)
    monkeypatch.setattr("trainguard.cli.services.deployment.Session", lambda **_: doctor_account.session())
    result = CliRunner().invoke(app, ["doctor", "--region", doctor_stack.REGION, "--job", JOB])
    assert result.exit_code == 0, result.output
    named_on_failure = {"cloudformation:ListStacks"}
    assert recorder.actions - {"sts:GetCallerIdentity"} == allowed() - named_on_failure
