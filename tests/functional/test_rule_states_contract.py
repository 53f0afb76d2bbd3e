"""RuleStates: rows only ever move forward, and the fire path's columns belong to the fire path."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.functional.strategies import on_each_world, rule_rows, times
from tests.functional.worlds import MemoryUnderTest, MotoUnderTest, World
from trainguard.core.errors import StateCodecError
from trainguard.core.finding import Finding, Patience, Severity
from trainguard.core.records import JobRecord, RuleRow, Status, StopRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.outbox import RowContext, rule_row
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.pricing.cost import PaidTime
from trainguard.rules.rule_result import RuleResult

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

RULE = "LowGPUUtilization"
URI = "s3://profiles/report.json"
OUTCOME: "dict[str, AttributeValueTypeDef]" = {
    "FireId": {"S": "f1"},
    "Action": {"S": "Training job stopped."},
    "ActionAt": {"S": "2026-01-31T12:00:00Z"},
    "AlertId": {"NULL": True},
    "ReportUri": {"S": URI},
}
OUTCOME_FIELDS: dict[str, Any] = {
    "fire_id": "f1",
    "action": "Training job stopped.",
    "action_at": 1_769_860_800.0,
    "report_uri": URI,
}


def row_at(watermark_s: float | None = 60.0, *, reason: str = "p95 is 23 %.", fired_at: float | None = None) -> RuleRow:
    return RuleRow("job", Finding(RULE, None, reason), Status.OK, evaluated_through=watermark_s, fired_at=fired_at)


def _progress(row: RuleRow) -> float:
    return -1.0 if row.evaluated_through is None else row.evaluated_through


@on_each_world
@given(drawn=rule_rows())
def test_given_any_row_when_published_then_it_reads_back_equal(world: World, drawn: RuleRow) -> None:
    row = replace(drawn, job=drawn.job + world.new_job())
    world.rows.publish([row])
    assert world.rows.of_job(row.job) == [row]


def test_parameters_of_all_families_round_trip(
    world: World,
) -> None:
    settings = {"NLPSequenceRatio_token_values": "0, 7", "NLPSequenceRatio_token_thresholds_percent": "50, 60.5"}
    plan = FAMILIES.plan(JobRecord("job", "arn", "bucket", "", rule_settings=settings, training_rules=("all",)))
    context = RowContext("job", None, plan, 60.0, {}, None, None, PaidTime(None, None, None, 0))
    rows = [
        rule_row(context, RuleOutcome(rule, RuleResult(Status.OK, "All is well."), FiringHistory()))
        for rule in plan.rules
    ]
    world.rows.publish(rows)
    stored = {row.rule: row.parameters for row in world.rows.of_job("job")}
    assert stored == {row.rule: row.parameters for row in rows}
    assert stored["training/DeadRelu"]["tensor_regex"] == ".*relu_output"
    assert stored["training/NLPSequenceRatio"]["token_thresholds_percent"] == "50, 60.5"


@on_each_world
@given(moments=st.lists(st.none() | times, min_size=1, max_size=6))
def test_row_evaluated_furthest_stands_in_any_order(world: World, moments: list[float | None]) -> None:
    job = world.new_job()
    expected: RuleRow | None = None
    for number, watermark_s in enumerate(moments):
        row = replace(row_at(None if watermark_s is None else round(watermark_s, 3), reason=str(number)), job=job)
        world.rows.publish([row])
        if expected is None or _progress(row) >= _progress(expected):
            expected = row
    assert world.rows.of_job(job) == [expected]


def test_row_evaluated_equally_far_is_replaced(world: World) -> None:
    world.rows.publish([row_at(60.0, reason="first")])
    world.rows.publish([row_at(60.0, reason="second")])
    assert [row.finding.reason for row in world.rows.of_job("job")] == ["second"]


def test_row_of_a_finished_job_survives_an_overtaken_one(world: World) -> None:
    world.rows.publish([replace(row_at(60.0, reason="final"), expires_at=1_900_000_000)])
    world.rows.publish([row_at(60.0, reason="overtaken")])
    assert [row.finding.reason for row in world.rows.of_job("job")] == ["final"]
    world.rows.publish([row_at(120.0, reason="further")])
    assert [row.finding.reason for row in world.rows.of_job("job")] == ["further"]


def test_stale_row_does_not_prevent_writing_the_others(world: World) -> None:
    node = replace(row_at(60.0), finding=replace(row_at(60.0).finding, node="algo-1"))
    world.rows.publish([row_at(120.0, reason="newer")])
    world.rows.publish([row_at(60.0, reason="stale"), node])
    assert world.rows.of_job("job") == [row_at(120.0, reason="newer"), node]


def test_absent_values_are_removed_on_publishing(world: World) -> None:
    full = replace(
        row_at(60.0),
        finding=replace(row_at(60.0).finding, measured=23.0, threshold=70.0),
        worst="gpu3",
        progress=Patience(seen=3, needed=500, streak=1, window_points=20, window_start=0.0, window_end=10.0),
        expires_at=9,
    )
    full = replace(
        full,
        finding=replace(full.finding, severity=Severity.HIGH, advice="Prefetch.", cost="about USD 1.00"),
        affected_percent=75.0,
    )
    full = replace(full, wasted_percent=40.0)
    world.rows.publish([replace(full, counters={"late": 1}, parameters={"threshold_p95": 70})])
    world.rows.publish([row_at(120.0)])
    assert world.rows.of_job("job") == [row_at(120.0)]


def test_clean_row_keeps_the_earlier_fired_at(world: World) -> None:
    world.rows.publish([row_at(60.0, fired_at=61.5)])
    world.rows.publish([row_at(120.0)])
    assert world.rows.of_job("job") == [row_at(120.0, fired_at=61.5)]


def test_given_a_second_fire_when_published_then_fired_at_moves(world: World) -> None:
    world.rows.publish([row_at(60.0, fired_at=61.5)])
    world.rows.publish([row_at(120.0, fired_at=121.25)])
    assert world.rows.of_job("job") == [row_at(120.0, fired_at=121.25)]


def test_published_rows_keep_what_the_fire_path_wrote(
    moto_world: MotoUnderTest,
) -> None:
    moto_world.rows.publish([row_at(60.0)])
    moto_world.update_row("job", RULE, OUTCOME)
    assert moto_world.rows.of_job("job") == [replace(row_at(60.0), **OUTCOME_FIELDS)]
    moto_world.rows.publish([row_at(120.0)])
    row = moto_world.row("job", RULE)
    assert {name: row[name] for name in OUTCOME} == OUTCOME
    assert moto_world.rows.of_job("job") == [replace(row_at(120.0), **OUTCOME_FIELDS)]


def test_verdict_joins_a_row_only_the_fire_path_wrote(
    moto_world: MotoUnderTest,
) -> None:
    moto_world.update_row("job", RULE, OUTCOME)
    moto_world.rows.publish([row_at(60.0)])
    assert moto_world.row("job", RULE).items() > OUTCOME.items()
    assert moto_world.rows.of_job("job") == [replace(row_at(60.0), **OUTCOME_FIELDS)]


def _fire(world: World, row: RuleRow) -> None:
    """Let the fire path write OUTCOME into a row, in either world."""
    if isinstance(world, MotoUnderTest):
        world.update_row(row.job, row.target, OUTCOME)
    elif isinstance(world, MemoryUnderTest):
        world.rows.record(replace(row, **OUTCOME_FIELDS))


def test_rows_of_the_whole_job_are_read_alone_in_order(
    world: World,
) -> None:
    rules = ("A", "AB", "B", "BatchSize", "OfNodesAlone", "Z9")
    whole = [
        replace(row_at(), finding=replace(row_at().finding, rule=rule)) for rule in rules if rule != "OfNodesAlone"
    ]
    nodes = [
        replace(row_at(), finding=replace(row_at().finding, rule=rule, node=node))
        for rule in rules
        for node in ("algo-1", "algo-2", "z.9")
    ]
    other = replace(row_at(), job="another")
    world.rows.publish([*nodes, *whole, other])
    assert world.rows.of_whole_job("job") == whole
    assert world.rows.of_whole_job("another") == [other]
    assert world.rows.of_whole_job("nobody") == []


def test_rows_are_read_with_what_the_fire_path_wrote(world: World) -> None:
    node = replace(row_at(), finding=replace(row_at().finding, node="algo-1"))
    world.rows.publish([row_at(), node])
    _fire(world, row_at())
    fired = replace(row_at(), **OUTCOME_FIELDS)
    assert world.rows.of_job("job") == [fired, node]
    assert world.rows.load("job", RULE) == fired
    assert world.rows.load("job", f"{RULE}#algo-1") == node
    assert world.rows.load("job", "CPUBottleneck") is None
    world.rows.publish([row_at(120.0)])
    assert world.rows.of_job("job") == [replace(row_at(120.0), **OUTCOME_FIELDS), node]


def test_a_published_row_says_nothing_of_its_fire(world: World) -> None:
    world.rows.publish([replace(row_at(), **OUTCOME_FIELDS)])
    assert world.rows.of_job("job") == [row_at()]


@on_each_world
@given(drawn=rule_rows())
def test_row_read_alone_equals_the_listed_one(world: World, drawn: RuleRow) -> None:
    row = replace(drawn, job=drawn.job + world.new_job())
    world.rows.publish([row])
    assert world.rows.of_job(row.job) == [row]
    assert world.rows.load(row.job, row.target) == row


def test_rows_are_read_with_the_id_of_a_delivered_alert(moto_world: MotoUnderTest) -> None:
    moto_world.rows.publish([row_at()])
    moto_world.update_row("job", RULE, {"AlertId": {"S": "f1"}})
    assert [stored.alert_id for stored in moto_world.rows.of_job("job")] == ["f1"]


def test_rows_are_read_with_a_stop_decision_and_any_outcome(
    moto_world: MotoUnderTest,
) -> None:
    moto_world.rows.publish([row_at()])
    moto_world.update_row("job", RULE, {"StopDecision": {"S": "stop"}, "StopWhy": {"S": "It may."}})
    assert [stored.stop for stored in moto_world.rows.of_job("job")] == [StopRecord("stop", "It may.")]
    later: dict[str, AttributeValueTypeDef] = {
        "StopAt": {"S": "2026-01-31T12:00:00Z"},
        "StopFireId": {"S": "f1"},
        "StopMade": {"BOOL": False},
    }
    moto_world.update_row("job", RULE, later)
    stored = moto_world.rows.load("job", RULE)
    assert stored is not None
    assert stored.stop == StopRecord("stop", "It may.", 1_769_860_800.0, "f1", False)


def test_stop_outcome_without_a_time_names_the_row(
    moto_world: MotoUnderTest,
) -> None:
    moto_world.rows.publish([row_at()])
    moto_world.update_row("job", RULE, {"ActionAt": {"S": "yesterday"}})
    with pytest.raises(StateCodecError, match=f"RuleState/job/{RULE}"):
        moto_world.rows.of_job("job")


def test_reason_beyond_1024_characters_is_truncated(world: World) -> None:
    world.rows.publish([row_at(60.0, reason="é" * 1024)])
    assert world.rows.of_job("job")[0].finding.reason == "é" * 1024
    world.rows.publish([row_at(60.0, reason="é" * 1025)])
    assert world.rows.of_job("job")[0].finding.reason == "é" * 1023 + "…"


def test_times_between_milliseconds_are_rounded(world: World) -> None:
    world.rows.publish([row_at(60.00049, fired_at=60.0015001)])
    assert world.rows.of_job("job") == [row_at(60.0, fired_at=60.002)]


def test_times_beyond_the_calendar_are_clamped(world: World) -> None:
    world.rows.publish([row_at(-1e300, fired_at=1e300)])
    assert world.rows.of_job("job") == [row_at(-62_135_596_800.0, fired_at=253_402_300_799.999)]


def test_rows_of_one_job_are_listed_in_sort_key_order(world: World) -> None:
    rows = [
        replace(row_at(), finding=replace(row_at().finding, rule=rule, node=node))
        for rule in ("B", "A")
        for node in ("algo-10", None, "algo-2")
    ]
    world.rows.publish([*rows, replace(row_at(), job="another")])
    listed = [row.target for row in world.rows.of_job("job")]
    assert listed == ["A", "A#algo-10", "A#algo-2", "B", "B#algo-10", "B#algo-2"]


def test_given_no_rows_when_listed_then_there_are_none(world: World) -> None:
    assert world.rows.of_job("job") == []


def test_row_only_the_state_machine_wrote_is_otherwise_empty(
    moto_world: MotoUnderTest,
) -> None:
    columns = {"Status": "FIRED", "Reason": "p95 is 23 %.", "FiredAt": "2026-01-31T12:00:00Z", "FireId": "f1"}
    moto_world.write_row("job", RULE, columns)
    [row] = moto_world.rows.of_job("job")
    finding = Finding(RULE, None, "p95 is 23 %.")
    assert row == RuleRow("job", finding, Status.FIRED, fired_at=1_769_860_800.0, fire_id="f1")


@pytest.mark.parametrize(
    "columns",
    [
        {"Status": "BROKEN", "Reason": ""},
        {"Status": "OK"},
        {"Status": "OK", "Reason": "", "FiredAt": "yesterday"},
        {"Status": "OK", "Reason": "", "FiredAt": "2026-01-31T12:00:00"},
        {"Status": "OK", "Reason": "", "DataPoints": "many"},
        {"Status": "OK", "Reason": "", "Severity": "dire"},
    ],
    ids=["unknown-status", "no-reason", "no-time", "time-without-offset", "text-for-a-number", "unknown-severity"],
)
def test_unreadable_listed_row_is_named(moto_world: MotoUnderTest, columns: dict[str, str]) -> None:
    moto_world.write_row("job", RULE, columns)
    with pytest.raises(StateCodecError, match=f"RuleState/job/{RULE}"):
        moto_world.rows.of_job("job")


@pytest.mark.parametrize(
    ("status", "times_fired", "closed", "expected"),
    [
        (Status.FIRED, 0, False, "IssuesFound"),
        (Status.OK, 1, False, "IssuesFound"),
        (Status.ERROR, 0, True, "Error"),
        (Status.WAITING_FOR_DATA, 0, False, "InProgress"),
        (Status.WARMING_UP, 0, False, "InProgress"),
        (Status.OK, 0, False, "InProgress"),
        (Status.OK, 0, True, "NoIssuesFound"),
        (Status.WAITING_FOR_DATA, 0, True, "NoIssuesFound"),
        (Status.NOT_APPLICABLE, 0, False, "NoIssuesFound"),
        (Status.DISABLED, 0, False, "NoIssuesFound"),
    ],
)
def test_managed_service_words_mean_the_same_status(
    status: Status, times_fired: int, closed: bool, expected: str
) -> None:
    row = replace(row_at(), status=status, times_fired=times_fired, expires_at=9 if closed else None)
    assert row.debugger_status == expected


@pytest.mark.parametrize("watermark_s", [None, 30.0, 60.0])
def test_later_registration_replaces_a_row_however_far(world: World, watermark_s: float | None) -> None:
    claimed = replace(row_at(60.0, fired_at=30.0), expires_at=7, violations=3)
    world.rows.publish([claimed])
    anew = replace(row_at(watermark_s), generation=1)
    world.rows.publish([anew])
    assert world.rows.of_job("job") == [anew]
    world.rows.publish([replace(row_at(90.0), expires_at=9)])
    assert world.rows.of_job("job") == [anew]
    further, behind = replace(row_at(61.0), generation=1), replace(row_at(50.0), generation=1)
    world.rows.publish([further, behind])
    assert world.rows.of_job("job") == [further]


def test_later_registration_clears_the_outcome_of_an_old_fire(
    moto_world: MotoUnderTest,
) -> None:
    moto_world.rows.publish([row_at(fired_at=30.0)])
    moto_world.update_row("job", RULE, OUTCOME)
    stop: dict[str, AttributeValueTypeDef] = {"StopDecision": {"S": "stop"}, "StopMade": {"BOOL": True}}
    moto_world.update_row("job", RULE, stop)
    moto_world.rows.publish([replace(row_at(1.0), generation=1)])
    assert not {*OUTCOME, *stop, "FiredAt"} & set(moto_world.row("job", RULE))


def test_fire_of_the_new_registration_keeps_its_outcome(
    moto_world: MotoUnderTest,
) -> None:
    moto_world.rows.publish([row_at()])
    moto_world.update_row("job", RULE, OUTCOME)
    fired = replace(row_at(1.0, fired_at=1.0), status=Status.FIRED, times_fired=1, generation=1)
    moto_world.rows.publish([fired])
    assert moto_world.row("job", RULE)["FireId"] == OUTCOME["FireId"]
