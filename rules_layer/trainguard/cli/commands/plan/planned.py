"""A job's plan on the terminal, and as a document."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from trainguard.cli.commands.plan.request import PlanRequest
from trainguard.cli.options import Where
from trainguard.cli.output.progress import ProgressBar
from trainguard.cli.output.rendering import Block, Line, Shown, TerminalColumn, heading, table
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services.deployment import target_of
from trainguard.cli.services.job_reports import Drawn, drawn_job
from trainguard.core.records import JobStatus
from trainguard.local.planning import cluster_of_job, measured_job, trace_of
from trainguard.local.settings import given_settings, prices_from
from trainguard.local.training_files import declared
from trainguard.planning.cluster import Cluster, cluster_of, machines_of
from trainguard.planning.document import Assumed, Assumption, FinishForecast, Lack, Lacking, PlanDocument, PlannedRow
from trainguard.planning.finish import OF_FEW
from trainguard.planning.plan import MeasuredJob, PlanLimits, Planner, wanted
from trainguard.planning.text import (
    assumed,
    lacking,
    said_finish,
    said_row,
    shown_costs,
    shown_factor,
    shown_times,
    title_of,
)
from trainguard.pricing.table import PriceTable, packaged_prices
from trainguard.report.document import Report
from trainguard.report.job.build import forecast_of


def planned(source: str, asked: PlanRequest, where: Where, prices: Path | None, progress: ProgressBar) -> CommandResult:
    """Plan a job; raises as `drawn_job` does, KernelTraceError and PriceTableError."""
    target = target_of(source)
    table_of = prices_from(prices) or packaged_prices()
    drawn = drawn_job(target, None, where, given_settings(None, prices, asked.ran_on), progress)
    document = plan_of(drawn, asked, table_of)
    return CommandResult(
        document=document,
        blocks=list(_blocks(document)),
        notes=list(drawn.notes),
        evaluated=bool(document.rows) or document.finish is not None,
    )


def plan_of(drawn: Drawn, asked: PlanRequest, prices: PriceTable) -> PlanDocument:
    report = drawn.built.report
    own_steps, own_batch = declared(None if drawn.profile is None else drawn.profile.training)
    stored = drawn.record
    total = asked.total_steps or own_steps or (None if stored is None else stored.total_steps)
    limit_s = asked.time_limit or (None if stored is None else stored.time_limit_s)
    cluster = cluster_of_job(report, prices, asked.ran_on, asked.ran_nodes)
    job, missing = measured_job(report, trace_of(asked.trace, drawn.profile), cluster, total)
    finish, ends = _finish(report, total, limit_s)
    missing += _of_price(cluster)
    rows: list[PlannedRow] = []
    assumptions: list[Assumption] = []
    if job is not None:
        planner = Planner(_with_rest(job, finish, ends))
        changes, lacks = _changes(asked, cluster, own_batch, prices)
        missing += [*lacks, *(lack for each in changes for lack in planner.lacks(each))]
        missing += [lack for each in changes for lack in _of_price(each.cluster)]
        possible = [each for each in changes if not planner.lacks(each)]
        rows = [replace(row, words=said_row(row)) for row in planner.rows(possible)]
        assumptions = list(planner.assumptions(possible))
        if cluster.hourly is not None and cluster.instance_type is not None:
            assumptions.append(Assumption(kind=Assumed.PRICES, name=prices.origin_of(cluster.instance_type)))
    missing = list(dict.fromkeys([*missing, *ends]))
    return PlanDocument(
        job=drawn.job,
        source=drawn.source,
        currency=prices.currency,
        rows=rows,
        assumptions=assumptions,
        missing=missing,
        finish=finish,
        sentences=[
            *([] if finish is None else [said_finish(finish)]),
            *map(assumed, assumptions),
            *map(lacking, missing),
        ],
    )


def _with_rest(job: MeasuredJob, finish: FinishForecast | None, ends: Sequence[Lack]) -> MeasuredJob:
    """Return the job with how sure the time of its other steps is; of too few steps, as far as it came."""
    if any(each.kind is Lacking.TOO_FEW_STEPS for each in ends):
        return dataclasses.replace(job, left=1.0)
    if finish is None:
        return dataclasses.replace(job, left_width=OF_FEW)
    return dataclasses.replace(job, left_width=(finish.end.high - finish.end.value) / (finish.end.value - finish.at))


def _of_price(cluster: Cluster) -> list[Lack]:
    if cluster.instance_type is None:
        return [Lack(kind=Lacking.INSTANCE_TYPE)]
    return [Lack(kind=Lacking.PRICE, name=cluster.instance_type)] if cluster.hourly is None else []


def _changes(
    asked: PlanRequest, cluster: Cluster, batch_now: int | None, prices: PriceTable
) -> tuple[list[PlanLimits], list[Lack]]:
    """Return each wanted size on each wanted type; without a wish, the job's size halved and doubled."""
    factor, lacks, batch = 1.0, list[Lack](), asked.batch_per_gpu
    if batch is not None:
        before = batch[0] or batch_now
        factor = batch[1] / before if before else 1.0
        lacks = [] if before else [Lack(kind=Lacking.BATCH)]
    sizes = asked.nodes or (cluster.nodes,)
    if not (asked.nodes or asked.instance_type or batch):
        sizes = tuple(each for each in (cluster.nodes // 2, 2 * cluster.nodes) if each)
    clusters = [
        dataclasses.replace(cluster, nodes=size) if each is None else cluster_of(each, size, prices)
        for each in (asked.instance_type or (None,))
        for size in sizes
    ]
    changes = [wanted(cluster, each, batch=factor, keeps_global_batch=asked.keep_global_batch) for each in clusters]
    changes = [each for each in changes if each.cluster != cluster or each.batch != 1.0]
    empty = [each for each in changes if batch_now is not None and batch is None and batch_now * each.batch < 1.0]
    lacks += [Lack(kind=Lacking.NO_SAMPLE, name=machines_of(each.cluster)) for each in empty]
    return [each for each in changes if each not in empty], lacks


def _finish(report: Report, total: int | None, limit_s: float | None) -> tuple[FinishForecast | None, list[Lack]]:
    """Forecast the end of a job that has steps left; of an ended one without known length there is none to forecast."""
    if report.job.status == JobStatus.COMPLETED:
        return None, []
    if total is None:
        return None, [] if report.final and limit_s is None else [Lack(kind=Lacking.TOTAL_STEPS)]
    found = forecast_of(report.job, report.training, total, limit_s)
    return (None, [Lack(kind=found)]) if isinstance(found, Lacking) else (found, [])


def _blocks(document: PlanDocument) -> Iterator[Block]:
    yield heading(document.job)
    for row in document.rows[1:]:
        yield Line(row.words, style="bold")
    if document.rows:
        yield table(document.rows, _cells(document.currency))
    if document.finish is not None:
        yield Line(said_finish(document.finish), style="bold red" if document.finish.misses_limit else "bold")
    for each in document.assumptions:
        yield Line(f"Assumed: {assumed(each)}")
    for lack in document.missing:
        yield Line(f"Missing: {lacking(lack)}")


def _cells(currency: str) -> Mapping[TerminalColumn, Callable[[PlannedRow], Shown]]:
    return {
        TerminalColumn("machines", folds=True): title_of,
        TerminalColumn("time (80 %)", right=True): lambda row: shown_times(row.seconds),
        TerminalColumn("cost (80 %)", right=True): lambda row: shown_costs(row.cost, currency),
        TerminalColumn("faster", right=True, drops=1): lambda row: shown_factor(row.faster),
        TerminalColumn("dearer", right=True, drops=2): lambda row: (
            "-" if row.dearer is None else shown_factor(row.dearer)
        ),
    }
