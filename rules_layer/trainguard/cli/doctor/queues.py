"""The queues: how long messages wait, and what could not be handled."""

from collections.abc import Iterator, Mapping

from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult, span
from trainguard.cli.doctor.metrics import Metric, metric_values
from trainguard.cli.doctor.site import Site
from trainguard.rules.units import counted

EVALUATION_QUEUE = Check("evaluation queue")
DELAY = Check("message age")
DEAD_LETTERS = Check("dead letters")

AGE_LIMIT_S = 900.0
"""As the alarm DoorbellsWaitTooLong has it."""

_AGE_WINDOW_MIN = 10


def check_evaluation_queue(site: Site) -> Iterator[CheckResult]:
    """Say how many messages wait."""
    counts = _depth(site, site.deployment.output("DoorbellQueueUrl"))
    hidden = counts["ApproximateNumberOfMessagesNotVisible"]
    yield EVALUATION_QUEUE.ok(f"{counts['ApproximateNumberOfMessages']:,} waiting, {hidden:,} being evaluated")


def check_delay(site: Site) -> Iterator[CheckResult]:
    """Judge how long the oldest message waits."""
    queue = site.deployment.output("DoorbellQueueUrl").rpartition("/")[2]
    metric = Metric("AWS/SQS", "ApproximateAgeOfOldestMessage", {"QueueName": queue}, "Maximum")
    ages = metric_values(site, metric, _AGE_WINDOW_MIN)
    yield grade_delay(ages[0] if ages else None)


def grade_delay(age_s: float | None) -> CheckResult:
    """Judge the age of the oldest message, in seconds; None is a queue of which CloudWatch has measured nothing."""
    if age_s is None:
        return DELAY.ok(f"CloudWatch has no age of the last {_AGE_WINDOW_MIN} min: the queue has long been empty")
    found = f"the oldest waits for {span(age_s)}"
    if age_s > AGE_LIMIT_S:
        advice = "Verdicts are late: look at the functions above, and for throttles; raise evaluator_concurrency."
        return DELAY.fail(found, advice)
    return DELAY.ok(found)


def check_dead_letters(site: Site) -> Iterator[CheckResult]:
    """Judge the queues of what could not be handled."""
    outputs = ("DoorbellDeadLetterQueueUrl", "EventDeadLetterQueueUrl")
    faults = [fault for output in outputs for fault in _grade_dead_letters(site, output)]
    yield from DEAD_LETTERS.unless(faults, "none, of messages and of events")


def _grade_dead_letters(site: Site, output: str) -> Iterator[CheckResult]:
    url = site.deployment.output(output)
    waiting = sum(_depth(site, url).values())
    if waiting == 0:
        return
    if output == "DoorbellDeadLetterQueueUrl":
        arn = site.arn("sqs", url.rpartition("/")[2])
        yield DEAD_LETTERS.fail(
            f"{counted(waiting, 'message')} failed five times",
            "The log of evaluate_objects names what failed (evaluation_failures); repair it, then redrive the queue.",
            site.aws("sqs", "start-message-move-task", "--source-arn", arn),
        )
    else:
        words = ("--max-number-of-messages", "10", "--message-attribute-names", "All")
        yield DEAD_LETTERS.fail(
            f"{counted(waiting, 'event')} or notices were not delivered, or their function failed",
            "Read them, repair, and send them again.",
            site.aws("sqs", "receive-message", "--queue-url", url, *words),
        )


def _depth(site: Site, url: str) -> Mapping[str, int]:
    with asking("sqs:GetQueueAttributes"):
        answer = site.clients.sqs.get_queue_attributes(
            QueueUrl=url,
            AttributeNames=[
                "ApproximateNumberOfMessages",
                "ApproximateNumberOfMessagesNotVisible",
            ],
        )
    return {name: int(value) for name, value in answer["Attributes"].items()}
