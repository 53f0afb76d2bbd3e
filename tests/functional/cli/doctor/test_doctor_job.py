"""`trainguard doctor --job`: what is judged of a job's configuration, objects, evaluation and stop."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.sagemaker.models import sagemaker_backends

from tests.functional.offline import REGION, offline_clients
from tests.functional.tables import BOOKKEEPING, JOBS, NODE_STATE, RULE_STATE
from tests.functional.worlds import BUCKET, MotoUnderTest
from trainguard.cli.doctor.diagnosis import JOB_CHECKS
from trainguard.cli.doctor.job import (
    grade_evaluation,
    grade_nodes,
    grade_objects,
    grade_profiler,
    grade_rows,
    grade_settings,
    grade_stop,
)
from trainguard.cli.doctor.job_case import JobCase, SeenProfile
from trainguard.cli.doctor.site import CheckLevel, CheckResult, Site, under_name
from trainguard.cli.services.deployment import Deployment
from trainguard.core.finding import Finding
from trainguard.core.job_policy import JobPolicy, StopPolicy
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status, StreamKey, StreamRecord
from trainguard.formats.profile.keys import system_key
from trainguard.stack.actions.request import StopDecision
from trainguard.stack.actions.stop_switch import StopSwitch
from trainguard.testing.memory import DEFAULT_SETTINGS, SETTINGS_PATH

JOB = "resnet50"
# A full minute.
START = 1_784_024_700

LAST = START + 600
NOW = LAST + 90.0
ROOT = ProfileRoot("runs/", JOB)
PLACE = f"s3://{BUCKET}/runs/{JOB}/profiler-output/"
RECORD = JobRecord(job=JOB, arn="arn", bucket=BUCKET, prefix="runs/", status=JobStatus.IN_PROGRESS, instance_count=2)
SEEN = SeenProfile(
    looked_at=22,
    foreign=[],
    nodes=frozenset({"algo-1", "algo-2"}),
    first_minute=START,
    last_minute=LAST,
    last_modified=LAST + 65.0,
)


def node(name: str, *, watermark_s: float | None = LAST + 60.0, **columns: Any) -> StreamRecord:
    return StreamRecord(StreamKey(JOB, name, "system"), watermark_s=watermark_s, **columns)


BOTH = [node("algo-1"), node("algo-2")]


def row(rule: str, status: Status, reason: str = "it is so") -> RuleRow:
    return RuleRow(job=JOB, finding=Finding(rule=rule, node=None, reason=reason), status=status)


def levels(findings: Iterable[CheckResult]) -> list[CheckLevel]:
    return [finding.level for finding in findings]


@pytest.mark.parametrize(
    ("profiler", "level", "said"),
    [
        ({"S3OutputPath": "s3://profiles/runs", "ProfilingIntervalInMilliseconds": 500}, CheckLevel.OK, "every 500 ms"),
        ({"S3OutputPath": "s3://profiles"}, CheckLevel.OK, "the usual interval"),
        ({"S3OutputPath": "s3://profiles-of-others/runs"}, CheckLevel.FAIL, "listens to profiles"),
        ({"S3OutputPath": "s3://profiles/", "DisableProfiler": True}, CheckLevel.FAIL, "DisableProfiler"),
        ({}, CheckLevel.FAIL, "no ProfilerConfig"),
    ],
)
def test_profiler_configuration_must_write_to_our_bucket(profiler: Any, level: CheckLevel, said: str) -> None:
    finding = grade_profiler(profiler, BUCKET)
    assert finding.level is level
    assert said in finding.found
    assert (finding.advice is None) is (level is CheckLevel.OK)


@pytest.mark.parametrize("profiler", [{}, {"DisableProfiler": True}])
@pytest.mark.parametrize(
    ("place", "level"), [(f"s3://{BUCKET}/runs", CheckLevel.OK), ("s3://others/runs", CheckLevel.FAIL)]
)
def test_place_by_tag_must_be_in_our_bucket(profiler: Any, place: str, level: CheckLevel) -> None:
    finding = grade_profiler(profiler, BUCKET, tagged=place)
    assert finding.level is level
    assert place in finding.found


@pytest.mark.parametrize(
    ("settings", "tags", "expected", "said"),
    [
        ({}, {}, [CheckLevel.OK], "0 settings; 46 rules run"),
        ({"LowGPUUtilization_patience": "9"}, {}, [CheckLevel.OK], "1 setting;"),
        ({"LowGPUUtilization_patience": "many"}, {}, [CheckLevel.FAIL], "LowGPUUtilization_patience is 'many'"),
        ({"NoSuchRule_patience": "1"}, {}, [CheckLevel.FAIL], "NoSuchRule"),
        ({"rule_to_invoke": "LowGPUUtilization"}, {}, [CheckLevel.OK], "33 rules run (rule_to_invoke)"),
        ({}, {"TrainGuard:stop-on-fire": "allowed"}, [CheckLevel.WARN], "'TrainGuard:stop-on-fire' is not read"),
        ({}, {"trainguard:stop-on-fire": "allowed", "trainguards": "own"}, [CheckLevel.OK], "0 settings"),
    ],
)
def test_unreadable_tags_are_named(
    settings: Mapping[str, str], tags: Mapping[str, str], expected: list[CheckLevel], said: str
) -> None:
    found = list(grade_settings(replace(RECORD, rule_settings=settings), tags))
    assert [finding.level for finding in found] == expected
    assert said in found[0].found


@pytest.mark.parametrize(
    ("seen", "status", "now", "level", "said"),
    [
        (SEEN, JobStatus.IN_PROGRESS, NOW, CheckLevel.OK, "the last came 25 s ago, 5 s after its minute"),
        (SEEN, JobStatus.IN_PROGRESS, LAST + 665.0, CheckLevel.OK, "10 min ago"),
        (SEEN, JobStatus.IN_PROGRESS, LAST + 666.0, CheckLevel.WARN, "10 min ago"),
        (SEEN, JobStatus.COMPLETED, LAST + 99_999.0, CheckLevel.OK, "28 h ago"),
    ],
)
def test_silence_of_a_running_job_is_reported(
    seen: SeenProfile, status: JobStatus, now: float, level: CheckLevel, said: str
) -> None:
    (finding,) = grade_objects(seen, replace(RECORD, status=status), PLACE, now)
    assert finding.level is level
    assert said in finding.found


NOTHING = replace(SEEN, looked_at=0, nodes=frozenset(), first_minute=None, last_minute=None, last_modified=None)


@pytest.mark.parametrize(
    ("seen", "status", "level", "said"),
    [
        (NOTHING, JobStatus.IN_PROGRESS, CheckLevel.WARN, f"nothing lies below {PLACE} yet"),
        (NOTHING, JobStatus.COMPLETED, CheckLevel.FAIL, f"nothing lies below {PLACE}"),
        (replace(NOTHING, looked_at=3, foreign=["a/\x1bb", "c"]), JobStatus.IN_PROGRESS, CheckLevel.FAIL, "'a/\\x1bb'"),
        (replace(NOTHING, looked_at=3), JobStatus.IN_PROGRESS, CheckLevel.FAIL, "3 objects below"),
    ],
)
def test_missing_system_metrics_say_what_is_there_instead(
    seen: SeenProfile, status: JobStatus, level: CheckLevel, said: str
) -> None:
    (finding,) = grade_objects(seen, replace(RECORD, status=status), PLACE, NOW)
    assert finding.level is level
    assert said in finding.found


def test_first_key_of_another_kind_is_shown() -> None:
    _, others = grade_objects(replace(SEEN, foreign=["runs/x.txt", "runs/y.txt"]), RECORD, PLACE, NOW)
    assert (others.level, others.found) == (
        CheckLevel.OK,
        "2 of the first 22 keys are of other kinds and not read, the first 'runs/x.txt'",
    )


@pytest.mark.parametrize(
    ("nodes", "expected", "level", "said"),
    [
        ({"algo-1", "algo-2"}, 2, CheckLevel.OK, "2 nodes with system metrics of 2"),
        ({"algo-1"}, None, CheckLevel.OK, "1 node with system metrics"),
        ({"algo-1", "algo-4"}, 4, CheckLevel.WARN, "missing: algo-2, algo-3"),
        (set(), 4, CheckLevel.OK, "0 nodes"),
    ],
)
def test_nodes_that_write_nothing_are_named(
    nodes: set[str], expected: int | None, level: CheckLevel, said: str
) -> None:
    (finding,) = grade_nodes(frozenset(nodes), expected)
    assert finding.level is level
    assert said in finding.found


@pytest.mark.parametrize(
    ("job", "nodes", "seen", "expected", "said"),
    [
        (RECORD, BOTH, SEEN, [CheckLevel.OK], "2 nodes evaluated, 0 s before the newest object"),
        (None, [], NOTHING, [CheckLevel.OK], "nothing to evaluate yet"),
        (None, [], SEEN, [CheckLevel.FAIL], "Jobs has no item of it"),
        (RECORD, [], SEEN, [CheckLevel.FAIL], "no node of it has state"),
        (RECORD, BOTH[:1], SEEN, [CheckLevel.FAIL], "1 node not evaluated: algo-2"),
        (RECORD, [BOTH[0], node("algo-2", watermark_s=LAST - 840.0)], SEEN, [CheckLevel.OK], "15 min before"),
        (
            RECORD,
            [BOTH[0], node("algo-2", watermark_s=LAST - 841.0)],
            SEEN,
            [CheckLevel.FAIL],
            "algo-2 is evaluated until 15 min",
        ),
        (
            RECORD,
            [BOTH[0], node("algo-2", watermark_s=LAST - 9e3, closed=True)],
            SEEN,
            [CheckLevel.OK],
            "2 nodes evaluated",
        ),
        (RECORD, [node("algo-1", watermark_s=None), BOTH[1]], SEEN, [CheckLevel.OK], "2 nodes evaluated"),
        (
            RECORD,
            [BOTH[0], node("algo-2", counters={"duplicates": 9, "bad_objects": 2, "late_objects": 1000})],
            SEEN,
            [CheckLevel.OK, CheckLevel.WARN],
            "not used: 2 bad objects, 1,000 late objects",
        ),
    ],
)
def test_late_or_missing_job_items_are_reported(
    job: JobRecord | None, nodes: list[StreamRecord], seen: SeenProfile, expected: list[CheckLevel], said: str
) -> None:
    found = list(grade_evaluation(job, nodes, seen))
    assert [finding.level for finding in found] == expected
    assert said in found[-1].found


def test_rules_in_error_are_reported_with_their_reason() -> None:
    fine = [row("LowGPUUtilization", Status.FIRED), row("CPUBottleneck", Status.OK), row("Dataloader", Status.OK)]
    (finding,) = grade_rows(fine)
    assert (finding.level, finding.found) == (CheckLevel.OK, "1 FIRED, 2 OK")
    assert levels(grade_rows([])) == [CheckLevel.OK]
    (failed,) = grade_rows([*fine, row("BatchSize", Status.ERROR, "parameter patience is 'x'")])
    assert (failed.level, failed.found) == (CheckLevel.FAIL, "BatchSize is in ERROR: parameter patience is 'x'")


@pytest.mark.parametrize(
    ("decision", "switch", "opted_in", "level"),
    [
        (StopDecision(True, "stop", "why"), "enabled", True, CheckLevel.OK),
        (StopDecision(False, "grace", "why", "2026-07-14T10:40:00Z"), "enabled", True, CheckLevel.OK),
        (StopDecision(False, "refused", "why"), "enabled", False, CheckLevel.OK),
        (StopDecision(False, "dry-run", "why"), "enabled", True, CheckLevel.OK),
        (StopDecision(False, "refused", "why"), "enabled", True, CheckLevel.WARN),
        (StopDecision(False, "dry-run", "why"), "dry-run", True, CheckLevel.WARN),
        (StopDecision(False, "refused", "why"), "disabled", True, CheckLevel.WARN),
    ],
)
def test_only_an_opt_in_without_effect_warns_about_stops(
    decision: StopDecision, switch: str, opted_in: bool, level: CheckLevel
) -> None:
    finding = grade_stop(decision, StopSwitch(switch), opted_in=opted_in)
    assert finding.level is level
    assert "why" in finding.found


def test_foreign_rule_configurations_are_named_with_the_reason() -> None:
    record = replace(RECORD, rules_elsewhere={"VanishingGradient": "a rule on tensors", "Own": "a custom rule"})
    _, elsewhere = grade_settings(record, {})
    said = "2 configured rules not evaluated here: Own: a custom rule; VanishingGradient: a rule on tensors"
    assert (elsewhere.level, elsewhere.found) == (CheckLevel.OK, said)


@pytest.fixture
def world() -> Iterator[MotoUnderTest]:
    with mock_aws():
        clients = offline_clients()
        clients.ssm.put_parameter(Name="/stop", Value="enabled", Type="String")
        yield MotoUnderTest(clients)


def examined(now: float = NOW) -> dict[str, list[CheckResult]]:
    outputs = {
        "ProfilerOutputUri": f"s3://{BUCKET}/",
        "JobsTable": JOBS,
        "NodeStateTable": NODE_STATE,
        "RuleStateTable": RULE_STATE,
        "BookkeepingTable": BOOKKEEPING,
        "StopSwitchParameter": "/stop",
        "StopSwitchOverrideParameter": "/stop-override",
        "DefaultSettingsParameter": DEFAULT_SETTINGS,
        "SettingsPath": SETTINGS_PATH,
    }
    deployment = Deployment(
        stack="TrainGuard",
        status="CREATE_COMPLETE",
        region=REGION,
        partition="aws",
        account="1",
        outputs=outputs,
        clients=offline_clients(),
    )
    case = JobCase(Site(deployment, now=now), JOB)
    return {name: list(under_name(name, judge(case))) for name, judge in JOB_CHECKS}


def put(key: str, at: float) -> None:
    stored = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(BUCKET, key, b"{}")
    stored.last_modified = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)


def upload(minutes: int = 11, nodes: tuple[str, ...] = ("algo-1", "algo-2"), start: int = START) -> None:
    for minute in range(start, start + 60 * minutes, 60):
        for name in nodes:
            put(system_key(ROOT, name, minute), minute + 65.0)


def known(world: MotoUnderTest, tags: Mapping[str, str], profiler: Mapping[str, Any] | None = None) -> None:
    world.create_training_job(JOB, tags)
    job = sagemaker_backends[DEFAULT_ACCOUNT_ID][REGION].training_jobs[JOB]
    given = {"S3OutputPath": f"s3://{BUCKET}/runs", "ProfilingIntervalInMilliseconds": 500}
    vars(job).update(
        profiler_config=given if profiler is None else profiler,
        training_job_status="InProgress",
        secondary_status="Training",
        training_end_time=None,
    )


@pytest.mark.parametrize("stopping", ["BatchSize", "training/TrainingDiverged"])
def test_evaluated_job_is_healthy(world: MotoUnderTest, stopping: str) -> None:
    known(world, {"trainguard:stop-on-fire": "allowed", "trainguard:StepOutlier_stddev": "4"})
    upload()
    described = world.training_jobs.describe(JOB)
    assert described is not None
    only = JobPolicy(stops=StopPolicy(rules=(stopping,)))
    world.jobs.register(replace(RECORD, arn=described.arn, created_at=described.created_at, policy=only))
    for record in BOTH:
        world.nodes.save(record)
    world.rows.publish([row("LowGPUUtilization", Status.OK), row("BatchSize", Status.OK)])
    found = examined()
    assert [finding for each in found.values() for finding in each if finding.level is not CheckLevel.OK] == []
    assert found["training job"][0].found == "InProgress (Training), 2 instances of ml.p4d.24xlarge, 2 tags"
    assert found["profiler"][0].found == "s3://profiles/runs, every 500 ms"
    assert "from 2026-07-14 10:25 UTC to 2026-07-14 10:35 UTC" in found["objects"][0].found
    assert found["nodes"][0].found == "2 nodes with system metrics of 2"
    assert found["evaluation"][0].found.startswith("2 nodes evaluated")
    assert found["rules"][0].found == "2 OK"
    assert found["stop"][0].found.startswith("a fire would stop the job")


def test_missing_notifications_take_the_place_from_sagemaker(
    world: MotoUnderTest,
) -> None:
    known(world, {"trainguard:BatchSize_patience": "none at all"})
    upload(nodes=("algo-2",))
    put(f"{ROOT.system}2026071410/notes.txt", START)
    found = examined()
    assert found["settings"][0].level is CheckLevel.FAIL
    assert found["objects"][0].level is CheckLevel.OK
    assert found["objects"][1].found.startswith("1 of the first 12 keys are of other kinds and not read")
    assert found["nodes"][0].found == "1 of 2 nodes with system metrics, missing: algo-1"
    assert found["evaluation"][0].found == "objects are there and not evaluated: Jobs has no item of it"
    assert (found["stop"][0].level, found["rules"][0].found) == (CheckLevel.OK, "no rule has a result yet")


def test_job_unknown_to_sagemaker_takes_the_place_from_its_item(
    world: MotoUnderTest,
) -> None:
    upload()
    world.jobs.register(RECORD)
    found = examined()
    assert found["training job"][0].level is CheckLevel.WARN
    assert found["profiler"] == []
    assert found["objects"][0].level is CheckLevel.OK
    assert found["evaluation"][0].found == "objects are there and not evaluated: no node of it has state"


def test_job_without_a_profile_says_how_to_start_it(world: MotoUnderTest) -> None:
    known(world, {}, profiler={})
    found = examined()
    assert found["profiler"][0].level is CheckLevel.FAIL
    assert "s3://profiles/" in str(found["profiler"][0].advice)
    assert found["objects"][0].level is CheckLevel.WARN


def test_first_and_last_object_of_a_long_profile_are_found(
    world: MotoUnderTest,
) -> None:
    known(world, {})
    upload(minutes=2_100, nodes=("algo-1",))
    upload(minutes=1, nodes=("algo-9",), start=START + 2_099 * 60)
    found = examined(now=START + 2_100 * 60 + 30.0)
    assert "from 2026-07-14 10:25 UTC to 2026-07-15 21:24 UTC" in found["objects"][0].found
    assert found["nodes"][0].found == "2 nodes with system metrics of 2"
