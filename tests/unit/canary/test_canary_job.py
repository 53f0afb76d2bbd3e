"""The canary as a job of SageMaker's: created once, followed by the real engine, decided on in dry run, ended."""

from dataclasses import replace

import pytest

from tests.support.canary_jobs import ARN, MemoryCanaryJobs
from tests.support.delivery import Network
from tests.support.faults import Fault
from tests.support.late_events import registry
from tests.support.memory import MemoryWorld
from tests.support.small_job import BUCKET, Upload
from trainguard.core.brakes import Braked, BrakeList, new_brake
from trainguard.core.canary_name import canary_name, is_canary, is_marked
from trainguard.core.errors import PortUnavailableError
from trainguard.core.records import JobRecord, JobStatus, RuleRow, StopRecord
from trainguard.engine.jobs.lifecycle import follow_sagemaker
from trainguard.report.fleet.fleet import Fleet
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest, FireInput, StopCase, StopDecision
from trainguard.stack.actions.stop import StopPreconditions, decide_stop
from trainguard.stack.actions.stop_switch import StopSwitches
from trainguard.stack.canary import MINUTES, RULE
from trainguard.stack.canary_job import JobCanary

AT = 1_795_248_037.0
RUN = "6f1c0a52-3a34-4f0e-9d0b-0c2a"
JOB = canary_name(AT, RUN)
REPORT = f"{JOB}/rule-output/TrainGuardReport/report.json"
ENABLED = StopSwitches("enabled")
DRY_RUN = StopRecord("dry-run", "its owner asked for a dry run", made=False)


class Stage:
    """A canary in a world, with the jobs that SageMaker has."""

    def __init__(self, world: MemoryWorld, switches: StopSwitches = ENABLED) -> None:
        self.world, self.own = world, MemoryCanaryJobs(world, AT)
        world.objects.now = AT
        self.canary = JobCanary(
            bucket=BUCKET,
            objects=world.objects,
            rows=world.rows,
            jobs=world.jobs,
            journal=world.journal,
            own=self.own,
            switches=lambda: switches,
        )

    @property
    def reasons(self) -> list[str]:
        """Why canaries failed."""
        return [str(each.where["reason"]) for each in self.world.journal.entries if each.what == "canary_failed"]


@pytest.fixture
def stage() -> Stage:
    return Stage(MemoryWorld())


def played(switches: StopSwitches = ENABLED) -> tuple[Stage, Network, dict[str, object]]:
    """Plant, and let SageMaker's event and S3's messages come; return the input of the execution of its fire."""
    network = Network()
    stage = Stage(network.world, switches)
    stage.canary.plant(AT, RUN)
    network.now = AT + 1.0
    follow_sagemaker(JOB, BUCKET, registry(network))
    for each in list(network.world.objects.list(BUCKET, "", "")):
        network.announce(Upload(AT, each.key, b""), AT + 2.0)
    network.run_until(AT + 60.0, batch_s=20.0)
    network.run_scheduler()
    network.run_until(AT + 64.0, batch_s=20.0)
    (payload,) = (each for each in network.world.executions.started.values() if each["kind"] == "fire")
    stage.world.rows.record(replace(row_of(stage), fire_id=str(payload["fireId"])))
    return stage, network, dict(payload)


def row_of(stage: Stage) -> RuleRow:
    row = stage.world.rows.load(JOB, RULE)
    assert row is not None
    return row


def handled(stage: Stage, stop: StopRecord | None) -> None:
    """Let the fire machine have recorded its work."""
    page = f"s3://{BUCKET}/{REPORT}"
    told = replace(row_of(stage), action="Not stopped.", action_at=AT + 70.0, alert_id="f", report_uri=page)
    stage.world.rows.record(replace(told, stop=stop))
    stage.world.objects.put(BUCKET, REPORT, b"{}", "application/json")


def decided(network: Network, payload: dict[str, object], switches: StopSwitches) -> StopDecision:
    case = StopCase.read(payload)
    known = StopPreconditions.read(case, network.world.jobs, network.world.rows)
    return decide_stop(case, network.world.training_jobs.describe(JOB), switches, known=known, now=AT + 65.0)


def test_job_goes_the_whole_way_from_its_tags_to_its_end() -> None:
    stage, network, payload = played()
    job = network.world.jobs.load(JOB)
    assert job is not None
    assert (job.arn, job.status, job.stop_allowed, job.canary) == (f"{ARN}{JOB}", JobStatus.IN_PROGRESS, True, True)
    assert (job.setting_faults, job.rule_settings[f"{RULE}_patience"]) == ((), "20")
    decision = decided(network, payload, ENABLED)
    assert (decision.stop, decision.decision, decision.opted_in) == (False, "dry-run", True)
    handled(stage, replace(DRY_RUN, why=decision.why))

    looked = stage.canary.look(AT + 900.0)
    assert (looked.job, looked.missing, stage.own.stopped) == (JOB, (), [JOB])
    early = stage.canary.end(AT + 901.0)
    assert early.missing == ("its item says InProgress, SageMaker Stopped", "its item was not closed")

    network.now = AT + 1_000.0
    follow_sagemaker(JOB, BUCKET, registry(network))
    network.take_tasks()
    network.run_until(AT + 1_300.0, batch_s=20.0)
    network.run_scheduler()
    network.run_until(AT + 1_500.0, batch_s=20.0)
    network.run_scheduler()
    assert stage.canary.end(AT + 1_800.0).missing == ()
    assert stage.own.stopped == [JOB]
    assert stage.world.journal.totals["canary_passed"] == 1


def test_alert_and_fleet_know_the_job_for_a_canary() -> None:
    _, network, payload = played()
    request = AlertRequest(FireInput.read(payload))
    record = network.world.jobs.load(JOB)
    assert compose_alert(request, now=AT).attributes["Kind"] == "canary"
    assert record is not None
    assert not Fleet(stack="TrainGuard", region="eu-west-1").wants(record)
    assert Fleet(stack="TrainGuard", region="eu-west-1").wants(replace(record, canary=False))
    brakes = BrakeList((new_brake("b", Braked.EVALUATION, by="ada", why="a storm", now=AT),))
    assert brakes.on_evaluation(record.job, record.arn, record.canary, AT) is None
    assert brakes.on_evaluation(record.job, record.arn, False, AT) is not None


@pytest.mark.parametrize(
    ("marked", "created_s", "expected"),
    [
        (JOB, 2.0, True),
        (JOB, 700.0, True),
        (JOB, 1_800.0, False),
        (JOB, -600.0, False),
        (canary_name(AT, "another"), 2.0, False),
        (None, 2.0, False),
    ],
)
def test_only_a_marked_job_of_its_time_is_a_canary(marked: str | None, created_s: float, expected: bool) -> None:
    assert is_marked(JOB, AT + created_s, marked) is expected
    assert is_canary(JOB, f"{ARN}{JOB}", expected) is expected
    assert not is_canary("my-job", f"{ARN}my-job", True)


def test_job_that_an_owner_names_like_a_canary_is_not_muted() -> None:
    network = Network()
    own = MemoryCanaryJobs(network.world, AT)
    own.create(JOB, {"trainguard:profile-path": f"s3://{BUCKET}", "trainguard:settings": "canary-job"})
    follow_sagemaker(JOB, BUCKET, registry(network))
    record = network.world.jobs.load(JOB)
    assert record is not None
    assert not record.canary


@pytest.mark.parametrize(
    "switches", [StopSwitches("disabled"), StopSwitches("enabled", "disabled"), StopSwitches("dry-run")]
)
def test_canary_passes_whatever_the_stack_forbids_of_stops(switches: StopSwitches) -> None:
    stage, network, payload = played(switches)
    decision = decided(network, payload, switches)
    handled(stage, StopRecord(decision.decision, decision.why, made=False))
    assert stage.canary.look(AT + 900.0).missing == ()


def test_repeated_plant_makes_no_second_job(stage: Stage) -> None:
    for fault in (Fault.FAIL_AFTER, Fault.FAIL_BEFORE):
        stage.world.faults.schedule("CanaryJobs.create", fault)
        with pytest.raises(PortUnavailableError, match=r"CanaryJobs\.create"):
            stage.canary.plant(AT, RUN)
    assert stage.canary.plant(AT, RUN) == stage.canary.plant(AT, RUN) == JOB
    assert (stage.own.created, stage.own.stopped, stage.reasons) == ([JOB], [], [])
    keys = [each.key for each in stage.world.objects.list(BUCKET, "", "")]
    assert len(keys) == MINUTES
    assert all("/system/incremental/" in key for key in keys)


def test_refused_job_is_a_named_failure_without_a_profile(stage: Stage) -> None:
    stage.own.refusal = "ResourceLimitExceeded: ml.m5.large for training job usage is 0"
    assert stage.canary.plant(AT, RUN) is None
    assert list(stage.world.objects.list(BUCKET, "", "")) == []
    looked = stage.canary.look(AT + 900.0)
    assert stage.reasons[0] == f"SageMaker refused its job: {stage.own.refusal}"
    assert "SageMaker does not know its job" in looked.missing
    assert stage.canary.end(AT + 1_800.0).missing == ("SageMaker does not know its job",)


def test_job_of_an_earlier_day_is_stopped_and_reported(stage: Stage) -> None:
    earlier = stage.canary.plant(AT - 86_400.0, RUN)
    assert stage.canary.plant(AT, RUN) == JOB
    assert (stage.own.stopped, stage.own.created) == ([earlier], [earlier, JOB])
    (reason,) = stage.reasons
    assert "still ran" in reason
    stage.own.stop(JOB)
    stage.canary.plant(AT + 86_400.0, RUN)
    assert len(stage.reasons) == 1


@pytest.mark.parametrize(("after_s", "stopped"), [(60.0, []), (900.0, [JOB])])
def test_failed_canary_is_stopped_once_it_had_its_time(stage: Stage, after_s: float, stopped: list[str]) -> None:
    stage.canary.plant(AT, RUN)
    assert not stage.canary.look(AT + after_s).passed
    assert stage.own.stopped == stopped
    stage.canary.look(AT + 1_000.0)
    assert stage.own.stopped == [JOB]


def test_unstopped_job_is_stopped_at_its_end(stage: Stage) -> None:
    stage.canary.plant(AT, RUN)
    stage.world.faults.schedule("CanaryJobs.stop", Fault.FAIL_BEFORE)
    with pytest.raises(PortUnavailableError):
        stage.canary.end(AT + 1_800.0)
    stage.canary.end(AT + 1_800.0)
    assert stage.own.stopped == [JOB]


def test_without_a_fresh_canary_look_and_end_say_so(stage: Stage) -> None:
    stage.canary.plant(AT - 86_400.0, RUN)
    for step in (stage.canary.look, stage.canary.end):
        assert step(AT).missing == ("no canary was planted in the last 60 min",)
    assert (len(stage.reasons), stage.own.stopped) == (2, [])


WELL = JobRecord(JOB, f"{ARN}{JOB}", BUCKET, "", status=JobStatus.IN_PROGRESS, stop_allowed=True, canary=True)


@pytest.mark.parametrize(
    ("record", "status", "said"),
    [
        (WELL, (JobStatus.FAILED, "no such image"), "Failed, not InProgress: no such image"),
        (WELL, (JobStatus.COMPLETED, ""), "Completed, not InProgress: it ended by itself"),
        (replace(WELL, arn=f"unknown:{JOB}"), None, "not that of SageMaker's job"),
        (replace(WELL, canary=False), None, "the canary's mark"),
        (replace(WELL, stop_allowed=False), None, "the opt-in of the job's tag"),
        (replace(WELL, status=JobStatus.UNKNOWN), None, "its item says Unknown, SageMaker InProgress"),
    ],
)
def test_what_the_item_of_the_job_lacks_is_named(
    stage: Stage, record: JobRecord, status: tuple[JobStatus, str] | None, said: str
) -> None:
    stage.canary.plant(AT, RUN)
    if status is not None:
        stage.own.become(JOB, *status)
    stage.world.jobs.register(record)
    _, missing = stage.canary.look(AT + 60.0).missing
    assert said in missing


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        (replace(DRY_RUN, decision="refused", why="SageMaker does not know it"), "stop is refused: SageMaker does"),
        (replace(DRY_RUN, decision="stop", made=True), "stop is stop"),
        (None, "nothing was decided"),
    ],
)
def test_any_decision_but_a_dry_run_fails_the_job(stop: StopRecord | None, said: str) -> None:
    stage, _, _ = played()
    handled(stage, stop)
    (missing,) = stage.canary.look(AT + 60.0).missing
    assert said in missing


@pytest.mark.parametrize("operation", ["marked", "mark", "create", "status"])
def test_store_that_does_not_answer_is_no_verdict(stage: Stage, operation: str) -> None:
    if operation == "status":
        stage.canary.plant(AT, RUN)
    stage.world.faults.schedule(f"CanaryJobs.{operation}", Fault.FAIL_BEFORE)
    with pytest.raises(PortUnavailableError):
        stage.canary.look(AT + 900.0) if operation == "status" else stage.canary.plant(AT, RUN)
    assert stage.reasons == []
