"""Stops outside SageMaker: each owner opts in and names the job, what runs is what was profiled, and all or none."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.fires import fire_of
from tests.unit.actions.test_stop import NOW, ROW, RULE
from trainguard.core.finding import Episode
from trainguard.core.job_policy import AlertPolicy, JobPolicy, StopPolicy
from trainguard.core.ports import ResourceState
from trainguard.core.records import JobRecord, Status
from trainguard.core.timestamps import iso_time
from trainguard.stack.actions.stop import StopPreconditions
from trainguard.stack.actions.stop_resources import (
    CLOCKS_APART_S,
    LEAST_GRACE_S,
    ResourceDecision,
    decide_resource_stop,
    identity_of,
)
from trainguard.stack.actions.stop_switch import StopSwitches

NAME = "run-17@team%20a/"
TAGS = {"trainguard:stop-on-fire": "allowed", "trainguard:job": "run-17@team=2520a/"}
BATCH = ResourceState("batch-job", "b-1", TAGS, "RUNNING", runs=True, started_at=NOW - 7_200.0)
ONE = ResourceState("instance", "i-1", TAGS, "running", runs=True, started_at=NOW - 7_200.0)
TWO = replace(ONE, identity="i-2")
JOB = JobRecord(NAME, f"unknown:{NAME}", "profiles", "team a/", episodes={RULE: 2}, started_at=NOW - 7_000.0)
CASE = fire_of(NAME, JOB.arn, RULE, at=NOW - 120.0, episode=2, attempt="final")
FRESH = replace(ROW, evaluated_through=NOW - 60.0)
ENABLED = StopSwitches("enabled", None)


def decide(
    *found: ResourceState,
    named: tuple[str, ...] = ("batch-job/b-1",),
    attempt: Any = "final",
    policy: JobPolicy = JobPolicy(),  # noqa: B008  # It is frozen.
    kinds: tuple[str, ...] = ("batch-job", "instance"),
    switch: StopSwitches = ENABLED,
    known: StopPreconditions | None = None,
    **job: Any,
) -> ResourceDecision:
    case = fire_of(NAME, JOB.arn, RULE, at=NOW - 120.0, episode=2, policy=policy, attempt=attempt)
    record = replace(JOB, resources=named, **job)
    known = StopPreconditions(job=record, row=FRESH) if known is None else known
    return decide_resource_stop(case, found, switch, kinds=kinds, known=known, now=NOW)


def test_reasons_come_from_owner_resource_finding_and_switch() -> None:
    unlisted, ended = StopPolicy(rules=("CPUBottleneck",)), replace(BATCH, runs=False)
    strange = replace(ended, tags={})
    given: dict[str, Any] = {"named": (), "kinds": (), "switch": StopSwitches("disabled", None), "episodes": {}}
    for mended, found, why in (
        ({"policy": JobPolicy(alerts=AlertPolicy(staged=(RULE,)), stops=unlisted)}, strange, f"{RULE} is staged"),
        ({"policy": JobPolicy(stops=unlisted)}, strange, "SageMaker does not know"),
        ({"named": ("batch-job/b-1",)}, strange, "this deployment may not stop"),
        ({"kinds": ("batch-job",)}, strange, f"{RULE} is not among the rules"),
        ({"policy": JobPolicy()}, strange, "its owner has not opted in"),
        ({}, ended, "batch-job b-1 is RUNNING, and does not run"),
        ({}, BATCH, f"the finding of {RULE} is over"),
        ({"episodes": JOB.episodes}, BATCH, "the stop switch is 'disabled'"),
        ({"switch": ENABLED}, BATCH, "trainguard:stop-on-fire is 'allowed'"),
    ):
        given |= mended
        assert decide(found, **given).why.startswith(why)


def test_resource_with_all_conditions_met_is_stopped() -> None:
    decision = decide(BATCH)
    assert (decision.stop, decision.decision, decision.kind, decision.resources) == (
        True,
        "stop",
        "batch-job",
        ("b-1",),
    )
    assert decision.opted_in
    assert identity_of(CASE, decision) == f"unknown:{NAME} batch-job/b-1"
    both = decide(TWO, ONE, named=("instance/i-1", "instance/i-2"))
    assert (both.stop, both.resources) == (True, ("i-1", "i-2"))


@pytest.mark.parametrize(("asked", "granted"), [(0.0, LEAST_GRACE_S), (LEAST_GRACE_S + 1.0, LEAST_GRACE_S + 1.0)])
def test_first_decision_warns_people_and_mentions_checkpoints(asked: float, granted: float) -> None:
    decision = decide(BATCH, attempt="first", policy=JobPolicy(stops=StopPolicy(grace_s=asked)))
    assert (decision.stop, decision.decision, decision.stop_at) == (False, "grace", iso_time(NOW + granted))
    assert "save a checkpoint" in decision.why


def tagged(**tags: str | None) -> ResourceState:
    held = {**TAGS, **{f"trainguard:{name.replace('_', '-')}": value for name, value in tags.items()}}
    return replace(BATCH, tags={name: value for name, value in held.items() if value is not None})


@pytest.mark.parametrize(
    ("resource", "why"),
    [
        (tagged(stop_on_fire=None), "its owner has not opted in: batch-job b-1 has no tag"),
        (tagged(stop_on_fire="Allowed"), "its owner has not opted in: batch-job b-1 has the value 'Allowed'"),
        (tagged(stop_exempt=""), "batch-job b-1 is exempt by its tag trainguard:stop-exempt"),
        (tagged(stop_exempt="false"), "batch-job b-1 is exempt"),
        (tagged(job=None), "the tag trainguard:job of batch-job b-1 is None, expected 'run-17@team%20a/'"),
        (tagged(job="run-17"), "the tag trainguard:job of batch-job b-1 is 'run-17'"),
        (replace(BATCH, runs=False, status="SUCCEEDED"), "batch-job b-1 is SUCCEEDED, and does not run"),
        (replace(BATCH, objection="was terminated already"), "batch-job b-1 was terminated already"),
        (replace(BATCH, started_at=None), "it is not known since when batch-job b-1 runs"),
        (replace(BATCH, identity="b-2"), "there is no b-1 in this account and Region"),
    ],
)
def test_resource_that_is_not_stoppable_is_refused(resource: ResourceState, why: str) -> None:
    decision = decide(resource)
    assert (decision.stop, decision.decision) == (False, "refused")
    assert decision.why.startswith(why)


@pytest.mark.parametrize(("late_s", "stops"), [(0.0, True), (CLOCKS_APART_S, True), (CLOCKS_APART_S + 1.0, False)])
def test_resource_started_after_the_profile_is_a_different_one(late_s: float, stops: bool) -> None:
    assert JOB.started_at is not None
    decision = decide(replace(BATCH, started_at=JOB.started_at + late_s))
    assert decision.stop is stops
    assert stops or "and the profile began by" in decision.why


def test_finding_older_than_the_resource_is_of_an_earlier_run() -> None:
    begun = (Episode(NOW - 30_000.0, NOW - 29_000.0), Episode(NOW - 9_000.0, None))
    row = replace(FRESH, finding=replace(FRESH.finding, episodes=begun))
    known = StopPreconditions(job=replace(JOB, resources=("batch-job/b-1",)), row=row)
    assert decide(BATCH, known=known).why.endswith(f"and the profile began by {iso_time(NOW - 9_000.0)}")


def test_fire_time_counts_for_a_job_that_claims_a_late_start() -> None:
    decision = decide(replace(BATCH, started_at=NOW), started_at=NOW + 9_999.0)
    assert "and the profile began by" in decision.why


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"named": ()}, "SageMaker does not know a training job"),
        ({"kinds": ("instance",)}, "this deployment may not stop resources of the kind batch-job"),
        ({"policy": JobPolicy(alerts=AlertPolicy(staged=(RULE,)))}, f"{RULE} is staged"),
        ({"policy": JobPolicy(stops=StopPolicy(rules=("CPUBottleneck",)))}, f"{RULE} is not among the rules"),
        ({"switch": StopSwitches("disabled", None)}, ""),
        ({"episodes": {RULE: 3}}, "the finding of LowGPUUtilization is over"),
        (
            {"known": StopPreconditions(job=None, row=FRESH)},
            "SageMaker does not know a training job",
        ),
        (
            {
                "known": StopPreconditions(
                    job=replace(JOB, resources=("batch-job/b-1",)),
                    row=replace(FRESH, status=Status.OK),
                )
            },
            "LowGPUUtilization no longer fires",
        ),
    ],
    ids=["unnamed", "kind", "staged", "rule", "switch", "episode", "unknown", "over"],
)
def test_resource_with_any_unmet_condition_is_not_stopped(given: dict[str, Any], why: str) -> None:
    decision = decide(BATCH, **given)
    assert not decision.stop
    assert decision.decision == "refused"
    assert why in decision.why


@pytest.mark.parametrize(
    ("policy", "switch"),
    [
        (JobPolicy(stops=StopPolicy(dry_run=True)), ENABLED),
        (JobPolicy(), StopSwitches("dry-run", None)),
    ],
)
def test_dry_run_of_a_resource_stop_says_what_it_would_do(policy: JobPolicy, switch: StopSwitches) -> None:
    decision = decide(BATCH, policy=policy, switch=switch)
    assert (decision.stop, decision.decision) == (False, "dry-run")


def test_one_instance_not_to_be_stopped_keeps_all_running() -> None:
    named = ("instance/i-1", "instance/i-2")
    assert not decide(ONE, named=named).stop
    assert not decide(ONE, replace(TWO, tags={}), named=named).stop
    assert not decide(ONE, replace(TWO, tags={}), named=named).opted_in
