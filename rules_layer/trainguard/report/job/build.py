"""A job's report: from its items alone, or with time lines from its profile read again; and its files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from trainguard.core.errors import ReportPageError
from trainguard.core.finding import EpisodeEntry, finding_fields
from trainguard.core.layout import REPORT_JSON, REPORT_PAGE, plain_links
from trainguard.core.ports import ProfileObjects
from trainguard.core.records import JobRecord, StreamRecord
from trainguard.core.timestamps import epoch_of, iso_time
from trainguard.core.units import counted
from trainguard.engine.diagnosis.text import counted_rules, sentences_of
from trainguard.engine.family import Families
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.planning.document import FinishForecast, Lacking
from trainguard.planning.finish import Point, forecast_finish
from trainguard.pricing.cost import CostEstimate
from trainguard.report.comparison import compared
from trainguard.report.document import (
    FindingEntry,
    Headline,
    JobSummary,
    Report,
    Scope,
    Span,
    Spending,
    encode_document,
)
from trainguard.report.evaluated_job import EvaluatedJob, evaluate_job, shown_time
from trainguard.report.job.coverage import coverage, data_covered, data_missing
from trainguard.report.job.facts import gpu_remarks, gpus_of_type, kernel_report, last_step_end, not_collected, steps
from trainguard.report.job.rule_entries import managed_files, rule_entries
from trainguard.report.timeline.build import build_timelines
from trainguard.report.timeline.digest import NodeDigest
from trainguard.report.timeline.series import Episode, Timelines
from trainguard.report.training.digest import TrainingDigest
from trainguard.report.training.document import FirstFire, TrainingReport, rule_fires, training_report
from trainguard.report.training.xgboost_files import xgboost_files


def job_summary(judged: EvaluatedJob) -> JobSummary:
    """Summarise a job; a part of its time is given only where both its ends were seen."""
    job = judged.job
    start, end = judged.started_at, judged.ended_at
    first, last = judged.profiler.first_step_at, last_step_end(judged)
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
    """Return the time between; clocks differ, so an end before its start is the start."""
    if start is None or end is None:
        return None
    end = max(start, end)
    length_s = round(end - start, 3)
    share = min(length_s / whole_s, 1.0) if whole_s else None
    return Span(start=shown_time(start) or "", end=shown_time(end) or "", duration_s=length_s, share=share)


# Of the nodes, and of the GPUs, of an episode: one that goes on has all of a job's.
MOST_NAMES = 512


def finding_entry(ranked: RankedFinding, judged: EvaluatedJob) -> FindingEntry:
    verdict, (affected, nodes) = ranked.verdict, ranked.verdict.reach
    of_finding = finding_fields(ranked.finding)
    columns = {name: value for name, value in of_finding.items() if name in FindingEntry.__struct_fields__}
    episodes: list[EpisodeEntry] = columns["episodes"]
    columns["episodes"] = [
        msgspec.structs.replace(each, nodes=each.nodes[:MOST_NAMES], gpus=each.gpus[:MOST_NAMES]) for each in episodes
    ]
    columns["facts"] = list(ranked.finding.facts)
    lost = _lost(ranked, judged)
    columns["cost"] = None if lost is None else ranked.finding.cost
    return FindingEntry(
        **columns,
        lost=lost,
        score=round(ranked.score, 1),
        ongoing=ranked.ongoing,
        affected_share=verdict.affected_share,
        wasted_share=ranked.wasted_share,
        worst=verdict.result.worst,
        nodes_affected=affected,
        nodes=nodes,
        explained_by=ranked.explained_by,
        explained_share=round(ranked.explained_share, 4),
        reasons={rule: round(part, 4) for rule, part in ranked.reasons.items() if part},
        earlier_episodes=verdict.earlier_episodes,
        names_left_out=sum(max(len(names) - MOST_NAMES, 0) for each in episodes for names in (each.nodes, each.gpus)),
    )


def _lost(ranked: RankedFinding, judged: EvaluatedJob) -> float | None:
    loss = ranked.loss
    if (
        loss is None
        or loss.usd is None
        or ranked.finding.cost is None
        or not isinstance(judged.paid_time.estimate(), CostEstimate)
    ):
        return None
    return round(loss.usd, 2)


def episodes_of(findings: Sequence[FindingEntry]) -> list[Episode]:
    return [
        (epoch_of(each.start), None if each.end is None else epoch_of(each.end), finding.severity)
        for finding in findings
        for each in finding.episodes
    ]


def unmarked(findings: Sequence[FindingEntry]) -> list[str]:
    missing = sum(finding.earlier_episodes for finding in findings)
    total = missing + sum(len(finding.episodes) for finding in findings)
    return [f"{missing:,} of {total:,} episodes are not marked: of each finding, the newest are."] if missing else []


def points_of(training: TrainingReport | None) -> list[Point]:
    """Return when which step was done, of the series of a training with most times."""
    series = [] if training is None else training.series
    found = max(series, key=lambda each: len(set(each.at)), default=None)
    return [] if found is None or len(set(found.at)) < 2 else list(zip(found.at, found.steps, strict=True))


def forecast_of(
    job: JobSummary, training: TrainingReport | None, total: int, limit_s: float | None
) -> FinishForecast | Lacking:
    """Forecast the end of ``total`` steps; ``limit_s`` seconds after its start the job is ended."""
    points = points_of(training)
    if not points:
        return Lacking.TIMED_STEPS
    begin = points[0][0] if job.started_at is None else epoch_of(job.started_at)
    found = forecast_finish(points, total, None if limit_s is None else begin + limit_s)
    return Lacking.STEPS_LEFT if isinstance(found, FinishForecast) and found.done >= total else found


MOST_NODES = 128


@dataclass(frozen=True, slots=True)
class BuiltReport:
    """A report, and the five-field files of the managed service by name; how long the job will be, and may take."""

    report: Report
    managed: Mapping[str, bytes]
    fires: Sequence[FirstFire] = ()
    total_steps: int | None = None
    limit_s: float | None = None

    def with_training(self, digest: TrainingDigest) -> "BuiltReport":
        """Return the report, of scope ``full``, with what the job's tensors and scalars show, and when it will end."""
        training, job = training_report(digest, self.fires), self.report.job
        finish = None
        if self.total_steps is not None and not job.has_ended:
            found = forecast_of(job, training, self.total_steps, self.limit_s)
            finish = found if isinstance(found, FinishForecast) else None
        report = msgspec.structs.replace(self.report, scope="full", training=training, finish=finish)
        return replace(self, report=report)

    def without_training(self) -> "BuiltReport":
        """Return the report as before `with_training`."""
        scope: Scope = "state" if self.report.timelines is None else "full"
        return replace(self, report=msgspec.structs.replace(self.report, scope=scope, training=None, finish=None))

    def compared_with(self, other: Report) -> "BuiltReport":
        return replace(self, report=msgspec.structs.replace(self.report, comparison=compared(self.report, other)))

    def without_kernel_files(self) -> "BuiltReport":
        """Return the report of a job whose ``kernels.html`` and ``kernels.json`` nobody wrote beside it."""
        if self.report.kernels is None:
            return self
        kernels = msgspec.structs.replace(self.report.kernels, page=None, document=None)
        return replace(self, report=msgspec.structs.replace(self.report, kernels=kernels))


def build_report(
    job: JobRecord,
    records: Sequence[StreamRecord],
    *,
    now: float,
    plan: RulePlan | None = None,
    families: Families = FAMILIES,
    digests: Sequence[NodeDigest] = (),
    missing: Sequence[str] = (),
) -> BuiltReport:
    """Build the report of a job from all its items; ``now`` is in epoch seconds, ``plan`` by default the job's own.

    ``digests`` are the profile read again, which gives scope ``full``; ``missing`` says what of it could not be read.
    Raises StateCodecError when an item cannot be decoded; TimelinePartError when the digests are not of one axis.
    """
    judged = evaluate_job(job, families.plan(job) if plan is None else plan, records, families)
    scope: Scope = "full" if digests else "state"
    verdict = _verdict(judged)
    findings = [finding_entry(finding, judged) for finding in judged.findings]
    report = Report(
        generated_at=iso_time(now),
        scope=scope,
        final=judged.final,
        healthy=verdict.level == "healthy",
        verdict=verdict,
        summary=f"{verdict.health} {counted_rules(judged, judged.diagnosis.judged)}",
        fired=[each.rule for each in judged.verdicts if each.history.times_fired],
        findings=findings,
        cost=_spending(judged),
        ledger=list(judged.diagnosis.ledger),
        ledger_by_node=judged.ledger.by_node()[:MOST_NODES],
        goodput=judged.ledger.goodput,
        job=job_summary(judged),
        coverage=coverage(judged),
        not_collected=not_collected(judged, scope, missing),
        rules=rule_entries(judged),
        kernels=kernel_report(judged),
        timelines=_timelines(judged, findings, digests, missing) if digests else None,
    )
    managed = managed_files(judged.verdicts, judged.plan)
    return BuiltReport(report, managed, rule_fires(judged), job.total_steps, job.time_limit_s)


def _verdict(judged: EvaluatedJob) -> Headline:
    found, words = judged.diagnosis, sentences_of(judged, judged.diagnosis)
    estimate = judged.paid_time.estimate()
    share = None if not found.judged.profiled else found.lost_share
    return Headline(
        health=words.health,
        change=words.change,
        cost=words.cost,
        level=found.level,
        rule=None if found.root is None else found.root.rule,
        wasted_share=share,
        lost=round(share * estimate.spent, 2) if share is not None and isinstance(estimate, CostEstimate) else None,
        causes=[each.rule for each in found.causes],
        judged=list(found.judged.judged),
        not_judged=list(found.judged.vetoes),
        change_code=words.code,
    )


def _timelines(
    judged: EvaluatedJob, findings: Sequence[FindingEntry], digests: Sequence[NodeDigest], missing: Sequence[str]
) -> Timelines:
    built = build_timelines(
        digests, episodes=episodes_of(findings), started_at=judged.started_at, ended_at=judged.ended_at
    )
    return msgspec.structs.replace(built, left_out=[*missing, *unmarked(findings), *built.left_out])


def _spending(judged: EvaluatedJob) -> Spending:
    """Say in a note why a cost is not known, or where the GPUs are others than paid."""
    estimate = judged.paid_time.estimate()
    hours, spent, currency = estimate.instance_hours, None, None
    if isinstance(estimate, CostEstimate):
        spent, currency = round(estimate.spent, 2), estimate.currency
        hourly = f"{currency} {estimate.hourly:g} an hour"
        note = f"{counted(estimate.nodes, 'node')} for {estimate.hours:.2f} h at {hourly} ({estimate.origin})."
    else:
        paid = "" if hours is None else f" {hours:,.2f} instance hours were paid for."
        note = f"No cost: {estimate.why}.{paid}"
    return Spending(
        spent=spent,
        currency=currency,
        note=" ".join([note, *gpu_remarks(judged)]),
        instance_hours=None if hours is None else round(hours, 4),
    )


XGBOOST_PAGE = "xgboost_report.html"
CONTENT_TYPES = {".json": "application/json", ".html": "text/html; charset=utf-8"}


def report_files(built: BuiltReport, *, page: bool = True) -> dict[str, bytes]:
    """Return the files of a report by name, ``report.json`` last; ``page`` is whether to make ``report.html`` too.

    Raises ReportPageError when the page cannot be made; it holds the other files, so that they can be written before.
    """
    document = encode_document(built.report)
    data = {**built.managed, **training_files(built.report, page=False)}
    if not page:
        return {**data, REPORT_JSON: document}
    try:
        from trainguard.report.html.render import render_report  # noqa: PLC0415 -- JSON alone takes no templates

        pages = {**training_files(built.report), REPORT_PAGE: render_report(built.report).encode()}
    except Exception as fault:
        # Whatever a page fails of, the numbers are made and must not be lost for it.
        raise ReportPageError(built.report.job.name, fault, {**data, REPORT_JSON: document}) from fault
    return {**data, **pages, REPORT_JSON: document}


def training_files(report: Report, *, page: bool = True) -> dict[str, bytes]:
    """Return the files of a report's training beside its own: data and page on a model of XGBoost, else none."""
    if report.training is None or report.training.model is None:
        return {}
    files = xgboost_files(report.training)
    if page:
        from trainguard.report.html.training.sections import render_xgboost  # noqa: PLC0415 -- JSON takes no templates

        files[XGBOOST_PAGE] = render_xgboost(report.training, report.job.name).encode()
    return files


def write_report(objects: ProfileObjects, job: JobRecord, built: BuiltReport) -> int:
    """Write a job's report, ``report.json`` last, and return of how many files it is; a repeat overwrites them.

    Raises ReportPageError when the page could not be made, after all other files are written.
    """
    try:
        files = report_files(built)
    except ReportPageError as fault:
        put_files(objects, job.bucket, job.root.report, fault.files)
        raise
    put_files(objects, job.bucket, job.root.report, files)
    return len(files)


def put_files(objects: ProfileObjects, bucket: str, prefix: str, files: Mapping[str, bytes]) -> None:
    for name, body in files.items():
        objects.put(bucket, prefix + name, body, CONTENT_TYPES[name[name.rindex(".") :]])
