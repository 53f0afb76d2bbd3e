"""The job as a whole: when it was what, and how much of it there was."""

from trainguard.report.coverage import data_covered, data_missing
from trainguard.report.document import JobSummary, Span
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.facts import first_step_at, last_step_end, steps
from trainguard.report.gpu_counts import gpus_of_type
from trainguard.report.phrasing import shown_time
from trainguard.run_links import plain_links


def job_summary(judged: EvaluatedJob) -> JobSummary:
    """Summarise a job; a part of its time is given only where both its ends were seen."""
    job = judged.job
    start, end = judged.started_at, judged.ended_at
    first, last = first_step_at(judged), last_step_end(judged)
    duration_s = judged.duration_s
    return JobSummary(
        name=job.job,
        arn=job.arn,
        status=job.status.value,
        instance_type=job.instance_type,
        instance_count=job.instance_count,
        gpus=judged.gpus,
        started_at=shown_time(start),
        ended_at=shown_time(end),
        duration_s=None if duration_s is None else round(duration_s, 3),
        evaluated_through=shown_time(judged.streams.watermark_s),
        initialization=_span(start, first, duration_s),
        training_loop=_span(first, last, duration_s),
        finalization=_span(last, end, duration_s),
        steps=steps(judged),
        data_covered=data_covered(judged),
        data_missing=data_missing(judged),
        gpus_of_type=gpus_of_type(judged),
        run_links=plain_links(job.run_links),
    )


def _span(start: float | None, end: float | None, whole_s: float | None) -> Span | None:
    """Return the time between; clocks of nodes and of SageMaker differ, so an end before its start is the start."""
    if start is None or end is None:
        return None
    end = max(start, end)
    length_s = round(end - start, 3)
    share = min(length_s / whole_s, 1.0) if whole_s else None
    return Span(start=shown_time(start) or "", end=shown_time(end) or "", duration_s=length_s, share=share)
