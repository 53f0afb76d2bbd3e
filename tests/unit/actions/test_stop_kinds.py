"""Which stop a fire asks for: SageMaker's own job, or what runs one elsewhere; only what is needed is asked."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from tests.unit.actions.test_stop import NOW, RULE, RUNNING
from tests.unit.actions.test_stop_resources import BATCH, CASE, ENABLED, FRESH, JOB
from trainguard.actions.request import StopCase, StopDecision
from trainguard.actions.stop import decide_stop, over_ceiling
from trainguard.actions.stop_kinds import StopServices, decide_any_stop, decide_within_ceiling
from trainguard.actions.stop_preconditions import StopPreconditions
from trainguard.adapters.memory.faults import Faults
from trainguard.adapters.memory.stop_budget import MemoryStopBudget
from trainguard.errors import PortUnavailableError
from trainguard.ports import ResourceState, TrainingJobDescription
from trainguard.timestamps import iso_time

CREATED = iso_time(NOW - 3_600.0)
OWN_CASE = StopCase(RUNNING.job, RUNNING.arn, RULE, "f1", 2, "*", iso_time(NOW - 120.0), CREATED, attempt="final")
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


def test_given_a_job_of_sagemaker_when_decided_then_no_other_service_is_asked() -> None:
    asked = Asked()
    decision, identity = decide(OWN_CASE, "batch-job", asked=asked)
    assert (asked.said, identity) == ([f"job {OWN_CASE.job}"], OWN_CASE.identity)
    known = StopPreconditions(NAMED, FRESH, None)
    assert decision == decide_stop(OWN_CASE, RUNNING, ENABLED, known=known, now=NOW)


def test_given_a_job_elsewhere_when_its_kind_may_be_stopped_then_its_resource_is_asked_and_counts_as_one_stop() -> None:
    asked = Asked()
    decision, identity = decide(CASE, "batch-job", asked=asked)
    assert (asked.said, decision.stop) == (["batch b-1"], True)
    assert identity == f"{CASE.job_arn} batch-job/b-1"


@pytest.mark.parametrize(("kinds", "asks"), [((), f"job {CASE.job}"), (("instance",), None)], ids=["none", "another"])
def test_given_a_job_elsewhere_when_its_kind_may_not_be_stopped_then_its_service_is_not_asked(
    kinds: tuple[str, ...], asks: str | None
) -> None:
    asked = Asked()
    decision, _ = decide(CASE, *kinds, asked=asked)
    assert (asked.said, decision.stop) == ([asks] if asks else [], False)


def test_given_a_service_that_does_not_answer_when_asked_then_nothing_is_decided() -> None:
    def silent(_: Sequence[str]) -> list[ResourceState]:
        raise PortUnavailableError("Batch", "DescribeJobs", "timed out")

    services = StopServices(Asked().training_job, {"batch-job": silent}, lambda: ENABLED, {"batch-job"})
    with pytest.raises(PortUnavailableError):
        decide_any_stop(CASE, services, known=StopPreconditions(NAMED, FRESH, None), now=NOW)


def within(budget: MemoryStopBudget, case: StopCase) -> StopDecision:
    services = StopServices(Asked().training_job, {}, lambda: ENABLED, frozenset())
    known = StopPreconditions(NAMED, FRESH, None)
    return decide_within_ceiling(case, services, budget, 1, known=known, now=NOW)


def test_given_one_stop_an_hour_when_decided_then_only_a_granted_stop_takes_it_and_once_a_job() -> None:
    budget = MemoryStopBudget(faults=Faults())
    refused = within(budget, msgspec.structs.replace(OWN_CASE, job="another", fire_id="f0"))
    assert not refused.stop
    assert refused != over_ceiling(1)
    assert within(budget, OWN_CASE).stop
    assert within(budget, OWN_CASE).stop
    assert not budget.take("f9", "other", now=NOW, limit=1)


def test_given_another_job_that_took_the_only_stop_of_the_hour_when_decided_then_the_ceiling_is_the_reason() -> None:
    budget = MemoryStopBudget(faults=Faults())
    assert budget.take("f9", "other", now=NOW, limit=1)
    assert within(budget, OWN_CASE) == over_ceiling(1)
