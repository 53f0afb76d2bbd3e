"""What the head of a page says of the training job."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.kernels.document import JobEntry
from trainguard.report.html.names import shown_name

LONGEST = 200


@dataclass(frozen=True, slots=True)
class JobHead:
    """Pairs of a name and a value."""

    facts: Sequence[tuple[str, str]]
    hyperparameters: Sequence[tuple[str, str]]
    left_out: int


def job_head(job: JobEntry | None) -> JobHead | None:
    """Return the job's status, ARN, instances and hyperparameters; None where nothing is known of it."""
    if job is None:
        return None
    facts = [("Status when judged", job.status), ("ARN", job.arn)]
    if job.instance_type is not None:
        count = "" if job.instance_count is None else f"{job.instance_count:,} of "
        facts.append(("Instances", f"{count}{job.instance_type}"))
    return JobHead(
        facts=[(name, shown_name(value, LONGEST)) for name, value in facts],
        hyperparameters=[(shown_name(name), shown_name(value, LONGEST)) for name, value in job.hyperparameters.items()],
        left_out=job.hyperparameters_left_out,
    )
