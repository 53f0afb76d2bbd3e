"""Stopping is opt-in, looks at the job as it is now, and never at an upload."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.fires import fire_of
from trainguard.core.brakes import NO_BRAKES, Braked, BrakeList, new_brake, read_brakes
from trainguard.core.finding import Finding
from trainguard.core.job_policy import AlertPolicy, JobPolicy, StopPolicy
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status
from trainguard.core.timestamps import iso_time
from trainguard.stack.actions.request import StopDecision
from trainguard.stack.actions.stop import (
    MAX_FIRE_AGE_S,
    NODES_APART_S,
    UNSEEN_AGE_S,
    StopPreconditions,
    decide_stop,
    over_stop_rate,
)
from trainguard.stack.actions.stop_switch import StopSwitches

NOW = 1_795_248_000.0
ALLOWED = {"trainguard:stop-on-fire": "allowed"}
RUNNING = TrainingJobDescription(
    job="job",
    arn="arn:aws:sagemaker:eu-west-1:111122223333:training-job/job",
    status=JobStatus.IN_PROGRESS,
    secondary_status="Training",
    instance_type="ml.p5.48xlarge",
    instance_count=2,
    created_at=NOW - 3_600.0,
    started_at=None,
    ended_at=None,
    profiling_interval_ms=500,
    framework_profiling=False,
    tags=ALLOWED,
    profile_uri="s3://profiles",
)


RULE = "LowGPUUtilization"
ROW = RuleRow(RUNNING.job, Finding(RULE, None, "low."), Status.FIRED, evaluated_through=NOW - 90.0, fire_id="f1")
NODE_ROW = RuleRow(RUNNING.job, Finding(RULE, "algo-1", "low."), Status.FIRED, evaluated_through=NOW - 90.0)
JOB = JobRecord(RUNNING.job, RUNNING.arn, "profiles", "", episodes={RULE: 2, "CPUBottleneck": 7})


def seen(stored: RuleRow, status: Status, watermark_s: float | None) -> RuleRow:
    """Return the row as it was published with a status and time."""
    finding = replace(stored.finding, reason="all fine.")
    return replace(stored, finding=finding, status=status, evaluated_through=watermark_s)


def decide(
    job: str,
    description: TrainingJobDescription | None,
    switch: str,
    age_s: float = 90.0,
    *,
    row: RuleRow | None = ROW,
    node_row: RuleRow | None = None,
    registered: JobRecord | None = JOB,
    override: str | None = None,
    brakes: BrakeList = NO_BRAKES,
    **changes: Any,
) -> StopDecision:
    given: dict[str, Any] = {
        "job_arn": RUNNING.arn,
        "rule": RULE,
        "episode": 2,
        "node": "algo-1",
        "job_created_at": iso_time(NOW - 3_600.0),
    }
    case = fire_of(job, at=NOW - age_s, **given | changes)
    known = StopPreconditions(job=registered, row=row, node_row=node_row)
    return decide_stop(case, description, StopSwitches(switch, override, brakes), known=known, now=NOW)


BRAKE = new_brake("b-1", Braked.STOPS, by="arn:aws:iam::1:user/ada", why="an audit", now=NOW - 60.0)


@pytest.mark.parametrize("attempt", ["first", "final"])
@pytest.mark.parametrize(
    ("changes", "stop"),
    [
        ({}, False),
        ({"job": "job"}, False),
        ({"rule": RULE}, False),
        ({"until": iso_time(NOW + 1.0)}, False),
        ({"what": Braked.EVALUATION}, False),
        ({"until": iso_time(NOW)}, True),
        ({"job": "other"}, True),
        ({"rule": "CPUBottleneck"}, True),
        ({"what": Braked.ALERTS}, True),
        ({"what": Braked.EVALUATION, "job": "other"}, True),
    ],
)
def test_brake_forbids_the_stops_that_it_covers(changes: dict[str, Any], stop: bool, attempt: str) -> None:
    brakes = BrakeList((msgspec.structs.replace(BRAKE, **changes),))
    decision = decide("job", RUNNING, "enabled", brakes=brakes, attempt=attempt)
    assert (decision.stop, decision.opted_in) == (stop, True)
    assert stop or decision.why.startswith("an operator has braked ")
    assert stop or "b-1 of ada" in decision.why


@pytest.mark.parametrize("switch", ["enabled", "dry-run"])
def test_brake_that_cannot_be_read_forbids_stops(switch: str) -> None:
    decision = decide("job", RUNNING, switch, brakes=read_brakes("[7]"))
    assert (decision.stop, decision.decision) == (False, "refused")
    assert "cannot be read" in decision.why


@pytest.mark.parametrize("attempt", ["first", "final"])
@pytest.mark.parametrize("uri", [None, "", "s3://", "https://profiles"])
def test_job_with_unknown_profile_location_is_not_stopped(uri: str | None, attempt: str) -> None:
    decision = decide("job", replace(RUNNING, profile_uri=uri), "enabled", attempt=attempt)
    assert decision.decision == "refused"
    assert "nothing says where the profile of job job lies" in decision.why


@pytest.mark.parametrize(("age_s", "stop"), [(MAX_FIRE_AGE_S, True), (MAX_FIRE_AGE_S + 1.0, False)])
def test_backlog_fire_over_half_an_hour_old_stops_nothing(age_s: float, stop: bool) -> None:
    decision = decide("job", RUNNING, "enabled", age_s)
    assert decision.stop is stop
    assert stop or "min old" in decision.why


FIRED_AT = NOW - 90.0
UNPUBLISHED = seen(ROW, Status.FIRED, FIRED_AT - 60.0)


@pytest.mark.parametrize(
    ("row", "node_row"),
    [
        (UNPUBLISHED, None),
        (UNPUBLISHED, seen(NODE_ROW, Status.OK, FIRED_AT - 60.0)),
        (UNPUBLISHED, seen(NODE_ROW, Status.FIRED, FIRED_AT + 60.0)),
        (seen(ROW, Status.FIRED, None), None),
        (seen(ROW, Status.OK, FIRED_AT + NODES_APART_S), None),
        (seen(ROW, Status.FIRED, FIRED_AT + 60.0), seen(NODE_ROW, Status.FIRED, FIRED_AT)),
    ],
)
def test_fresh_fire_without_a_newer_row_stops(row: RuleRow, node_row: RuleRow | None) -> None:
    assert decide("job", RUNNING, "enabled", row=row, node_row=node_row).stop


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.FIRED])
@pytest.mark.parametrize(
    ("published", "node", "later_s", "where"),
    [
        ("row", "algo-1", NODES_APART_S + 1.0, ""),
        ("row", "*", 1.0, ""),
        ("node_row", "algo-1", 1.0, " on algo-1"),
    ],
)
def test_fire_of_a_finding_known_to_be_over_is_refused(
    published: str, node: str, later_s: float, where: str, status: Status
) -> None:
    rows: dict[str, Any] = {"row": ROW, "node_row": None if node == "*" else NODE_ROW}
    rows[published] = seen(rows[published] or NODE_ROW, status, FIRED_AT + later_s)
    decision = decide("job", RUNNING, "enabled", node=node, **rows)
    assert (decision.stop, decision.why) == (False, f"{RULE} no longer fires{where}: all fine.")


LOST = f"the row of {RULE}"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"registered": None}, "TrainGuard no longer knows job job"),
        ({"registered": replace(JOB, episodes={RULE: 3})}, f"the finding of {RULE} is over: its episode 2 has ended"),
        ({"registered": replace(JOB, episodes={})}, f"the finding of {RULE} is over: its episode 2 has ended"),
        ({"row": None}, f"the row of {RULE} is gone"),
        (
            {"row": replace(ROW, fire_id="f2")},
            f"a newer fire, f2, has taken over {LOST}, or this one could not be written there",
        ),
        (
            {"row": replace(ROW, fire_id=None)},
            f"{LOST} names no fire: that it fired could not be written there",
        ),
    ],
)
def test_fire_no_longer_supported_by_job_or_row_is_refused(changes: dict[str, Any], why: str) -> None:
    decision = decide("job", RUNNING, "enabled", **changes)
    assert (decision.stop, decision.decision, decision.why) == (False, "refused", why)


def test_first_episode_may_stop_a_job_that_has_counted_none() -> None:
    assert decide("job", RUNNING, "enabled", episode=0, registered=replace(JOB, episodes={})).stop


@pytest.mark.parametrize(
    ("age_s", "row", "node_row", "stop"),
    [
        (UNSEEN_AGE_S, "before", None, True),
        (UNSEEN_AGE_S + 1.0, "before", None, False),
        (UNSEEN_AGE_S + 1.0, "before", "before", False),
        (UNSEEN_AGE_S + 1.0, "since", None, True),
        (UNSEEN_AGE_S + 1.0, "before", "since", True),
        (MAX_FIRE_AGE_S, "since", "since", True),
    ],
)
def test_backlog_fire_without_a_newer_evaluation_stops_nothing(
    age_s: float, row: str, node_row: str | None, stop: bool
) -> None:
    watermark_s = {"before": NOW - age_s - 1.0, "since": NOW - age_s}
    given: dict[str, Any] = {
        "row": seen(ROW, Status.FIRED, watermark_s[row]),
        "node_row": None if node_row is None else seen(NODE_ROW, Status.FIRED, watermark_s[node_row]),
    }
    decision = decide("job", RUNNING, "enabled", age_s, **given)
    assert decision.stop is stop
    assert stop or decision.why.startswith(f"{RULE} was not evaluated since it fired")


@pytest.mark.parametrize(
    ("changes", "opted_in"),
    [
        ({}, True),
        ({"switch": "disabled"}, True),
        ({"description": replace(RUNNING, secondary_status="Uploading")}, True),
        ({"registered": None}, True),
        ({"description": replace(RUNNING, tags={})}, False),
        ({"description": None}, False),
        ({"policy": JobPolicy(stops=StopPolicy(rules=("CPUBottleneck",)))}, False),
        ({"policy": JobPolicy(alerts=AlertPolicy(staged=(RULE,)))}, False),
    ],
)
def test_decision_records_whether_the_owner_asked_for_stops(changes: dict[str, Any], opted_in: bool) -> None:
    given: dict[str, Any] = {"description": RUNNING, "switch": "enabled"} | changes
    assert decide("job", **given).opted_in is opted_in
    assert over_stop_rate(5).opted_in


LATER = replace(RUNNING, arn="arn:later", profile_uri=None, secondary_status="Uploading")


def test_reasons_come_from_owner_job_finding_and_switch() -> None:
    unlisted = StopPolicy(rules=("CPUBottleneck",))
    given: dict[str, Any] = {"description": None, "switch": "disabled", "registered": None}
    for mended, why in (
        ({"policy": JobPolicy(alerts=AlertPolicy(staged=(RULE,)), stops=unlisted)}, f"{RULE} is staged"),
        ({"policy": JobPolicy(stops=unlisted)}, "SageMaker does not know"),
        ({"description": replace(LATER, tags={})}, "its owner has not opted in"),
        ({"description": LATER}, f"{RULE} is not among the rules"),
        ({"policy": JobPolicy()}, "nothing says where the profile"),
        ({"description": replace(LATER, profile_uri=RUNNING.profile_uri)}, "the job of that name is"),
        ({"description": replace(RUNNING, secondary_status="Uploading")}, "job job is uploading"),
        ({"description": RUNNING}, "TrainGuard no longer knows"),
        ({"registered": JOB}, "the stop switch is 'disabled'"),
        ({"switch": "enabled"}, "trainguard:stop-on-fire is 'allowed'"),
    ):
        given |= mended
        assert decide("job", **given).why.startswith(why)


@pytest.mark.parametrize(("lead_s", "stop"), [(300.0, True), (301.0, False)])
def test_fire_of_a_clock_that_is_ahead_stops_nothing(lead_s: float, stop: bool) -> None:
    decision = decide("job", RUNNING, "enabled", -lead_s)
    assert decision.stop is stop
    assert stop or "in the future" in decision.why


def test_opted_in_running_job_is_stopped_if_the_switch_is_on() -> None:
    decision = decide("job", RUNNING, "enabled")
    assert (decision.stop, decision.decision) == (True, "stop")


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"trainguard:stop-on-fire": "Allowed"},
        {"trainguard:stop-on-fire": "allowed "},
        {"trainguard:stop-on-fire": "true"},
        {"trainguard:stop-on-fire": ""},
        {"Trainguard:stop-on-fire": "allowed"},
        {"stop-on-fire": "allowed"},
    ],
)
def test_any_other_tag_than_the_exact_one_is_refused_by_name(tags: Any) -> None:
    decision = decide("job", replace(RUNNING, tags=tags), "enabled")
    assert (decision.stop, decision.decision) == (False, "refused")
    assert "has not opted in" in decision.why


@pytest.mark.parametrize("status", [status for status in JobStatus if status is not JobStatus.IN_PROGRESS])
def test_job_that_is_not_in_progress_is_refused(status: Any) -> None:
    decision = decide("job", replace(RUNNING, status=status), "enabled")
    assert not decision.stop
    assert status.value in decision.why


def test_job_that_uploads_its_model_is_refused() -> None:
    decision = decide("job", replace(RUNNING, secondary_status="Uploading"), "enabled")
    assert not decision.stop
    assert "uploading" in decision.why


def test_job_unknown_to_sagemaker_is_refused() -> None:
    assert not decide("job", None, "enabled").stop


def test_dry_run_of_the_stack_says_what_it_would_have_done() -> None:
    decision = decide("job", RUNNING, "dry-run")
    assert (decision.stop, decision.decision) == (False, "dry-run")
    assert "would have been stopped" in decision.why


@pytest.mark.parametrize("switch", ["disabled", "", "ENABLED", "enabled ", "yes"])
def test_given_any_other_switch_when_decided_then_it_is_refused(switch: Any) -> None:
    decision = decide("job", RUNNING, switch)
    assert (decision.stop, decision.decision) == (False, "refused")
    assert repr(switch) in decision.why


@pytest.mark.parametrize(
    ("deployed", "override", "decision", "why"),
    [
        ("enabled", "disabled", "refused", "its override is 'disabled'"),
        ("dry-run", "disabled", "refused", "its override is 'disabled'"),
        ("enabled", "dry-run", "dry-run", "its override is 'dry-run': job job would have been stopped"),
        ("disabled", "enabled", "refused", "the stop switch is 'disabled'"),
        ("disabled", "dry-run", "refused", "the stop switch is 'disabled'"),
        ("dry-run", "enabled", "dry-run", "the stop switch is 'dry-run': job job would have been stopped"),
        ("disabled", "disabled", "refused", "the stop switch is 'disabled' and its override is 'disabled'"),
        ("enabled", "Disabled", "refused", "its override is 'Disabled'"),
        ("enabled", "", "refused", "its override is ''"),
        ("dry-run", "on", "refused", "its override is 'on'"),
        ("enabled", "x" * 4_000, "refused", f"its override is {'x' * 40!r}"),
    ],
)
def test_stricter_of_override_and_stack_counts_and_is_named(
    deployed: str, override: str, decision: str, why: str
) -> None:
    found = decide("job", RUNNING, deployed, override=override)
    assert (found.stop, found.decision, found.why) == (False, decision, why)


@pytest.mark.parametrize("override", [None, "enabled"])
def test_absent_or_permissive_override_keeps_the_stack_value(
    override: str | None,
) -> None:
    assert decide("job", RUNNING, "enabled", override=override).stop
    assert decide("job", RUNNING, "disabled", override=override).decision == "refused"


@pytest.mark.parametrize(
    ("rules", "stop"), [(None, True), ((RULE,), True), (("all",), True), ((), False), (("CPUBottleneck",), False)]
)
def test_only_rules_on_the_stop_list_may_stop(rules: Any, stop: bool) -> None:
    decision = decide("job", RUNNING, "enabled", policy=JobPolicy(stops=StopPolicy(rules=rules)))
    assert decision.stop is stop
    assert stop or decision.why == f"{RULE} is not among the rules that may stop job job"


@pytest.mark.parametrize("staged", [(RULE,), ("all",)])
def test_given_a_staged_rule_when_decided_then_it_stops_nothing(staged: Any) -> None:
    decision = decide("job", RUNNING, "enabled", policy=JobPolicy(alerts=AlertPolicy(staged=staged)))
    assert (decision.stop, decision.why) == (False, f"{RULE} is staged")


def test_muted_rule_may_still_stop() -> None:
    assert decide("job", RUNNING, "enabled", policy=JobPolicy(alerts=AlertPolicy(muted=(RULE,)))).stop


def test_dry_run_of_the_owner_says_what_it_does_without_waiting() -> None:
    policy = JobPolicy(stops=StopPolicy(dry_run=True, grace_s=600.0))
    decision = decide("job", RUNNING, "enabled", policy=policy)
    assert (decision.stop, decision.decision, decision.stop_at) == (False, "dry-run", None)
    assert decision.why == "its owner asked for a dry run: job job would have been stopped after a grace time of 10 min"


@pytest.mark.parametrize("switch", ["disabled", "Enabled"])
def test_dry_run_of_the_owner_is_refused_if_the_switch_is_off(switch: str) -> None:
    assert decide("job", RUNNING, switch, policy=JobPolicy(stops=StopPolicy(dry_run=True))).decision == "refused"


@pytest.mark.parametrize("arn", ["arn:aws:sagemaker:us-east-1:111122223333:training-job/job", "unknown:job"])
def test_arn_other_than_the_registered_one_is_refused(arn: str) -> None:
    decision = decide("job", RUNNING, "enabled", job_arn=arn)
    assert not decision.stop
    assert decision.why == f"the job of that name is {RUNNING.arn}, not {arn}"


@pytest.mark.parametrize(("later_s", "stop"), [(0.0, True), (0.9, True), (-0.9, True), (1.1, False), (86_400.0, False)])
def test_later_job_of_the_same_name_is_told_by_its_creation_time(later_s: float, stop: bool) -> None:
    decision = decide("job", replace(RUNNING, created_at=NOW - 3_600.0 + later_s), "enabled")
    assert decision.stop is stop
    assert stop or "another job of that name was created at" in decision.why


@pytest.mark.parametrize(("described", "registered"), [(None, iso_time(NOW)), (NOW, None)])
def test_job_with_unknown_creation_time_is_refused(described: float | None, registered: str | None) -> None:
    decision = decide("job", replace(RUNNING, created_at=described), "enabled", job_created_at=registered)
    assert (decision.stop, "it is not known when job job was created" in decision.why) == (False, True)


def test_refusal_in_a_full_hour_names_the_ceiling() -> None:
    refused = over_stop_rate(5)
    assert (refused.stop, refused.decision) == (False, "refused")
    assert refused.why.startswith("this deployment makes at most 5 stops an hour")
