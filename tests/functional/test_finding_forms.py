"""Tables, executions and reports hold a finding's fields as they did before records held a `Finding`: flat."""

from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest

from tests.functional.tables import NODE_STATE, RULE_STATE
from tests.functional.worlds import MotoUnderTest
from trainguard.core.finding import FINDING_FIELDS, Episode, Fact, Finding, Severity
from trainguard.core.records import (
    AlertKind,
    JobRecord,
    OutboxEntry,
    RuleRow,
    Status,
    StreamKey,
    StreamRecord,
    entry_fields,
    entry_in,
)
from trainguard.engine.outbox import fire_payload
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest, FireInput

START = 1_795_248_000.0
COST = "about USD 18.40 of the USD 59.30 spent"
EPISODES = (
    Episode(
        START + 60.25,
        START + 1_200.5,
        nodes=("algo-2",),
        gpus=("gpu3",),
        measured=31.5,
        wasted_s=912.125,
        cost=1.91,
        currency="USD",
    ),
    Episode(START + 1_800.0, None, nodes=("algo-1", "algo-2")),
)
FINDING = Finding(
    rule="LowGPUUtilization",
    node="algo-2",
    reason="gpu3 is low.",
    measured=31.5,
    threshold=70.0,
    severity=Severity.HIGH,
    advice="Prefetch.",
    cost=COST,
    episodes=EPISODES,
    finding_kind="pauses",
    facts=(
        Fact(name="mean_utilization", value=31.5, unit="%", device="gpu3", start=START, end=START + 60.0),
        Fact(name="gpus", value=8),
    ),
)
JOB = JobRecord(
    "bert",
    "arn:aws:sagemaker:eu-west-1:111122223333:training-job/bert",
    "profiles",
    "runs/",
    created_at=START - 60.0,
    tuning_job="search",
)
ROW = RuleRow(
    "bert",
    FINDING,
    Status.FIRED,
    quantity="95th percentile of GPU utilization",
    unit="%",
    worst="gpu3",
    data_points=2_880,
    affected_percent=94.1,
    wasted_percent=31.0,
    violations=8,
    times_fired=2,
    evaluated_through=START + 1_860.0,
    fired_at=START + 300.0,
    counters={"gaps": 1},
    parameters={"threshold_p95": 70.0},
    generation=1,
    earlier_episodes=3,
)
ESCALATION = OutboxEntry(
    "f" * 20, 2, START + 300.0, FINDING, kind=AlertKind.ESCALATION, previous_severity=Severity.LOW.value
)
OF_JOB = OutboxEntry("e" * 20, 0, START + 60.0, Finding("GPUMemoryIncrease", None, "Memory grows."), sent=True)
RECORD = StreamRecord(
    StreamKey("bert", "algo-2", "system"),
    version=1,
    outbox={entry.alert_id: entry for entry in (ESCALATION, OF_JOB)},
)

STORED_EPISODES: dict[str, Any] = {
    "L": [
        {
            "M": {
                "Start": {"S": "2026-11-21T08:01:00.250Z"},
                "End": {"S": "2026-11-21T08:20:00.500Z"},
                "Nodes": {"L": [{"S": "algo-2"}]},
                "Gpus": {"L": [{"S": "gpu3"}]},
                "Measured": {"N": "31.5"},
                "WastedS": {"N": "912.125"},
                "Cost": {"N": "1.91"},
                "Currency": {"S": "USD"},
            }
        },
        {"M": {"Start": {"S": "2026-11-21T08:30:00.000Z"}, "Nodes": {"L": [{"S": "algo-1"}, {"S": "algo-2"}]}}},
    ]
}
STORED_FACTS: dict[str, Any] = {
    "L": [
        {
            "M": {
                "Name": {"S": "mean_utilization"},
                "Value": {"N": "31.5"},
                "Unit": {"S": "%"},
                "Device": {"S": "gpu3"},
                "From": {"S": "2026-11-21T08:00:00.000Z"},
                "To": {"S": "2026-11-21T08:01:00.000Z"},
            }
        },
        {"M": {"Name": {"S": "gpus"}, "Value": {"N": "8"}}},
    ]
}
STORED_ROW: dict[str, Any] = {
    "TrainingJobName": {"S": "bert"},
    "RuleTarget": {"S": "LowGPUUtilization#algo-2"},
    "Status": {"S": "FIRED"},
    "DebuggerStatus": {"S": "IssuesFound"},
    "Reason": {"S": "gpu3 is low."},
    "Measured": {"N": "31.5"},
    "Threshold": {"N": "70.0"},
    "Quantity": {"S": "95th percentile of GPU utilization"},
    "Unit": {"S": "%"},
    "Worst": {"S": "gpu3"},
    "DataPoints": {"N": "2880"},
    "Severity": {"S": "high"},
    "Advice": {"S": "Prefetch."},
    "AffectedPercent": {"N": "94.1"},
    "CostLost": {"S": COST},
    "WastedPercent": {"N": "31.0"},
    "Violations": {"N": "8"},
    "TimesFired": {"N": "2"},
    "EvaluatedThrough": {"S": "2026-11-21T08:31:00.000Z"},
    "Counters": {"M": {"gaps": {"N": "1"}}},
    "Parameters": {"M": {"threshold_p95": {"N": "70.0"}}},
    "Generation": {"N": "1"},
    "Episodes": STORED_EPISODES,
    "Kind": {"S": "pauses"},
    "Facts": STORED_FACTS,
    "fact.mean_utilization": {"S": "31.5 % (gpu3, 2026-11-21 08:00 to 08:01 UTC)"},
    "fact.gpus": {"S": "8"},
    "EarlierEpisodes": {"N": "3"},
    "FiredAt": {"S": "2026-11-21T08:05:00.000Z"},
}
STORED_RECORD: dict[str, Any] = {
    "TrainingJobName": {"S": "bert"},
    "NodeKind": {"S": "algo-2#system"},
    "Version": {"N": "1"},
    "Cursors": {"M": {}},
    "Pending": {"M": {}},
    "Window": {"B": b""},
    "Codec": {"N": "0"},
    "Counters": {"M": {}},
    "Closed": {"BOOL": False},
    "Outbox": {
        "M": {
            "ffffffffffffffffffff-high": {
                "M": {
                    "Rule": {"S": "LowGPUUtilization"},
                    "Episode": {"N": "2"},
                    "Node": {"S": "algo-2"},
                    "EnqueuedAt": {"N": "1795248300.0"},
                    "Reason": {"S": "gpu3 is low."},
                    "Measured": {"N": "31.5"},
                    "Threshold": {"N": "70.0"},
                    "Sent": {"BOOL": False},
                    "Severity": {"S": "high"},
                    "Advice": {"S": "Prefetch."},
                    "Cost": {"S": COST},
                    "FireId": {"S": "ffffffffffffffffffff"},
                    "Kind": {"S": "escalation"},
                    "PreviousSeverity": {"S": "low"},
                    "Episodes": STORED_EPISODES,
                    "FindingKind": {"S": "pauses"},
                    "Facts": STORED_FACTS,
                }
            },
            "eeeeeeeeeeeeeeeeeeee": {
                "M": {
                    "Rule": {"S": "GPUMemoryIncrease"},
                    "Episode": {"N": "0"},
                    "Node": {"S": "*"},
                    "EnqueuedAt": {"N": "1795248060.0"},
                    "Reason": {"S": "Memory grows."},
                    "Sent": {"BOOL": True},
                    "FireId": {"S": "eeeeeeeeeeeeeeeeeeee"},
                    "Kind": {"S": "fire"},
                }
            },
        }
    },
}
SENT_EPISODES: list[dict[str, Any]] = [
    {
        "start": "2026-11-21T08:01:00.250Z",
        "end": "2026-11-21T08:20:00.500Z",
        "node": "algo-2",
        "nodes": ["algo-2"],
        "gpus": ["gpu3"],
        "measured": 31.5,
        "wasted_s": 912.125,
        "cost": 1.91,
        "currency": "USD",
    },
    {
        "start": "2026-11-21T08:30:00.000Z",
        "end": None,
        "node": None,
        "nodes": ["algo-1", "algo-2"],
        "gpus": [],
        "measured": None,
        "wasted_s": None,
        "cost": None,
        "currency": None,
    },
]
SENT: dict[str, Any] = {
    "kind": "escalation",
    "job": "bert",
    "jobArn": "arn:aws:sagemaker:eu-west-1:111122223333:training-job/bert",
    "jobCreatedAt": "2026-11-21T07:59:00.000Z",
    "tuningJob": "search",
    "policy": {
        "evaluated": True,
        "why": "every job is evaluated unless its stack or its tag says otherwise",
        "alerts": {"staged": [], "muted": [], "quiet_hours": []},
        "stops": {"rules": None, "grace_s": 0.0, "dry_run": False},
        "source": "",
        "evaluation_every_s": 180.0,
    },
    "bucket": "profiles",
    "prefix": "runs/",
    "reportUri": "s3://profiles/runs/bert/rule-output/TrainGuardReport/report.json",
    "reportPage": "s3://profiles/runs/bert/rule-output/TrainGuardReport/report.html",
    "reportLink": "https://eu-west-1.console.aws.amazon.com/s3/object/profiles?region=eu-west-1"
    "&prefix=runs/bert/rule-output/TrainGuardReport/report.html",
    "rule": "LowGPUUtilization",
    "fireId": "ffffffffffffffffffff",
    "alertId": "ffffffffffffffffffff-high",
    "episode": 2,
    "node": "algo-2",
    "reason": "gpu3 is low.",
    "measured": 31.5,
    "threshold": 70.0,
    "severity": "high",
    "advice": "Prefetch.",
    "cost": COST,
    "previousSeverity": "low",
    "lastedS": None,
    "firedAt": "2026-11-21T08:05:00.000Z",
    "episodes": SENT_EPISODES,
    "finding_kind": "pauses",
    "facts": [
        {
            "name": "mean_utilization",
            "value": 31.5,
            "unit": "%",
            "device": "gpu3",
            "from": 1_795_248_000.0,
            "to": 1_795_248_060.0,
        },
        {"name": "gpus", "value": 8},
    ],
}
PRINTED = (
    b'{"rule":"LowGPUUtilization","node":"algo-2","status":"FIRED","severity":"high","reason":"gpu3 is low.",'
    b'"measured":31.5,"threshold":70.0,"worst":"gpu3","data_points":2880,"patience":null,"advice":"Prefetch.",'
    b'"affected_percent":94.1,"wasted_percent":31.0,"cost_lost":"about USD 18.40 of the USD 59.30 spent",'
    b'"violations":8,"times_fired":2,"evaluated_through":"2026-11-21T08:31:00.000Z",'
    b'"fired_at":"2026-11-21T08:05:00.000Z","fire_id":null,"action":null,"action_at":null,"alert_id":null,'
    b'"report_uri":null,"stop":null,"counters":{"gaps":1},"parameters":{"threshold_p95":70.0},'
    b'"episodes":[{"start":"2026-11-21T08:01:00.250Z","end":"2026-11-21T08:20:00.500Z","node":"algo-2",'
    b'"nodes":["algo-2"],"gpus":["gpu3"],"measured":31.5,"wasted_s":912.125,"cost":1.91,"currency":"USD"},'
    b'{"start":"2026-11-21T08:30:00.000Z","end":null,"node":null,"nodes":["algo-1","algo-2"],"gpus":[],'
    b'"measured":null,"wasted_s":null,"cost":null,"currency":null}],"earlier_episodes":3}'
)


def test_published_row_has_the_earlier_columns(moto_world: MotoUnderTest) -> None:
    moto_world.rows.publish([ROW])
    (item,) = moto_world.dynamodb.scan(TableName=RULE_STATE)["Items"]
    assert item == STORED_ROW


def test_earlier_row_is_read_with_its_finding(moto_world: MotoUnderTest) -> None:
    moto_world.dynamodb.put_item(TableName=RULE_STATE, Item=STORED_ROW)
    assert moto_world.rows.of_job("bert") == [ROW]


def test_saved_outbox_has_the_earlier_entries(moto_world: MotoUnderTest) -> None:
    moto_world.nodes.save(StreamRecord(RECORD.key, outbox=RECORD.outbox))
    (item,) = moto_world.dynamodb.scan(TableName=NODE_STATE)["Items"]
    assert item == STORED_RECORD


def test_earlier_outbox_is_read_with_its_findings(moto_world: MotoUnderTest) -> None:
    moto_world.dynamodb.put_item(TableName=NODE_STATE, Item=STORED_RECORD)
    assert moto_world.nodes.load(RECORD.key) == RECORD


def test_execution_input_has_the_earlier_form() -> None:
    sent = msgspec.json.decode(msgspec.json.encode(fire_payload(ESCALATION, JOB)))
    assert sent == SENT
    assert fire_payload(OF_JOB, JOB)["node"] == "*"


def test_earlier_input_is_alerted_with_its_finding_and_fields() -> None:
    request = AlertRequest.read({"fire": SENT, "decision": {}, "stop": {"made": False, "error": None}})
    assert request.fire.entry == ESCALATION
    document = compose_alert(request, now=0.0).document
    assert {name: document[name] for name in FINDING_FIELDS} == {name: SENT[name] for name in FINDING_FIELDS}


def test_input_about_the_whole_job_keeps_its_node_sign() -> None:
    fire = FireInput.read(fire_payload(OF_JOB, JOB))
    assert (fire.entry.finding.node, compose_alert(AlertRequest(fire), now=0.0).document["node"]) == (None, "*")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"rule": None}, r"Expected `str`, got `null` - at `\$.rule`"),
        ({"severity": "severe"}, r"Invalid enum value 'severe' - at `\$.severity`"),
        ({"episodes": [{**SENT_EPISODES[0], "start": "noon"}]}, "time of an episode: .*'noon'"),
    ],
)
def test_faulty_finding_of_an_input_names_the_field(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=fault):
        FireInput.read(SENT | changes)


def test_missing_finding_of_an_input_names_the_field() -> None:
    with pytest.raises(msgspec.ValidationError, match="missing required field `rule`"):
        FireInput.read({name: value for name, value in SENT.items() if name not in FINDING_FIELDS})


def test_an_entry_that_fired_at_no_time_is_refused() -> None:
    for wrong in ("noon", None, 7):
        with pytest.raises(msgspec.ValidationError, match="firedAt"):
            FireInput.read(SENT | {"firedAt": wrong})
    with pytest.raises(msgspec.ValidationError, match="missing required field"):
        FireInput.read({name: value for name, value in SENT.items() if name != "firedAt"})


def test_a_new_field_joins_the_examples_of_these_tests() -> None:
    changed = OutboxEntry("e", 7, START, FINDING, True, AlertKind.CLEARED, "low", 60.0)
    for example in (FINDING, changed):
        assert [each.name for each in fields(example) if getattr(example, each.name) == each.default] == []


def test_each_field_of_an_entry_travels_with_its_input() -> None:
    changed = OutboxEntry("e", 7, START, FINDING, True, AlertKind.CLEARED, "low", 60.0)
    assert entry_in(entry_fields(changed)) == replace(changed, sent=False)
