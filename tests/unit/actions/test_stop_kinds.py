"""Which stop a fire asks for: SageMaker's own job, or what runs one elsewhere; only what is needed is asked."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.faults import Faults
from tests.support.fires import fire_of
from tests.support.memory import MemoryStopBudget
from tests.unit.actions.test_stop import NOW, RULE, RUNNING
from tests.unit.actions.test_stop_resources import BATCH, CASE, ENABLED, FRESH, JOB
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import ResourceState, TrainingJobDescription
from trainguard.core.timestamps import iso_time
from trainguard.stack.actions.request import StopCase, StopDecision
from trainguard.stack.actions.stop import StopPreconditions, decide_stop, over_stop_rate
from trainguard.stack.actions.stop_resources import StopServices, decide_any_stop, decide_within_stop_rate

CREATED = iso_time(NOW - 3_600.0)


def own_case(job: str = RUNNING.job, fire_id: str = "f1") -> StopCase:
    at = NOW - 120.0
    return fire_of(job, RUNNING.arn, RULE, at=at, fire_id=fire_id, episode=2, job_created_at=CREATED, attempt="final")


OWN_CASE = own_case()
NAMED = replace(JOB, resources=("batch-job/b-1",))


class Asked:
    """Services that note what they were asked for."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def training_job(self, job: str) -> TrainingJobDescription | None:
        self.said.append(f"job {job}")
        return RUNNING if job == OWN_CASE.job else None

    def batch_jobs(self, identities: Sequence[str]) -> list[ResourceState]:
        self.said.append(f"batch {', '.join(identities)}")
        return [BATCH]


def decide(case: StopCase, *kinds: str, asked: Asked | None = None) -> tuple[StopDecision, str]:
    asked = asked or Asked()
    services = StopServices(asked.training_job, {"batch-job": asked.batch_jobs}, lambda: ENABLED, frozenset(kinds))
    return decide_any_stop(case, services, known=StopPreconditions(NAMED, FRESH, None), now=NOW)


def test_sagemaker_job_asks_no_other_service() -> None:
    asked = Asked()
    decision, identity = decide(OWN_CASE, "batch-job", asked=asked)
    assert (asked.said, identity) == ([f"job {OWN_CASE.job}"], OWN_CASE.identity)
    known = StopPreconditions(NAMED, FRESH, None)
    assert decision == decide_stop(OWN_CASE, RUNNING, ENABLED, known=known, now=NOW)


def test_external_job_asks_its_resource_and_counts_as_one_stop() -> None:
    asked = Asked()
    decision, identity = decide(CASE, "batch-job", asked=asked)
    assert (asked.said, decision.stop) == (["batch b-1"], True)
    assert identity == f"{CASE.job_arn} batch-job/b-1"


@pytest.mark.parametrize(("kinds", "asks"), [((), f"job {CASE.job}"), (("instance",), None)], ids=["none", "another"])
def test_external_job_of_a_forbidden_kind_is_not_looked_up(kinds: tuple[str, ...], asks: str | None) -> None:
    asked = Asked()
    decision, _ = decide(CASE, *kinds, asked=asked)
    assert (asked.said, decision.stop) == ([asks] if asks else [], False)


def test_unanswered_service_call_leaves_the_stop_undecided() -> None:
    def silent(_: Sequence[str]) -> list[ResourceState]:
        raise PortUnavailableError("Batch", "DescribeJobs", "timed out")

    services = StopServices(Asked().training_job, {"batch-job": silent}, lambda: ENABLED, {"batch-job"})
    with pytest.raises(PortUnavailableError):
        decide_any_stop(CASE, services, known=StopPreconditions(NAMED, FRESH, None), now=NOW)


def within(budget: MemoryStopBudget, case: StopCase) -> StopDecision:
    services = StopServices(Asked().training_job, {}, lambda: ENABLED, frozenset())
    known = StopPreconditions(NAMED, FRESH, None)
    return decide_within_stop_rate(case, services, budget, 1, known=known, now=NOW)[0]


def test_hourly_stop_is_used_by_granted_stops_and_once_per_job() -> None:
    budget = MemoryStopBudget(faults=Faults())
    refused = within(
        budget, fire_of("another", RUNNING.arn, RULE, at=NOW - 120.0, fire_id="f0", episode=2, job_created_at=CREATED)
    )
    assert not refused.stop
    assert refused != over_stop_rate(1)
    assert within(budget, OWN_CASE).stop
    assert within(budget, OWN_CASE).stop
    assert not budget.take("f9", "other", now=NOW, limit=1)


def test_ceiling_used_up_by_another_job_is_the_reason() -> None:
    budget = MemoryStopBudget(faults=Faults())
    assert budget.take("f9", "other", now=NOW, limit=1)
    assert within(budget, OWN_CASE) == over_stop_rate(1)
