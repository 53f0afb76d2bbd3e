"""The functions of an organisation on moto: two accounts in the central tables, one page, one stop rate limit."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.functional.deployment import BUCKET, Deployment
from tests.support.fleets import MONDAY, found, job, report_row
from trainguard.aws.dynamodb.central import records_of, statement_of
from trainguard.aws.stoppable import LambdaStopLimit
from trainguard.core.errors import PortUnavailableError
from trainguard.core.records import JobRecord, RuleRow, StopRecord
from trainguard.report.document import encode_schema
from trainguard.stack.organisation import stop_limit
from trainguard.stack.organisation.statement import MOST_BYTES, JobStatement, StatedEvent, statement_schema

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
HERE, THERE = "111122223333", "444455556666"
LATER = MONDAY + 3_600.0
STARVED = replace(job("starved", began=MONDAY), owners={"team": "vision"})
FIRED = replace(
    found(STARVED),
    action="Training job stopped: yes",
    fire_id="f1",
    stop=StopRecord("stop", "opted in", LATER, "f1", True),
)


def stated(of: JobRecord = STARVED, *rows: RuleRow, at: float = LATER) -> JobStatement:
    known = rows or (report_row(of, lost=60.0), FIRED)
    return statement_of(of, known, stack="TrainGuard", region="eu-west-1", now=at)


def event(said: object, account: str = HERE) -> dict[str, Any]:
    """Return the event that the central bus brings."""
    return {"account": account, "detail": json.loads(json.dumps(msgspec.to_builtins(said)))}


class Bus:
    """Keeps what is put on it, and refuses the entries of some jobs."""

    def __init__(self, *refused: str) -> None:
        self.entries: list[dict[str, Any]] = []
        self.refused = refused

    def put_events(self, *, Entries: list[dict[str, Any]]) -> Mapping[str, Any]:  # noqa: N803 - of boto3
        (entry,) = Entries
        detail = json.loads(entry["Detail"])
        if detail["job"] in self.refused:
            return {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "Throttled", "ErrorMessage": "slow down"}]}
        self.entries.append(entry)
        return {"FailedEntryCount": 0, "Entries": [{}]}


def test_schedule_states_what_goes_on_and_a_finding_its_job(deployment: Deployment) -> None:
    running = replace(job("running", began=MONDAY - 90 * 86_400.0), active=True)
    over = job("over", began=MONDAY - 30 * 86_400.0)
    canary = replace(running, job="trainguard-canary-20261124-060000", arn="unknown:trainguard-canary-20261124-060000")
    for each in (STARVED, running, over, canary):
        deployment.world.jobs.register(each)
    deployment.world.rows.publish([report_row(STARVED, lost=60.0), found(STARVED)])
    function = deployment.function("send_statements")
    bus = Bus()
    vars(function.module)["bus"] = bus
    assert function({"time": "2026-11-23T11:00:00Z"}).value == {"jobs": 2}
    details = {json.loads(each["Detail"])["job"]: json.loads(each["Detail"]) for each in bus.entries}
    assert set(details) == {"starved", "running"}
    assert {(each["Source"], each["DetailType"]) for each in bus.entries} == {("trainguard", "TrainGuard Statement")}
    assert all(each["EventBusName"].endswith("TrainGuardCentral") for each in bus.entries)
    assert details["starved"]["verdict"]["job"] == "starved"
    schemas = [json.loads((SCHEMAS / f"{name}-1.json").read_bytes()) for name in ("statement", "verdict")]
    registry = Registry().with_resources((each["$id"], Resource.from_contents(each)) for each in schemas)
    Draft202012Validator(schemas[0], registry=registry).validate(details["starved"])
    assert encode_schema(statement_schema()) == (SCHEMAS / "statement-1.json").read_bytes(), (
        "python -m trainguard.stack.organisation.statement > docs/schemas/statement-1.json renews it"
    )
    assert details["starved"]["region"] == "us-east-1", "of the function that states it"

    assert function({"time": "2026-11-23T11:00:00Z", "job": "over"}).value == {"jobs": 1}
    assert function({"time": "2026-11-23T11:00:00Z", "job": "unknown"}).value == {"jobs": 0}
    bus = Bus("starved")
    vars(function.module)["bus"] = bus
    with pytest.raises(PortUnavailableError, match=r"1 of 2 jobs: .*slow down"):
        function({"time": "2026-11-23T11:00:00Z"})
    assert len(bus.entries) == 1, "one that is refused holds up no other"


def test_statement_is_kept_as_the_accounts_tables_have_it(deployment: Deployment) -> None:
    keep = deployment.function("keep_statement")
    assert keep(event(stated())).value == {"kept": True}
    kept = deployment.world.jobs.load(f"{HERE}/eu-west-1/starved")
    assert kept is not None
    assert kept.owners == {"team": "vision", "account": HERE}
    assert kept.expires_at, "the central tables forget what nobody states any more"
    rows = {row.rule: row for row in deployment.world.rows.of_job(kept.job)}
    assert rows["LowGPUUtilization"] == replace(FIRED, job=kept.job, expires_at=kept.expires_at)
    item = deployment.world.dynamodb.get_item(TableName="Jobs", Key={"TrainingJobName": {"S": kept.job}})["Item"]
    assert (item["Team"], item["StatedAt"], item["Stack"]) == (
        {"S": "vision"},
        {"S": "2026-11-23T01:00:00.000Z"},
        {"S": "TrainGuard"},
    )


def test_late_and_repeated_statements_change_nothing(deployment: Deployment) -> None:
    keep = deployment.function("keep_statement")
    newer = replace(STARVED, instance_count=8)
    assert keep(event(stated(newer))).value == {"kept": True}
    for said in (stated(newer), stated(STARVED, at=LATER - 1.0), stated(STARVED)):
        assert keep(event(said)).value == {"kept": False}
    kept = deployment.world.jobs.load(f"{HERE}/eu-west-1/starved")
    assert kept is not None
    assert kept.instance_count == 8
    assert keep(event(stated(STARVED, at=LATER + 1.0))).value == {"kept": True}


def test_account_of_the_envelope_is_the_jobs_whatever_it_states(deployment: Deployment) -> None:
    keep = deployment.function("keep_statement")
    keep(event(stated()))
    forged = replace(STARVED, job=f"{HERE}/eu-west-1/starved", instance_count=99, owners={"account": HERE})
    keep(event(stated(forged, at=LATER + 1.0), THERE))
    kept = deployment.world.jobs.load(f"{HERE}/eu-west-1/starved")
    assert kept is not None
    assert kept.instance_count == 1
    (other,) = [each for each in deployment.world.jobs.all() if each.job.startswith(THERE)]
    assert other.owners == {"account": THERE}


@pytest.mark.parametrize(
    "change",
    [
        {"account": "me"},
        {"stated_at": "9999-01-01T00:00:00.000Z"},
        {"stated_at": "soon"},
        {"region": "../eu"},
        {"job": ""},
        {"job": "\N{PILE OF POO}" * 1_000},
        {"team": "t" * 3_000},
        {"target": "r" * 2_000},
        {"item": {}},
        *({"number": number} for number in ("1e999", "NaN", "9" * 400)),
        {"item": {"TrainingJobName": {"S": "starved"}, "Status": {"N": "1"}}},
        {"rows": [{"RuleTarget": {"S": "A"}, "Status": {"S": "ON_FIRE"}}]},
        {"rows": [{"RuleTarget": {"S": "A"}, "AlertId": 7}]},
        {"rows": [{}]},
        {"schema_version": "2"},
    ],
    ids=lambda change: str(change)[:40],
)
def test_statement_that_is_none_is_counted_and_dropped(deployment: Deployment, change: dict[str, Any]) -> None:
    given = event(stated(replace(STARVED, owners={"team": change.pop("team", "vision")})))
    given["detail"]["rows"][0]["RuleTarget"] = {"S": change.pop("target", "A")}
    given["detail"]["item"]["EvaluationEveryS"] = {"N": change.pop("number", "60")}
    account = change.get("account", HERE)
    given = {"account": account, "detail": given["detail"] | {k: v for k, v in change.items() if k != "account"}}
    answer = deployment.function("keep_statement")(given)
    assert answer.value == {"kept": False}
    assert answer.metrics["BadStatements"] == 1
    assert list(deployment.world.jobs.all()) == []
    assert deployment.world.dynamodb.scan(TableName="RuleState")["Items"] == []


def test_rows_beyond_an_events_size_are_left_out() -> None:
    long = "x" * 1_000
    rows = [replace(FIRED, finding=replace(FIRED.finding, rule="training/Loud"))]
    rows += [
        replace(FIRED, times_fired=0, finding=replace(FIRED.finding, rule=f"training/Quiet{number:03d}", reason=long))
        for number in range(300)
    ]
    said = stated(STARVED, *rows)
    assert len(msgspec.json.encode(said)) < MOST_BYTES + 2_000
    assert 0 < said.rows_left_out < 300
    assert said.rows[0]["RuleTarget"] == {"S": "training/Loud"}
    _, read = records_of(StatedEvent(HERE, said))
    assert len(read) + said.rows_left_out == len(rows)


def test_page_has_the_jobs_of_all_accounts_and_their_sums(deployment: Deployment) -> None:
    keep = deployment.function("keep_statement")
    for account in (HERE, THERE):
        keep(event(stated(), account))
    assert deployment.function("draw_fleet")({}).value == {"jobs": 2}
    objects = {
        name: deployment.clients.s3.get_object(Bucket=BUCKET, Key=name)["Body"].read().decode()
        for name in ("fleet.json", "fleet.html")
    }
    fleet = json.loads(objects["fleet.json"])
    assert {each["job"] for each in fleet["jobs"]} == {f"{each}/eu-west-1/starved" for each in (HERE, THERE)}
    assert {(each["kind"], each["name"], each["jobs"]) for each in fleet["owners"]} == {
        ("team", "vision", 2),
        ("account", HERE, 1),
        ("account", THERE, 1),
    }
    assert fleet["jobs"][0]["report"].endswith("s3://profiles/jobs/starved/rule-output/TrainGuardReport/report.html")
    assert len(fleet["stops"]) == 2
    assert "By account" in objects["fleet.html"]


def request(fire: str, asker: str = HERE, of: str = "job") -> dict[str, str]:
    return {"asker": f"arn:aws:lambda:eu-west-1:{asker}:function:decide", "fire_id": fire, "job": of}


def test_limit_counts_the_stops_of_all_accounts(deployment: Deployment) -> None:
    admit = deployment.function("admit_stop")
    asked = [request("f1"), request("f1"), request("f1", THERE), request("f2", of="other")]
    assert [admit(each).value for each in asked] == [
        {"admitted": admitted, "limit": 2} for admitted in (True, True, True, False)
    ]
    with pytest.raises(msgspec.ValidationError, match="fire_id"):
        admit({"asker": "me", "job": "job"})


class Answers:
    """Lambda, as far as a question needs it."""

    def __init__(self, body: bytes, **more: str) -> None:
        self.body, self.more = body, more

    def invoke(self, **given: Any) -> Mapping[str, Any]:
        assert set(given) == {"FunctionName", "Payload"}, "a question waits for its answer"
        return {"Payload": self, **self.more}

    def read(self) -> bytes:
        return self.body


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Answers(b'{"errorMessage": "boom"}', FunctionError="Unhandled"), "boom"),
        (Answers(b"null"), "no admission"),
        (Answers(b'{"admitted": "yes", "limit": 3}'), "no admission"),
    ],
)
def test_question_without_an_admission_is_unanswered(answer: Any, fault: str) -> None:
    asked = stop_limit.StopRequest("arn", "f1", "job")
    with pytest.raises(PortUnavailableError, match=fault):
        LambdaStopLimit(client=answer, function="arn").ask(asked)
    good: Any = Answers(b'{"admitted": true, "limit": 3}')
    assert LambdaStopLimit(client=good, function="arn").ask(asked) == stop_limit.Admission(True, 3)
