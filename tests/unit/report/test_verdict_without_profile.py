"""The three sentences of a job without a profile: what its training rules say, and what nobody can know."""

from dataclasses import replace

from tests.support.judged_jobs import ended, judged_job
from tests.support.verdicts import fired, quiet
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.records import Status
from trainguard.report import document
from trainguard.report.verdict import verdict_of

NO_PROFILE = replace(ended(), instance_count=None)


def told(*verdicts: Verdict) -> document.Verdict:
    return verdict_of(judged_job(*verdicts, job=NO_PROFILE, nodes=()))


def test_given_no_profile_when_losses_were_judged_then_training_was_healthy_and_the_waste_is_not_known() -> None:
    rules = [quiet("training/NotLearning"), quiet("training/LossSpike"), quiet("BatchSize", Status.NOT_APPLICABLE)]
    lacking = quiet("training/Plateau", Status.NOT_APPLICABLE)
    verdict = told(*rules, lacking)
    assert verdict.level == "healthy"
    assert verdict.health == (
        "Training was healthy: training/NotLearning found nothing wrong (BatchSize does not apply, without a profile; "
        "training/Plateau lacks the steps or values that it checks)."
    )
    assert verdict.cost.startswith("Without a profile TrainGuard cannot say what was wasted; ")


def test_given_no_profile_when_no_rule_judged_losses_then_the_job_is_not_called_healthy() -> None:
    rules = [quiet("training/ExplodingTensor"), quiet("training/NotLearning", Status.NOT_APPLICABLE)]
    verdict = told(*rules, quiet("BatchSize", Status.NOT_APPLICABLE))
    assert (verdict.level, verdict.change) == ("unknown", "Nothing needs to be changed, as far as that was judged.")
    assert verdict.health == (
        "Nothing wrong was found by training/ExplodingTensor, but no rule could judge losses or a profile (BatchSize "
        "does not apply, without a profile; training/NotLearning lacks the steps or values that it checks)."
    )


def test_given_no_profile_when_training_failed_then_its_cost_is_not_said_to_be_nothing() -> None:
    cost = told(fired("training/NotLearning")).cost
    assert cost.startswith("It is a risk; without a profile TrainGuard cannot say what it costs; ")
