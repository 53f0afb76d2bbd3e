"""Every permission is exercised: a role may do what its function was seen to do, or what this file says who else does.

Each function runs once through all that it does, on moto, and every call that it makes is noted as the action that IAM
asks for it, on its table, bucket or whatever else it names. The state machines' actions are those of their definitions.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.client import BaseClient
from moto import mock_aws
from moto.stepfunctions.exceptions import ValidationException
from moto.stepfunctions.models import StepFunctionBackend

from infra.constructs import fire_machine, kernels_machine, report_machine
from tests.functional.deployment import (
    ALERT_TOPIC,
    CHAT_TOPIC,
    JOB,
    PREFIX,
    Deployment,
    event,
    object_message,
    recorded_objects,
    ringing,
)
from tests.functional.offline import offline_clients
from tests.functional.tables import BOOKKEEPING, JOBS, NODE_STATE, RULE_STATE
from tests.functional.test_handlers_kernels import AT, traces
from tests.infra.access import Request, allows, requests
from tests.infra.done_by_services import DONE_BY_SERVICES, OF_SERVICES, ROLES
from tests.infra.template import Statement, Template
from trainguard.aws import function_limits
from trainguard.aws.lambda_invocations import payload_of
from trainguard.aws.stop_calls import AwsStopCalls
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import StreamTask
from trainguard.core.timestamps import iso_time
from trainguard.engine.messages import encode_task
from trainguard.engine.reconcile import SCHEDULE_S, STALE_EVERY
from trainguard.kernels.captures.keys import ALL_RANKS, KERNELS
from trainguard.stack.report import plan
from trainguard.stack.report.keys import FEWEST_NODES

# An action, and what it is on: a table, an index, or for other services nothing.
Permission = tuple[str, str]

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")

MACHINES = {
    "ActionsFireRole": fire_machine.definition,
    "ReportsReportRole": report_machine.definition,
    "CapturesKernelsRole": kernels_machine.definition,
}

SERVICES = {"stepfunctions": "states"}
# Operations that IAM knows under another name.
ACTIONS = {
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "s3:DeleteObjects": "s3:DeleteObject",
    "sqs:SendMessageBatch": "sqs:SendMessage",
    "lambda:Invoke": "lambda:InvokeFunction",
}


@dataclass(slots=True)
class Recorded:
    """What a function did: permissions, the requests in full, and whether it asked for an object that is not there."""

    permissions: set[Permission] = field(default_factory=set)
    requests: set[Request] = field(default_factory=set)
    missed: bool = False


class Recorder:
    """Notes the permission that each call of a function needs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: dict[str, set[Permission]] = defaultdict(set)
        self.asked: dict[str, set[Request]] = defaultdict(set)
        self.missed: set[str] = set()
        self._function: str | None = None
        made = vars(BaseClient)["_make_api_call"]

        def call(client: BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
            if self._function is None:
                return made(client, operation, arguments)
            wanted = permission(client.meta.service_model.service_name, operation, arguments)
            self.seen[self._function].add(wanted)
            self.asked[self._function].update(requests(wanted[0], arguments))
            try:
                return made(client, operation, arguments)
            except client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] == "NoSuchKey":
                    self.missed.add(self._function)
                raise

        monkeypatch.setattr(BaseClient, "_make_api_call", call)

    @contextmanager
    def noting(self, function: str) -> Iterator[None]:
        """Note what is called in a ``with`` block as calls of ``function``."""
        self._function = function
        try:
            yield
        finally:
            self._function = None


def permission(service: str, operation: str, arguments: Mapping[str, Any]) -> Permission:
    """Return what IAM is asked for a call."""
    plain = f"{SERVICES.get(service, service)}:{operation}"
    place = arguments.get("TableName", "") if service == "dynamodb" else ""
    if "IndexName" in arguments:
        place += f"/index/{arguments['IndexName']}"
    return ACTIONS.get(plain, plain), place


class Play:
    """Runs functions one after the other, each noted under its name."""

    def __init__(self, deployment: Deployment, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
        self.deployment = deployment
        self.patch = patch
        self._recorder = recorder
        self._now = time.time()
        self.later(0.0)

    def __call__(self, name: str, given: object) -> Any:
        function = self.deployment.function(name)
        with self._recorder.noting(name):
            return function(given, remaining_ms=(900_000,)).value

    def later(self, seconds: float) -> None:
        """Let time pass for the functions: on a slow machine too, no tick's minute is left out."""
        self._now += seconds
        self.patch.setattr(function_limits, "time", SimpleNamespace(time=lambda: self._now, sleep=time.sleep))

    def to_minute(self, minute: int) -> None:
        """Let time pass until some seconds into a minute of the hour."""
        self.later((60.0 * minute + 7.0 - self._now) % 3_600.0)

    def a_round_of_ticks(self) -> None:
        """Let so many ticks come that each job has its turn to be asked about, whatever the time is."""
        for _ in range(STALE_EVERY):
            self.a_tick()
            self.later(SCHEDULE_S)

    def a_tick(self) -> None:
        """Let a run of the scheduler come, and each look that it asks for be made."""
        self("scheduler", event("scheduler"))
        for look in self.deployment.world.asked():
            self("reconcile_job", json.loads(payload_of(look)))


def a_whole_job(play: Play) -> None:
    """Play the recorded job: registered, evaluated in two goes with a gap, fired, decided, reported, ended, closed."""
    deployment = play.deployment
    deployment.create_training_job()
    deployment.describe_with(tuning_job_arn="arn:aws:sagemaker:us-east-1:1:hyper-parameter-tuning-job/sweep")
    objects = recorded_objects()
    half = objects[0].appears_at + 600
    first = [each for each in objects if each.appears_at < half]
    rest = [each for each in objects if each.appears_at >= half]
    play("job_lifecycle", event("training_job_in_progress"))
    deployment.put(objects)
    for some in (first, rest):
        play("evaluate_objects", ringing([object_message(each.key, at=each.appears_at) for each in some]))
        play.a_tick()
    fire = next(iter(deployment.world.started().values()))
    deployment.world.update_row(str(fire["job"]), str(fire["rule"]), {"FireId": {"S": str(fire["fireId"])}})
    recent = fire | {"firedAt": iso_time(time.time() - 60.0)}
    decided = [play("decide_stop", recent | {"attempt": attempt})["decision"] for attempt in ("first", "final")]
    assert decided[0] == "stop"
    play("record_fire", {"fire": fire})
    decision = {"stop": True, "decision": "stop", "why": "the tag allows it", "stopAt": None, "optedIn": True}
    for _ in range(2):
        play("stop_job", {"fire": fire, "decision": decision})
    with play.patch.context() as lost:
        lost.setattr(AwsStopCalls, "stop", _lose_the_answer)
        play("stop_job", {"fire": fire | {"rule": "CPUBottleneck"}, "decision": decision})
    asked = {"kind": "workload", "resources": ["prod/job/team-a/train"], "action": "suspend"}
    for expires_at in (time.time() + 60.0, 0.0):
        play(
            "stop_job",
            {"fire": fire | {"rule": "LowGPUUtilization"}, "decision": decision | asked | {"expiresAt": expires_at}},
        )
    for topic in (ALERT_TOPIC, CHAT_TOPIC):
        deployment.clients.sns.create_topic(Name=topic.rpartition(":")[2])
    for _ in range(2):
        play("send_alert", event("send_alert"))
    play("build_report", event("build_report_fire"))
    for fewest in (FEWEST_NODES, 1):
        play.patch.setattr(plan, "FEWEST_NODES", fewest)
        for item in play("plan_report", event("plan_report"))["items"]:
            play("digest_profile", item)
    play("build_report", event("build_report_full"))
    play("build_report", event("build_report_drop"))
    deployment.set_status("Completed")
    play("job_lifecycle", event("training_job_completed"))
    play("evaluate_objects", event("sqs_training_job_end"))
    play("evaluate_objects", deployment.tasks())
    play.a_tick()


def _lose_the_answer(*given: object) -> None:
    raise PortUnavailableError("SageMaker", "StopTrainingJob", "the answer is lost")


def what_was_left_undone(play: Play) -> None:
    """Play a fire that could not be started, a job with a fault in its settings, and an end without an event."""
    deployment = play.deployment
    deployment.create_training_job(tags={"trainguard:CPUBottleneck_threshold": "many"})
    play("job_lifecycle", event("training_job_in_progress"))
    seen = [each for each in recorded_objects() if each.appears_at < recorded_objects()[0].appears_at + 1_260]
    deployment.put(seen)
    with play.patch.context() as broken:
        broken.setattr(StepFunctionBackend, "start_execution", _refuse)
        play("evaluate_objects", ringing([object_message(each.key, at=each.appears_at) for each in seen]))
    play.a_tick()
    deployment.set_status("Completed")
    for _ in range(2):
        play.later(700.0)
        play.a_round_of_ticks()


def a_job_outside_sagemaker(play: Play) -> None:
    """Play a profile at the root, of which SageMaker knows nothing, which falls silent, and which it lists later."""
    some = [replace(each, key=each.key.removeprefix(PREFIX)) for each in recorded_objects()[:40]]
    play.deployment.put(some)
    play("evaluate_objects", ringing([object_message(each.key, at=each.appears_at) for each in some]))
    play.later(700.0)
    play.a_round_of_ticks()
    play.deployment.create_training_job()
    play.a_round_of_ticks()


def an_end_that_the_profile_tells(play: Play) -> None:
    """Play a job of whose end the profile tells before any event does."""
    deployment = play.deployment
    deployment.create_training_job()
    some = recorded_objects()[:40]
    deployment.put(some)
    play("evaluate_objects", ringing([object_message(each.key, at=each.appears_at) for each in some]))
    deployment.set_status("Completed")
    play("evaluate_objects", event("sqs_training_job_end"))


def two_days_of_the_canary(play: Play) -> None:
    """Play a canary that takes the place of another, that is looked at, and whose silence is looked for."""
    play("canary", {"step": "plant", "time": "2026-07-31T06:00:00Z"})
    play("canary", {"step": "plant", "time": "2026-08-01T06:00:00Z"})
    play("canary", {"step": "look", "time": "2026-08-01T06:15:00Z"})
    play.to_minute(30)
    play.a_tick()


def a_capture_of_kernel_traces(play: Play) -> None:
    """Play a capture that is judged, of which one trace is gone and another one has no digest."""
    deployment = play.deployment
    deployment.create_training_job()
    objects = traces()
    deployment.put(objects)
    play("evaluate_objects", ringing([object_message(each.key, at=each.appears_at) for each in objects]))
    play("evaluate_objects", ringing([encode_task(StreamTask(JOB, ALL_RANKS, KERNELS, "flush", AT + 60.0))]))
    (call,) = deployment.world.captured().values()
    items = play("plan_capture", call)["items"]
    for item in items[1:]:
        play("digest_trace", item)
    play("digest_trace", items[0] | {"key": items[0]["key"].replace("host_0", "host_9")})
    assert play("join_capture", call)["unread"] == 1
    play("evaluate_objects", deployment.tasks())


def _refuse(*given: object, **named: object) -> Any:
    raise ValidationException("state machine is being deleted")


SCENARIOS: tuple[Callable[[Play], None], ...] = (
    a_whole_job,
    what_was_left_undone,
    a_job_outside_sagemaker,
    an_end_that_the_profile_tells,
    two_days_of_the_canary,
    a_capture_of_kernel_traces,
)


@pytest.fixture(scope="module")
def left() -> list[dict[str, list[Any]]]:
    """Return the items that each scenario left in the tables, by table; `recorded` fills it."""
    return []


@pytest.fixture(scope="module")
def recorded(left: list[dict[str, list[Any]]]) -> Mapping[str, Recorded]:
    """Return what each function was seen to do in all scenarios together."""
    found: dict[str, Recorded] = defaultdict(Recorded)
    for scenario in SCENARIOS:
        with mock_aws(), pytest.MonkeyPatch.context() as patch:
            deployment = Deployment(offline_clients(), patch, Printed())
            recorder = Recorder(patch)
            scenario(Play(deployment, recorder, patch))
            for function, permissions in recorder.seen.items():
                found[function].permissions.update(permissions)
                found[function].requests.update(recorder.asked[function])
                found[function].missed |= function in recorder.missed
            scan = deployment.clients.dynamodb.scan
            left.append({table: scan(TableName=table)["Items"] for table in (JOBS, RULE_STATE, BOOKKEEPING)})
    return found


@pytest.fixture(scope="module")
def seen(recorded: Mapping[str, Recorded]) -> Mapping[str, set[Permission]]:
    """Return which permissions each function was seen to need."""
    return {function: each.permissions for function, each in recorded.items()}


class Printed:
    """Stands for pytest's captured output: what functions print is of no interest."""

    def readouterr(self) -> Any:
        return type("Nothing", (), {"out": ""})


def place(resource: str) -> str:
    """Return what a statement's resource is in the words of `permission`."""
    for table in (JOBS, NODE_STATE, RULE_STATE, BOOKKEEPING):
        if resource.startswith(arn := f"{{Storage{table}.Arn}}"):
            return resource.replace(arn, table)
    return ""


def granted(template: Template, role: str) -> set[Permission]:
    return {
        (action, place(resource) if action.startswith("dynamodb:") else "")
        for holder, statement in template.role_statements()
        if holder == role
        for action in statement.actions
        for resource in statement.resources
    }


@pytest.mark.parametrize("role", ROLES)
def test_every_permission_of_a_role_is_used(template: Template, seen: Mapping[str, set[Permission]], role: str) -> None:
    by_services = {(action, "") for action in DONE_BY_SERVICES[role]}
    assert granted(template, role) - by_services - seen[ROLES[role]] == set()


@pytest.mark.parametrize("role", ROLES)
def test_no_request_exceeds_the_permissions_of_a_role(
    template: Template, seen: Mapping[str, set[Permission]], role: str
) -> None:
    assert seen[ROLES[role]] - granted(template, role) == set()


@pytest.mark.usefixtures("recorded")
def test_tables_that_people_read_hold_jobs_alone(left: list[dict[str, list[Any]]]) -> None:
    for tables in left:
        jobs = {item["TrainingJobName"]["S"]: item for item in tables[JOBS]}
        assert all(item.keys() >= {"TrainingJobArn", "Status", "Bucket"} for item in jobs.values())
        assert {row["TrainingJobName"]["S"] for row in tables[RULE_STATE]} <= jobs.keys()
        assert all(row["Status"]["S"] for row in tables[RULE_STATE])
    kept = {item["Purpose"]["S"] for tables in left for item in tables[BOOKKEEPING]}
    assert kept == {"alerts", "stops", "met-jobs", "requests/prod", "agents/prod", "tuning-job/sweep"}


def statements_of(template: Template, role: str) -> list[Statement]:
    return [statement for holder, statement in template.role_statements() if holder == role]


@pytest.mark.parametrize("role", ROLES)
def test_iam_refuses_no_request_of_a_function(template: Template, recorded: Mapping[str, Recorded], role: str) -> None:
    statements = statements_of(template, role)
    asked = recorded[ROLES[role]].requests if ROLES[role] in recorded else set()
    assert asked
    assert [each for each in asked if not any(allows(statement, each) for statement in statements)] == []


@pytest.mark.parametrize("role", ROLES)
def test_missing_s3_object_is_not_reported_as_forbidden(
    template: Template, recorded: Mapping[str, Recorded], role: str
) -> None:
    """Who may not list the bucket, whatever the prefix, is answered "forbidden" for a missing object."""
    listing = [each for each in statements_of(template, role) if "s3:ListBucket" in each.actions and not each.condition]
    missed = ROLES[role] in recorded and recorded[ROLES[role]].missed
    assert listing or not missed


def actions_of(definition: object) -> set[str]:
    """Return the actions that the tasks and readers of a state machine's definition ask for."""
    resources = re.findall(r'"arn:\$\{Partition\}:states:::(?:aws-sdk:)?(\w+):(\w+)', json.dumps(definition))
    names = {"invoke": "InvokeFunction"}
    return {f"{service}:{names.get(call, call[0].upper() + call[1:])}" for service, call in resources}


@pytest.mark.parametrize("role", MACHINES)
def test_state_machine_role_matches_its_definition(template: Template, role: str) -> None:
    allowed = {action for action, _ in granted(template, role)}
    wanted = actions_of(MACHINES[role]())
    assert allowed - set(DONE_BY_SERVICES[role]) == wanted
    assert wanted


def test_no_reason_outlives_its_permission(template: Template) -> None:
    for role, reasons in DONE_BY_SERVICES.items():
        assert set(reasons) <= {action for action, _ in granted(template, role)}, role


def test_each_role_is_exercised(template: Template) -> None:
    assert set(template.of_type("AWS::IAM::Role")) == {*ROLES, *MACHINES, *OF_SERVICES}


@pytest.mark.parametrize("role", OF_SERVICES)
def test_service_role_allows_exactly_what_its_service_does(template: Template, role: str) -> None:
    assert {action for action, _ in granted(template, role)} == set(DONE_BY_SERVICES[role])
