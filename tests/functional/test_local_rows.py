"""Rows of a job that was evaluated at once: the same as the deployed stack leaves."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.functional.test_local_equals_evaluator import RECORDINGS, delivered, evaluated, on_disk, recorded
from tests.support import small_job
from tests.support.gpu_levels import means_of
from tests.support.ledgers import one_node
from tests.support.memory import MemoryWorld
from tests.support.small_job import JOB, Upload
from tests.support.verdicts import fired, over
from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.outbox import RowContext, rule_row
from trainguard.engine.profiler.family import ProfilerStreams
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.job import Ledger
from trainguard.local.engine import evaluation_rows
from trainguard.pricing.cost import PaidTime

LOW = "LowGPUUtilization"
EXPIRES_AT = 1_900_000_000
PLAN = FAMILIES.plan(JobRecord("job", "arn", "bucket", ""))


def cases() -> list[tuple[list[Upload], dict[str, str]]]:
    return [
        *((recorded(path), {}) for path in RECORDINGS if path.stem in {"late_first_step", "cpu_bottleneck"}),
        (with_bad_lines(small_job.uploads(low=True)), small_job.SETTINGS),
    ]


def with_bad_lines(uploads: list[Upload]) -> list[Upload]:
    """Return the objects with a line that is none in the system metrics of every node's fifth minute."""
    minute = f"/{small_job.START + 240}."
    return [replace(each, body=each.body + b"{torn\n") if minute in each.key else each for each in uploads]


@pytest.mark.parametrize("case", range(3))
def test_rows_evaluated_at_once_match_the_deployed_stack(case: int, tmp_path: Path) -> None:
    uploads, tags = cases()[case]
    network = delivered(uploads, tags)
    local = evaluated(on_disk(uploads, tmp_path), network.job(), workers=0)
    here = {row.target: row for row in evaluation_rows(local, expires_at=EXPIRES_AT)}
    there = {row.target: replace(row, expires_at=EXPIRES_AT) for row in network.world.rows.of_job(JOB)}
    stored = MemoryWorld()
    stored.rows.publish(list(here.values()))
    assert {row.target: row for row in stored.rows.of_job(JOB)} == there
    assert {row.node for row in here.values()} >= {None, "algo-1"}
    assert any(row.status is Status.FIRED for row in here.values())
    assert all(bool(row.counters) == (case == 2) for row in here.values() if row.node is None)


def test_job_rows_are_listed_last_and_the_report_after_them(tmp_path: Path) -> None:
    uploads = small_job.uploads(low=True)
    network = delivered(uploads, small_job.SETTINGS)
    rows = evaluation_rows(evaluated(on_disk(uploads, tmp_path), network.job(), workers=0), expires_at=EXPIRES_AT)
    of_nodes = [row.node is not None for row in rows]
    assert of_nodes == sorted(of_nodes, reverse=True)
    assert rows[-1].target == "ProfilerReport"
    assert {row.expires_at for row in rows} == {EXPIRES_AT}


def test_row_of_an_ended_finding_keeps_only_what_it_claims() -> None:
    def row(verdict: RuleOutcome, ledger: Ledger | None) -> RuleRow:
        paid_time = PaidTime("ml.p3.2xlarge", 0.0, 3_600.0, 1)
        return rule_row(RowContext("job", None, PLAN, 60.0, {}, None, None, paid_time, ledger=lambda: ledger), verdict)

    ledger = one_node((0.0, 0.5, {Bucket.IDLE: 0.6}), hours=1.0, hourly=3.825)
    open_row, past = row(fired(LOW, (0.0, 0.5)), ledger), row(over(LOW, (0.0, 0.5)), ledger)
    assert (open_row.finding.severity, open_row.finding.cost, open_row.wasted_percent) == (
        "high",
        "about USD 1.15 of the USD 3.83 spent",
        30.0,
    )
    assert (past.finding.severity, past.finding.cost, past.wasted_percent) == (None, None, 30.0)
    assert row(fired(LOW, (0.0, 0.5)), None).wasted_percent is None


def test_each_node_keeps_its_gpu_activity_from_start_to_end(
    tmp_path: Path,
) -> None:
    uploads = small_job.uploads(low=True)
    network = delivered(uploads, small_job.SETTINGS)
    local = evaluated(on_disk(uploads, tmp_path), network.job(), workers=0)
    streams = ProfilerStreams.of(FAMILIES.open(local.job.job, local.plan, local.records)).system

    assert set(streams) == {"algo-1", "algo-2"}
    for stream in streams.values():
        until = stream.state.watermark_s or 0.0
        use = stream.state.use.finished(0.0)
        edges, means = use.grid.edges, means_of(use.levels)
        assert edges[0] <= (stream.state.kept.first_sample_at or 0.0) <= edges[1]
        assert use.last_ms / 1_000 == until
        assert ((means >= 0.0) & (means <= 100.0)).all()
