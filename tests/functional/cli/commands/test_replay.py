"""`trainguard replay`: rows beside the live job's, what would have changed, and nothing else done."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict
from typer.testing import CliRunner, Result

from tests.support.deployed_stack import PREFIX, DeployedStack, deployed_stack
from tests.support.faults import Crash
from tests.support.memory import MemoryWorld
from tests.support.small_job import BUCKET, JOB, SETTINGS, START, describe
from tests.unit.local.places import write
from trainguard.aws.dynamodb.stored_form import stored_job, stored_row
from trainguard.cli.commands.replay.stored_replay import (
    REPLAYED,
    REPLAYING,
    JudgedReplay,
    Subject,
    changes,
    judge,
    store,
)
from trainguard.cli.main import app
from trainguard.cli.output.progress import stderr_progress
from trainguard.cli.services.deployment import Stores
from trainguard.core.errors import PortUnavailableError, RequestError
from trainguard.core.finding import Finding
from trainguard.core.ports import Timing
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.reconcile import scheduler_at_once
from trainguard.engine.settings.tag_names import STOP_ALLOWED, STOP_TAG
from trainguard.engine.streams.session import RETENTION_S
from trainguard.local.profile import read_profile
from trainguard.local.sources import open_folder
from trainguard.rules.parameters import overridden, resolve_parameters

NAME = f"{JOB}@replay-again"
NOW = 1_800_000_000.0
READS = {("cloudformation", "DescribeStacks"), ("dynamodb", "GetItem"), ("dynamodb", "Query")}
READS |= {("s3", "ListObjectsV2"), ("s3", "GetObject")}
WRITES = {("dynamodb", "PutItem"), ("dynamodb", "UpdateItem")}


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DeployedStack]:
    monkeypatch.chdir(tmp_path)
    with deployed_stack(monkeypatch) as deployed:
        yield deployed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("profiles"))


def replay(*words: object) -> Result:
    return CliRunner().invoke(app, ["replay", *(str(word) for word in words)])


def told(*words: object) -> dict[str, Any]:
    result = replay(*words, "--json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.stderr.split("\n") == [*document["notes"], ""]
    return document


def params(document: object) -> Path:
    file = Path("params.json")
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def job_rows(rows: list[RuleRow]) -> dict[str, RuleRow]:
    return {row.rule: row for row in rows if row.node is None}


def test_replay_by_its_own_rules_changes_nothing(stack: DeployedStack) -> None:
    stack.live_job()
    document = told(JOB, "--as", "again")
    assert (document["job"], document["replay_of"], document["changed"]) == (NAME, JOB, [])
    assert "LowGPUUtilization" in document["fired"]
    rows = stack.connection.stores.rows
    live = {row.target: replace(row, job=NAME, expires_at=None) for row in rows.of_job(JOB)}
    assert {row.target: replace(row, expires_at=None) for row in rows.of_job(NAME)} == live
    assert {row.node for row in rows.of_job(NAME)} == {None, "algo-1", "algo-2"}


def test_replayed_item_is_closed_and_names_what_it_is(stack: DeployedStack) -> None:
    live = stack.live_job({**SETTINGS, STOP_TAG: STOP_ALLOWED}).job
    assert live.stop_allowed
    told(JOB, "--as", "again")
    jobs = stack.connection.stores.jobs
    item = jobs.load(NAME)
    assert item is not None
    assert (item.status, item.secondary_status) == (JobStatus.COMPLETED, REPLAYED)
    assert (item.active, item.stop_allowed, item.bucket, item.prefix) == (False, False, BUCKET, PREFIX)
    assert (item.instance_type, item.started_at, item.rule_settings) == (
        live.instance_type,
        live.started_at,
        live.rule_settings,
    )
    assert item.last_object_at is not None
    assert item.expires_at is not None
    assert item.expires_at >= START + RETENTION_S
    assert {row.expires_at for row in stack.connection.stores.rows.of_job(NAME)} == {item.expires_at}
    assert jobs.active() == []


def test_replay_with_other_parameters_shows_what_changes(stack: DeployedStack) -> None:
    stack.live_job()
    before = stack.connection.stores.rows.of_job(JOB)
    looser = params({"LowGPUUtilization": {"threshold_p95": 5, "threshold_p5": 1}})
    document = told(JOB, "--params", looser)
    assert document["job"].startswith(f"{JOB}@replay-20")
    assert {"LowGPUUtilization", "ProfilerReport"} <= set(document["changed"])
    low = next(each for each in document["changes"] if each["rule"] == "LowGPUUtilization")
    assert (low["then"]["status"], low["now"]["status"]) == ("FIRED", "OK")
    assert low["then"]["times_fired"] == 1
    assert low["now"]["times_fired"] == 0
    now = job_rows(stack.connection.stores.rows.of_job(document["job"]))["LowGPUUtilization"]
    assert (now.parameters["threshold_p95"], now.parameters["window"]) == (5, 20)
    assert stack.connection.stores.rows.of_job(JOB) == before
    shown = replay(JOB, "--params", looser, "--as", "shown").stdout
    assert "FIRED (medium), fired 1 x\tOK\t" in shown
    assert "LowGPUUtilization" in shown


def test_firing_replay_calls_only_tables_and_the_bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with deployed_stack(monkeypatch, tables=True) as stack:
        never = {"threshold_p95": "1", "threshold_p5": "0"}
        tags = {f"trainguard:LowGPUUtilization_{name}": value for name, value in never.items()}
        stack.live_job(tags={"trainguard:stop-on-fire": "allowed", **tags})
        document = told(
            JOB,
            "--params",
            params({"LowGPUUtilization": {"window": 20, "patience": 20, "threshold_p95": 70}}),
            "--report",
        )
        assert "LowGPUUtilization" in document["changed"]
        assert set(stack.calls) == READS | WRITES | {("s3", "PutObject")}
        rows = stack.connection.stores.rows.of_job(document["job"])
        assert {(row.fire_id, row.action, row.alert_id, row.report_uri) for row in rows} == {(None, None, None, None)}


def test_replay_command_imports_nothing_that_could_act() -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from trainguard.cli.main import app\n"
        "assert CliRunner().invoke(app, ['replay', './nothing-here']).exit_code == 2; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "trainguard.aws.dynamodb.rule_states" in loaded
    acting = {"stepfunctions", "sagemaker", "sqs", "ssm", "stop_calls", "wiring"}
    assert loaded.isdisjoint(f"trainguard.aws.{name}" for name in acting)
    assert loaded.isdisjoint({"trainguard.stack.actions.stop", "trainguard.stack.actions.alert"})


def test_requested_bucket_report_lies_beside_the_live_ones(
    stack: DeployedStack,
) -> None:
    stack.live_job()
    document = told(JOB, "--as", "again", "--report")
    place = f"{PREFIX}{NAME}/rule-output/TrainGuardReport/"
    assert document["report_uri"] == f"s3://{BUCKET}/{place}report.html"
    page = stack.clients.s3.get_object(Bucket=BUCKET, Key=f"{place}report.html")
    assert page["ContentType"].startswith("text/html")
    assert page["Body"].read() == Path(f"{NAME}-report/report.html").read_bytes()
    report = json.loads(stack.clients.s3.get_object(Bucket=BUCKET, Key=f"{place}report.json")["Body"].read())
    assert (report["job"]["name"], report["scope"]) == (NAME, "full")


def test_report_is_written_locally_without_the_bucket_option(
    stack: DeployedStack,
) -> None:
    stack.live_job()
    before = stack.clients.s3.list_objects_v2(Bucket=BUCKET)["KeyCount"]
    document = told(JOB, "--as", "again", "--out", "mine")
    assert (document["report_uri"], document["page"]) == (None, "mine/report.html")
    assert stack.clients.s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == before
    assert sorted(Path("mine").rglob("*.*")) == sorted(Path("mine") / name for name in document["files"])


def test_replayed_folder_is_compared_with_its_live_job(stack: DeployedStack, folder: Path) -> None:
    stack.live_job()
    document = told(folder, "--as", "again")
    assert (document["replay_of"], document["changed"], document["notes"]) == (JOB, [], [])
    item = stack.connection.stores.jobs.load(NAME)
    assert item is not None
    assert (item.bucket, item.prefix) == ("", "")


def test_replayed_folder_of_an_unknown_job_has_no_comparison(stack: DeployedStack, folder: Path) -> None:
    result = replay(folder, "--as", "again")
    assert result.exit_code == 0
    assert f"The stack does not know job {JOB}" in result.stderr
    assert "What the rules say now" in result.stdout
    item = stack.connection.stores.jobs.load(NAME)
    assert item is not None
    assert (item.arn, item.status, item.active) == (f"unknown:{JOB}", JobStatus.COMPLETED, False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-job"], "no-such-job"),
        ([NAME], "is a replay itself. Replay small-job instead."),
        ([JOB, "--as", "a/b"], "cannot be called 'a/b'"),
        ([JOB, "--as", ""], "cannot be called ''"),
        ([JOB, "--params", "nowhere.json"], "nowhere.json"),
        (["s3://nowhere-at-all/x"], "NoSuchBucket"),
        ([f"s3://{BUCKET}/{PREFIX}"], "holds 2 profiles"),
        ([JOB, "--stack", "Other"], "has no stack Other"),
    ],
)
def test_unreplayable_input_is_refused_and_nothing_written(stack: DeployedStack, words: list[str], said: str) -> None:
    stack.live_job()
    stack.clients.s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}b/profiler-output/system/training_job_end.ts", Body=b"")
    stack.calls.clear()
    result = replay(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.split())
    assert {each.job for each in stack.connection.stores.jobs.all()} == {JOB}


def test_replay_of_an_unknown_rule_is_refused(stack: DeployedStack) -> None:
    stack.calls.clear()
    result = replay(JOB, "--params", params({"NoSuchRule": {"patience": 1}}))
    assert (result.exit_code, stack.calls) == (2, [])
    assert "NoSuchRule" in result.stderr


def test_bucket_report_of_a_folder_is_refused_before_judging(stack: DeployedStack, folder: Path) -> None:
    result = replay(folder, "--report")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no job's folder in a bucket" in " ".join(result.stderr.split())
    assert list(stack.connection.stores.jobs.all()) == []


def test_taken_replay_name_keeps_the_first(stack: DeployedStack) -> None:
    stack.live_job()
    told(JOB, "--as", "again")
    before = stack.connection.stores.rows.of_job(NAME)
    result = replay(JOB, "--as", "again", "--params", params({"rule_to_invoke": "BatchSize"}))
    assert result.exit_code == 2
    assert f"there is a replay {NAME} already" in result.stderr
    assert stack.connection.stores.rows.of_job(NAME) == before


def test_exit_code_shows_fires_only_on_request(stack: DeployedStack) -> None:
    stack.live_job()
    assert replay(JOB, "--as", "one").exit_code == 0
    assert replay(JOB, "--as", "two", "--fail-on-fire").exit_code == 1


def a_replay(folder: Path, name: str = NAME) -> JudgedReplay:
    """Judge the small job's folder, of which the stack knows nothing."""
    subject = Subject(profile=read_profile(open_folder(str(folder))), job=JOB, live=None, rows=())
    settings = {"LowGPUUtilization_window": "20", "LowGPUUtilization_patience": "20"}
    return judge(name, subject, stderr_progress(shown=False), settings=settings, prices=None, now=NOW)[1]


def stores_of(world: MemoryWorld) -> Stores:
    return Stores(
        jobs=world.jobs,
        nodes=world.nodes,
        rows=world.rows,
        bookkeeping=world.bookkeeping,
        objects=world.objects,
        alerts=world.alerts,
    )


def test_replay_interrupted_anywhere_is_not_finished(folder: Path) -> None:
    made, published = a_replay(folder), [False]

    def publish() -> None:
        published[0] = True

    whole = MemoryWorld()
    store(made, stores_of(whole), publish)
    calls = len(whole.faults.calls)
    assert published == [True]
    assert calls == len(made[1]) + 2
    for done in range(calls):
        world = MemoryWorld()
        world.faults.crash_after(done)
        with pytest.raises(Crash):
            store(made, stores_of(world), publish)
        item = world.jobs._records.get(NAME)
        finished = item is not None and item.status.is_final
        assert not finished or done == calls
        if item is not None and not finished:
            assert (item.status, item.secondary_status, item.active) == (JobStatus.UNKNOWN, REPLAYING, False)
            assert item.expires_at is not None
    item = whole.jobs.load(NAME)
    assert item == stored_job(made[0])
    assert whole.rows.of_job(NAME) == sorted(map(stored_row, made[1]), key=lambda row: row.target)


def test_replay_with_an_unpublished_report_is_not_finished(folder: Path) -> None:
    world = MemoryWorld()

    def publish() -> None:
        raise PortUnavailableError("S3", "PutObject", "denied")

    with pytest.raises(PortUnavailableError):
        store(a_replay(folder), stores_of(world), publish)
    item = world.jobs.load(NAME)
    assert item is not None
    assert (item.status, item.secondary_status) == (JobStatus.UNKNOWN, REPLAYING)


def test_rows_of_a_concurrent_replay_of_the_name_are_kept(
    folder: Path,
) -> None:
    world, made = MemoryWorld(), a_replay(folder)
    world.jobs.register(replace(made[0], rule_settings={}))
    with pytest.raises(RequestError, match="already"):
        store(made, stores_of(world), lambda: None)
    assert world.rows.of_job(NAME) == []


def test_replay_is_not_reconciled_by_the_scheduler(folder: Path) -> None:
    world = MemoryWorld()
    store(a_replay(folder), stores_of(world), lambda: None)
    before = (world.jobs.load(NAME), world.rows.of_job(NAME))
    assert any(row.status is Status.FIRED for row in before[1])
    timing = Timing(now=lambda: NOW + 60.0, pause=lambda _: None, has_time=lambda: True)
    outcome = scheduler_at_once(services=world.services, timing=timing, families=FAMILIES).run()
    assert outcome == (0, {})
    assert (world.jobs.load(NAME), world.rows.of_job(NAME)) == before
    assert world.executions.started == {}
    assert world.nodes.of_job(NAME) == []


def test_other_commands_know_a_replay_by_name(stack: DeployedStack) -> None:
    stack.live_job()
    told(JOB, "--as", "again", "--report")
    for words in (["jobs"], ["status", NAME], ["explain", NAME, "LowGPU"], ["open", NAME, "--print"]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.stderr
        assert "small-job" in result.stdout
    assert NAME in CliRunner().invoke(app, ["jobs"]).stdout


def test_replaced_settings_have_one_value_per_parameter() -> None:
    own = {
        "lowgpuutilization_PATIENCE": "20",
        "StepOutlier_stddev": "4",
        "LowGPUUtilization_window": "9",
        "No_such": "1",
    }
    given = {"LowGPUUtilization_patience_s": "60", "stepoutlier_stddev": "5"}
    replaced = overridden(own, given)
    assert replaced == {"LowGPUUtilization_window": "9", "No_such": "1", **given}
    parameters, faults = resolve_parameters(replaced)
    assert set(faults) == {"No"}
    assert asdict(parameters["StepOutlier"])["stddev"] == 5
    assert overridden(own, {}) == own


def test_changed_rows_come_first_in_a_comparison() -> None:
    def row(rule: str, status: Status, *, fired: int = 0, node: str | None = None) -> RuleRow:
        return RuleRow("job", Finding(rule, node, "Because."), status, times_fired=fired)

    then = [row("A", Status.OK), row("B", Status.OK), row("C", Status.OK, fired=1), row("A", Status.OK, node="algo-1")]
    now = [
        row("A", Status.OK),
        row("B", Status.FIRED, fired=1),
        row("C", Status.OK),
        row("D", Status.FIRED, fired=1),
        row("B", Status.OK, node="algo-1"),
    ]
    compared = changes(then, now)
    assert [(new.rule, changed) for changed, _, new in compared] == [
        ("B", True),
        ("C", True),
        ("A", False),
        ("D", False),
    ]
    assert compared[-1][1] is None


def test_replay_of_an_open_job_says_so(stack: DeployedStack) -> None:
    stack.upload()
    own = JobRecord(JOB, describe().arn, BUCKET, PREFIX, JobStatus.IN_PROGRESS, active=True)
    stack.connection.stores.jobs.register(own)
    stack.connection.stores.rows.publish([RuleRow(JOB, Finding("BatchSize", None, "Fine."), Status.OK)])
    document = told(JOB, "--as", "again")
    assert "is not closed" in document["notes"][0]
    item = stack.connection.stores.jobs.load(NAME)
    assert item is not None
    assert item.status.is_final
