"""Rows of a job that was evaluated at once: the same as the deployed stack leaves."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.functional.test_local_equals_evaluator import RECORDINGS, delivered, evaluated, on_disk, recorded
from tests.support import small_job
from tests.support.small_job import JOB, Upload
from trainguard.adapters.memory.world import MemoryWorld
from trainguard.engine.outbox.rows import RowContext, rule_row
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Reach, Verdict
from trainguard.families.installed import FAMILIES
from trainguard.families.profiler.streams import ProfilerStreams
from trainguard.local.rows import evaluation_rows
from trainguard.pricing.cost import Account
from trainguard.records import JobRecord, RuleRow, Status
from trainguard.rules.rule_result import RuleResult

EXPIRES_AT = 1_900_000_000
PLAN = FAMILIES.plan(JobRecord("job", "arn", "bucket", ""))


def cases() -> list[tuple[list[Upload], dict[str, str]]]:
    names = ("slow_data_loader", "cpu_bottleneck")
    files = [path for path in RECORDINGS if path.stem in names]
    return [
        *((recorded(path), {}) for path in files),
        (with_bad_lines(small_job.uploads(low=True)), small_job.SETTINGS),
    ]


def with_bad_lines(uploads: list[Upload]) -> list[Upload]:
    """Return the objects with a line that is none in the system metrics of every node's fifth minute."""
    minute = f"/{small_job.START + 240}."
    return [replace(each, body=each.body + b"{torn\n") if minute in each.key else each for each in uploads]


@pytest.mark.parametrize("case", range(3))
def test_given_a_job_when_evaluated_at_once_then_its_rows_are_those_of_the_deployed_stack(
    case: int, tmp_path: Path
) -> None:
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


def test_given_rows_when_listed_then_the_job_s_come_last_and_its_report_after_all(tmp_path: Path) -> None:
    uploads = small_job.uploads(low=True)
    network = delivered(uploads, small_job.SETTINGS)
    rows = evaluation_rows(evaluated(on_disk(uploads, tmp_path), network.job(), workers=0), expires_at=EXPIRES_AT)
    of_nodes = [row.node is not None for row in rows]
    assert of_nodes == sorted(of_nodes, reverse=True)
    assert rows[-1].target == "ProfilerReport"
    assert {row.expires_at for row in rows} == {EXPIRES_AT}


def test_given_a_finding_that_is_over_when_shown_then_its_row_keeps_what_it_wasted_and_no_more() -> None:
    def row(nodes: int, *, is_open: bool) -> RuleRow:
        account = Account("ml.p3.2xlarge", 0.0, 3_600.0, nodes)
        context = RowContext("job", None, PLAN, 60.0, {}, None, None, account)
        status = Status.FIRED if is_open else Status.OK
        result = RuleResult(status, "GPUs idle.", wasted_share=0.5)
        episode = FiringHistory(is_open=is_open, times_fired=1)
        return rule_row(context, Verdict("LowGPUUtilization", result, episode, reach=Reach(1, 4, 1.0)))

    fired, over = row(4, is_open=True), row(4, is_open=False)
    assert (fired.finding.severity is None, fired.finding.cost is None, fired.wasted_percent) == (False, False, 25.0)
    assert (over.finding.severity, over.finding.cost, over.wasted_percent) == (None, None, 25.0)
    assert row(0, is_open=True).wasted_percent is None


def test_given_a_job_when_evaluated_then_each_node_keeps_how_busy_its_gpus_were_from_its_start_to_its_end(
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
        edges, means = use.grid.edges, use.levels.means()
        assert edges[0] <= (stream.state.kept.first_sample_at or 0.0) <= edges[1]
        assert use.last_ms / 1_000 == until
        assert ((means >= 0.0) & (means <= 100.0)).all()
