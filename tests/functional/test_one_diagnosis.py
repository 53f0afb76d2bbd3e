"""One job, two ways: the deployed stack and the local command say the same of the same objects, of all families."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.families.training.runs import run_files, uploads_of
from tests.families.training.test_scalars import events
from tests.functional.test_local_equals_evaluator import EACH_MINUTE
from tests.support import small_job
from tests.support.captures import HELD_UP, Live, capture
from tests.support.late_events import told_by_event
from tests.support.memory import MemoryWorld
from tests.support.small_job import JOB, START, Upload, describe
from trainguard.core.records import JobRecord, JobStatus, RuleRow, StreamKey
from trainguard.ledger.document import shares_of
from trainguard.local.analysis import evaluated_profile, report_of
from trainguard.local.engine import ProfileEvaluation, evaluation_rows
from trainguard.local.runs import open_job
from trainguard.report.document import FindingEntry, Report
from trainguard.report.job.build import build_report
from trainguard.rules.profiler_report import PROFILER_REPORT

STALLED = "training/StalledTrainingRule"
SCALARS = "tensorboard-output/events.out.tfevents.1.host"
LAST = START + small_job.MINUTES * 60.0


def scalars(losses: Sequence[float]) -> list[Upload]:
    """Return a file of scalars that was written to its end."""
    body = events(dict(enumerate(losses)))
    return [Upload(LAST - 30.0, f"{JOB}/{SCALARS}", body)]


def tensors(losses: Sequence[float]) -> list[Upload]:
    """Return the files of a hook that saved losses, until the job's end."""
    return [replace(each, at=min(each.at, LAST - 1.0)) for each in uploads_of(run_files(losses, ended=True))]


FALLING = [2.0 * 0.97**step for step in range(60)]
LOST = [*FALLING[:30], *[float("nan")] * 30]
PROFILE = small_job.uploads(low=True)
FINE = small_job.uploads(low=False)
CASES: Mapping[str, Sequence[Upload]] = {
    "profile": PROFILE,
    "profile and scalars": [*FINE, *scalars(FALLING)],
    "profile and broken scalars": [*PROFILE, *scalars(LOST)],
    "profile and tensors": [*PROFILE, *tensors(FALLING)],
    "profile and kernels": [*FINE, *capture(delay_us=HELD_UP)],
    "all families": [*PROFILE, *scalars(LOST), *tensors(FALLING), *capture(delay_us=HELD_UP)],
}


def deployed(uploads: Sequence[Upload]) -> Live:
    """Let a job happen with a run of the scheduler at each of its minutes, to a while after its end."""
    live = Live()
    description = describe(EACH_MINUTE | small_job.SETTINGS)
    live.world.training_jobs.set(description)
    tick_at = float(START)
    for upload in sorted(uploads, key=lambda each: each.at):
        while upload.at > tick_at:
            tick(live, tick_at)
            tick_at += 60.0
        live.write([upload])
        live.net.run_until(upload.at, batch_s=1.0)
    tick(live, tick_at)
    live.world.training_jobs.set(replace(description, status=JobStatus.COMPLETED))
    told_by_event(live.net)
    for minute in range(1, 60):
        tick(live, tick_at + 60.0 * minute)
    return live


def tick(live: Live, at: float) -> None:
    """Let messages arrive until then, look at the job, and digest the traces that were asked for."""
    live.net.run_until(at, batch_s=1.0)
    live.world.objects.now = live.net.now
    live.net.run_scheduler()
    live.machine.run(live.net.now)
    live.net.take_tasks()


def analysed(uploads: Sequence[Upload], job: JobRecord, folder: Path, live: Live) -> ProfileEvaluation:
    """Analyse the same objects in a folder."""
    for upload in uploads:
        file = folder / upload.key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(upload.body)
        os.utime(file, (upload.at, upload.at))
    plan = live.net.families.plan(job)
    return evaluated_profile(open_job(str(folder / JOB)), job, plan, None, timelines=False)


def of_findings(findings: Sequence[FindingEntry]) -> list[object]:
    return [
        (
            each.rule,
            each.finding_kind,
            each.severity,
            each.score,
            each.reason,
            each.advice,
            each.facts,
            each.wasted_share,
            each.explained_by,
            [(episode.start, episode.end, episode.nodes) for episode in each.episodes],
        )
        for each in findings
    ]


def of_rows(rows: Sequence[RuleRow]) -> dict[str, RuleRow]:
    """Return the job's rows as a table holds them, without what says when they were written.

    One rule goes by the clock where there is one.
    """
    world = MemoryWorld()
    world.rows.publish(list(rows))
    return {
        row.target: replace(row, expires_at=None, generation=0)
        for row in world.rows.of_job(JOB)
        if row.node is None and row.rule != STALLED
    }


@pytest.mark.parametrize("case", CASES)
def test_given_the_same_objects_then_both_ways_say_the_same(case: str, tmp_path: Path) -> None:
    live = deployed(CASES[case])
    job, records = live.net.job(), live.world.nodes.of_job(JOB)
    assert not job.active
    there = build_report(job, records, now=0.0).report
    local = analysed(CASES[case], job, tmp_path, live)
    here = report_of(local).report

    assert (here.verdict, here.summary) == (there.verdict, there.summary)
    assert here.ledger == there.ledger
    assert here.ledger_by_node == there.ledger_by_node
    assert of_findings(here.findings) == of_findings(there.findings)
    rows = of_rows(evaluation_rows(local, expires_at=0))
    assert rows == of_rows(live.world.rows.of_job(JOB))
    assert_one(rows, here)
    streams = {record.key.stream for record in records if record.key != StreamKey.own(JOB)}
    assert ("kernels" in case or case == "all families") is ("kernels" in streams)


def assert_one(rows: Mapping[str, RuleRow], report: Report) -> None:
    """Compare the job's rows with its report: level, sentences, ledger, and findings."""
    own = rows[PROFILER_REPORT]
    assert own.finding.finding_kind == report.verdict.level
    assert own.finding.reason == f"{report.verdict.health} {report.verdict.cost}"
    assert shares_of(own.finding.facts) == {
        entry.bucket: round(entry.share, 4)
        for entry in report.ledger
        if entry.share >= 0.0005 or entry.bucket == "compute"
    }
    fired = {entry.rule: entry for entry in report.findings}
    assert {rule for rule, row in rows.items() if row.times_fired or row.status == "FIRED"} - {PROFILER_REPORT} <= set(
        fired
    )
    for rule, entry in fired.items():
        # A table holds times to the millisecond.
        assert [(each.name, each.value) for each in rows[rule].finding.facts] == [
            (each.name, each.value) for each in entry.facts
        ]
        share = None if entry.wasted_share is None else round(100.0 * entry.wasted_share, 1)
        assert rows[rule].wasted_percent == share
