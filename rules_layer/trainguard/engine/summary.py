"""Writes what a person reads of a whole job, and finishes a job that has ended; safe to repeat."""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from trainguard.core.errors import StateConflictError
from trainguard.core.finding import Fact, Finding, Severity
from trainguard.core.job_policy import MOST_END_REPORTS
from trainguard.core.ports import Services, Timing
from trainguard.core.records import (
    JOB_NODE,
    AlertKind,
    JobRecord,
    OutboxEntry,
    RuleRow,
    Status,
    StreamKey,
    StreamRecord,
    TunedJob,
)
from trainguard.engine.diagnosis.case import Assessment, DiagnosedJob, assess, diagnose
from trainguard.engine.diagnosis.text import report_standing, report_verdict
from trainguard.engine.family import Families
from trainguard.engine.jobs.hang_watch import HUNG_JOB, known_hang_of
from trainguard.engine.jobs.job_registry import left_out
from trainguard.engine.jobs.lifecycle import given_up
from trainguard.engine.outbox import RowContext, drain, enqueue, name_of_execution, rule_row, with_entries
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobState, JobStreams, StepProgress, Watched
from trainguard.engine.streams.rule_runner import PUBLISH_FIRED_EVERY_S, publish_every_s
from trainguard.engine.streams.session import expiry, items_of
from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome, shown_status
from trainguard.planning.document import FinishForecast, Lacking
from trainguard.planning.finish import Point, forecast_finish
from trainguard.planning.text import said_finish
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.state.codec import CODEC, encode_state

# Of an item that others write, too.
ATTEMPTS = 4

# Stands where a rule's name would.
TIME_LIMIT = "TimeLimit"
LEAST_DONE = 0.2
HELD = 3

_ADVICE = (
    "Save a checkpoint before the limit, and raise it or train fewer steps: a job that reaches its limit is ended, and "
    "what it did since the last checkpoint is lost. `trainguard plan` says what more nodes would take."
)


def outlook(
    job: JobRecord, progress: StepProgress, newest: Point | None, started_at: float | None
) -> tuple[str, list[OutboxEntry]] | None:
    """Take the newest step into ``progress``; return a new forecast and a due warning, None where nothing is new."""
    total, limit_s = job.total_steps, job.time_limit_s
    if total is None or newest is None or job.closing or not progress.add(newest, total):
        return None
    limit_at = None if limit_s is None or started_at is None else started_at + limit_s
    forecast = forecast_finish(progress.points, total, limit_at)
    if isinstance(forecast, Lacking) or forecast.done >= total:
        return None
    is_missed = forecast.misses_limit and forecast.done >= LEAST_DONE * total
    progress.misses = progress.misses + 1 if is_missed else 0
    if progress.misses < HELD or progress.warned:
        return said_finish(forecast), []
    progress.warned = True
    return said_finish(forecast), [_warning(job, forecast)]


def _warning(job: JobRecord, forecast: FinishForecast) -> OutboxEntry:
    times = {"forecast": forecast.end.value, "forecast_low": forecast.end.low, "forecast_high": forecast.end.high}
    facts = [
        Fact(name=name, value=at, unit="time") for name, at in (*times.items(), ("limit", forecast.limit_at or 0.0))
    ]
    return OutboxEntry(
        fire_id=hashlib.sha256(repr((job.arn, TIME_LIMIT)).encode()).hexdigest()[:20],
        episode=0,
        enqueued_at=forecast.at,
        finding=Finding(
            rule=TIME_LIMIT,
            node=None,
            reason=said_finish(forecast),
            severity=Severity.HIGH,
            advice=_ADVICE,
            facts=(*facts, Fact(name="done", value=forecast.done), Fact(name="total", value=forecast.total)),
        ),
        kind=AlertKind.DEADLINE,
    )


_WITHOUT_DATA = frozenset({Status.WAITING_FOR_DATA, Status.NOT_APPLICABLE})
_NO_MORE_REPORTS = f"data came after {MOST_END_REPORTS} reports at the job's end; trainguard report makes another one"
# Stands in ``JobState.shown`` where a rule's name would.
_TUNING_JOB = "tuning-job"

# A tuning job's entry that does not change is written this often, so that it stays known.
_TUNED_EVERY_S = 300.0


class Summariser:
    """Summarises jobs."""

    def __init__(self, *, services: Services, timing: Timing, families: Families) -> None:
        self._families = families
        self._services = services
        self._timing = timing

    def summarise(self, job: JobRecord, described: Callable[[], JobRecord] | None = None) -> tuple[Assessment, bool]:
        """Write the job's rows, start fires of the whole job, and finish it when it is closing and all has closed.

        Return how the job stands, and whether it was finished.

        ``described`` is asked before a rule over the whole job fires: the fault may be the job's end, of which no event
        came. Raises StateConflictError when other writers of ``*#job`` were first four times.
        """
        for attempt in range(1, ATTEMPTS):
            try:
                return self._attempt(job, described)
            except StateConflictError:
                self._timing.pause(attempt)
        return self._attempt(job, described)

    def _attempt(self, job: JobRecord, described: Callable[[], JobRecord] | None) -> tuple[Assessment, bool]:
        plan = replace(self._families.plan(job), detailed=False)
        records = items_of(job, self._services.nodes)
        now = self._timing.now()
        streams = self._watched(job, plan, records, now)
        for record in streams.records.values():
            drain(record, job, self._services)
        failed_before = _failed(streams)
        assessment = assess(job, plan, streams, now=now)
        if assessment.fires and described is not None and (known := described()) != job:
            streams = self._watched(job, plan, records, now)
            assessment = assess(known, plan, streams, now=now)
        streams, assessment = self._with_hang(streams, assessment, records, now)
        case = assessment.case
        # Streams that were asked to close may not have answered; data after the end wait for nobody.
        to_come = job.active and bool(missing_streams(job, streams, self._families)) and not given_up(job, now)
        finished = job.closing and streams.closed and not to_come
        context = job_context(case, expiry(streams.watermark_s, now) if finished else None)
        due = due_rows(context, case, assessment.follow_ups, now=now, finished=finished)
        tuned = None if job.tuning_job is None else _tuned(job, case.findings, finished=finished)
        tuned_due = tuned is not None and _due(streams.state, _TUNING_JOB, repr(tuned), now, every_s=_TUNED_EVERY_S)
        report = self._report_due(job, streams) if finished else None
        found = outlook(job, streams.state.progress, streams.newest_step, case.paid_time.started_at)
        words, warnings = found or ("", [])
        self._save(job, plan, streams, assessment.fires, [*assessment.follow_ups, *warnings])
        if found is not None:
            self._services.jobs.set_outlook(job.job, words)
        for rule in sorted(_failed(streams) - failed_before):
            fault = streams.state.stored_rules[rule].fault
            self._services.journal.count("rule_errors", job=job.job, node=JOB_NODE, reason=f"{rule}: {fault}")
        self._services.rows.publish(due)
        if job.tuning_job is not None and tuned is not None and (tuned_due or finished):
            expires_at = expiry(streams.watermark_s, now)
            self._services.bookkeeping.upsert_tuned_job(job.tuning_job, job.job, tuned, expires_at)
        if finished:
            self._finish(job, report, context.expires_at)
            for each in case.findings:
                if each.loss is not None and each.loss.usd:
                    self._services.journal.count("money_lost", round(each.loss.usd, 2), job=job.job, rule=each.rule)
        return assessment, finished

    def _with_hang(
        self, streams: JobStreams, assessment: Assessment, records: Sequence[StreamRecord], now: float
    ) -> tuple[JobStreams, Assessment]:
        """Return the job judged again, where more is known of its dumps than what it was judged by."""
        case = assessment.case
        hang = known_hang_of(case.job, case.verdict_of(HUNG_JOB), streams.state, self._services, now=now)
        if hang == streams.state.hang:
            return streams, assessment
        again = self._watched(case.job, case.plan, records, now)
        again.state.hang, again.state.hang_asked = hang, streams.state.hang_asked
        return again, assess(case.job, case.plan, again, now=now)

    def _watched(self, job: JobRecord, plan: RulePlan, records: Sequence[StreamRecord], now: float) -> JobStreams:
        streams = self._families.open(job.job, plan, records)
        watch(streams, now)
        return streams

    def _save(
        self,
        job: JobRecord,
        plan: RulePlan,
        streams: JobStreams,
        fires: Sequence[Fire],
        follow_ups: Sequence[OutboxEntry],
    ) -> None:
        record = with_entries(enqueue(streams.job_item, fires, job=job, plan=plan), follow_ups)
        record = replace(record, state=encode_state(streams.state), codec=CODEC)
        if record.state != streams.job_item.state or record.unsent:
            record = self._services.nodes.save(record)
        drain(record, job, self._services)

    def _report_due(self, job: JobRecord, streams: JobStreams) -> str | None:
        """Return the name of a report of what was applied, new for later data; None beyond the job's last one."""
        cursors = sorted((key.node_kind, *sorted(record.cursors.items())) for key, record in streams.records.items())
        applied = hashlib.sha256(repr((job.arn, cursors)).encode()).hexdigest()[:20]
        reported = streams.state.reported
        if applied not in reported and len(reported) >= MOST_END_REPORTS:
            self._services.journal.count("reports_refused", job=job.job, reason=_NO_MORE_REPORTS)
            return None
        if applied not in reported:
            reported.append(applied)
        return applied

    def _finish(self, job: JobRecord, report: str | None, expires_at: int | None) -> None:
        if job.braked is not None:
            self._services.jobs.set_braked(job.job, None)
        if report is not None:
            name = name_of_execution(f"report-{report}-{job.job}")
            self._services.reports.start(name, {"kind": "end", "job": job.job})
        self._services.jobs.update_status(replace(job, active=False, expires_at=expires_at))


def job_context(case: DiagnosedJob, expires_at: int | None) -> RowContext:
    """Return the common parts of a whole job's rows."""
    job, streams = case.job, case.streams
    return RowContext(
        job=job.job,
        node=None,
        plan=case.plan,
        watermark_s=streams.watermark_s,
        counters={**streams.counters, **left_out(job)},
        last_fault=streams.last_fault,
        expires_at=expires_at,
        paid_time=case.paid_time,
        generation=job.generation,
        ledger=lambda: case.ledger,
    )


def job_rows(context: RowContext, case: DiagnosedJob, rules: Collection[str] | None = None) -> list[RuleRow]:
    """Return the job's row of each of the rules (None: all), and the report's, as ranked."""
    verdicts = [verdict for verdict in case.verdicts if rules is None or verdict.rule in rules]
    found = {finding.rule: finding for finding in case.findings} if verdicts else {}
    rows = [rule_row(context, verdict, found.get(verdict.rule)) for verdict in verdicts]
    if rules is None or PROFILER_REPORT in rules:
        diagnosis = diagnose(case)
        rows.append(rule_row(context, report_verdict(case, diagnosis), diagnosis.root))
    return rows


def due_rows(
    context: RowContext, case: DiagnosedJob, follow_ups: Sequence[OutboxEntry], *, now: float, finished: bool
) -> list[RuleRow]:
    """Return the rows that are to be written now; records them in the job's state.

    A row is due when its status changed, an alert or a follow-up goes out, and as often as `publish_every_s` says; all
    are when the job is finished. No other is made: ranking and the ledger take long.
    """
    state, notified = case.streams.state, {entry.finding.rule for entry in follow_ups}
    due = set()
    for verdict in (*case.verdicts, report_standing(case)):
        rule, status = verdict.rule, shown_status(verdict)
        # The report's row shows how far the job is judged.
        every_s = PUBLISH_FIRED_EVERY_S if rule == PROFILER_REPORT else publish_every_s(status)
        text = f"{status.value} {verdict.history.alerted} {verdict.result.cause}".rstrip()
        if _due(state, rule, text, now, every_s=every_s, anyway=finished or rule in notified):
            due.add(rule)
    rows = job_rows(context, case, due)
    rows = _final(rows, case.streams) if finished else as_known(rows, case.verdicts, case.streams)
    state.watermark_s.update({row.rule: row.evaluated_through for row in rows if row.evaluated_through is not None})
    return rows


def as_known(rows: Sequence[RuleRow], verdicts: Sequence[RuleOutcome], streams: JobStreams) -> list[RuleRow]:
    """Return the rows of a running job, each with how far its rule is judged, not at all without data."""
    known = {verdict.rule: verdict.watermark_s for verdict in verdicts}
    published = []
    for row in rows:
        watermark_s = known.get(row.rule)
        if watermark_s is None and row.status not in _WITHOUT_DATA:
            watermark_s = streams.watermark_s
        marks = [mark for mark in (watermark_s, streams.state.watermark_s.get(row.rule)) if mark is not None]
        published.append(replace(row, evaluated_through=max(marks, default=None)))
    return published


def _final(rows: Sequence[RuleRow], streams: JobStreams) -> list[RuleRow]:
    """Return the rows of a finished job, none beyond its data."""
    marks = streams.state.watermark_s
    return [
        replace(row, evaluated_through=max((row.evaluated_through, marks[row.rule])))
        if row.evaluated_through is not None and row.rule in marks
        else row
        for row in rows
    ]


def _due(state: JobState, name: str, text: str, now: float, *, every_s: float, anyway: bool = False) -> bool:
    """Whether a name's text changed or is ``every_s`` old; records that it will be written."""
    published = state.published.get(name)
    if not anyway and published is not None and published[0] == text and now - published[1] < every_s:
        return False
    state.published[name] = (text, now)
    return True


def _tuned(job: JobRecord, findings: Sequence[RankedFinding], *, finished: bool) -> TunedJob:
    top = findings[0] if findings else None
    return TunedJob(
        status=job.status,
        finished=finished,
        findings=len(findings),
        rule=None if top is None else top.rule,
        severity=None if top is None else top.finding.severity,
    )


def _failed(streams: JobStreams) -> set[str]:
    return {rule for rule, stored in streams.state.stored_rules.items() if stored.fault is not None}


def missing_streams(job: JobRecord, streams: JobStreams, families: Families) -> set[StreamKey]:
    """Return the expected streams without an item: one that was asked to close has an item, if an empty one."""
    known = set(streams.records)
    return families.expected(job, known) - known


def watch(streams: JobStreams, now: float) -> None:
    """Record since when each stream's unit has written nothing, and since when a job has no stream."""
    watched = streams.state.watched
    if not streams.records:
        watched.setdefault(streams.job_item.key.node_kind, Watched(0, now))
    for key in streams.records:
        known, mark = watched.get(key.node_kind), streams.mark_of(key)
        if known is None or known.mark != mark:
            watched[key.node_kind] = Watched(mark, now)
