"""``kernels.html`` of kernel profiles: one file that needs nothing else."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from trainguard.core.timestamps import iso_time
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.timeline.build import Timeline
from trainguard.kernels.words import counted
from trainguard.render.blocks import Panel
from trainguard.render.names import shown_name
from trainguard.render.numbers import moment
from trainguard.report.html.islands import in_script
from trainguard.report.html.kernels.active_time import hardware_blocks, launch_blocks, time_blocks
from trainguard.report.html.kernels.island import PageNames, nanos, timelines_document
from trainguard.report.html.kernels.matrix import communication_blocks, comparison_blocks, matrix_blocks
from trainguard.report.html.kernels.steps import annotations_of, step_blocks
from trainguard.report.html.kernels.tables import (
    TOP,
    kernel_table,
    kernel_totals,
    kernels_document,
    operator_blocks,
    share_blocks,
    top_rows,
)
from trainguard.report.html.kernels.verdict import (
    job_head,
    key_figures,
    missing_lines,
    shown_findings,
    timeline_notes,
    verdict_of,
)
from trainguard.report.html.page import joined_script, read_asset, render_page

MOST_BYTES = 3_000_000
_SCRIPTS = (
    "columns.js",
    "units.js",
    "model.js",
    "paint.js",
    "tree.js",
    "view.js",
    "draw.js",
    "marks.js",
    "details.js",
    "find.js",
    "input.js",
    "save.js",
    "timeline.js",
    "kernels.js",
    "annotations.js",
    "main.js",
)
_STYLES = ("kernels/page.css", "kernels/timeline.css")

LEGEND = (
    ("computation", "s1"),
    ("communication", "s2"),
    ("copies", "s3"),
    ("memory set, launches", "s6"),
    ("waits of the GPU", "s5"),
    ("annotations", "s4"),
    ("operators", "s8"),
    ("the profiler itself", "s7"),
)

FRAMEWORKS = {"pytorch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow", "xla": "XLA"}

Drawn = Sequence[tuple[RankProfile, Timeline]]


def render_kernels(document: KernelProfiles, drawn: Drawn) -> str:
    """Return the page: under 3 MB; what is left out is counted on it.

    ``drawn`` are the ranks with timelines, in the order in which they are drawn. The document's texts may hold
    anything; they are shown, not run.
    """
    document, drawn = _with_distinct_names(document, drawn)
    page = _rendered(document, drawn, "")
    while drawn and len(page.encode()) > MOST_BYTES:
        drawn = drawn[: len(drawn) // 2]
        page = _rendered(document, drawn, "Timelines that would make this page larger than 3 MB are left out.")
    return page


def _with_distinct_names(document: KernelProfiles, drawn: Drawn) -> tuple[KernelProfiles, Drawn]:
    traces = Counter(rank.rank for rank in document.ranks)
    if max(traces.values(), default=0) < 2:
        return document, drawn

    def named(rank: RankProfile) -> RankProfile:
        return replace(rank, rank=None) if traces[rank.rank] > 1 else rank

    renamed = replace(document, ranks=[named(rank) for rank in document.ranks])
    return renamed, [(named(rank), timeline) for rank, timeline in drawn]


def _rendered(document: KernelProfiles, drawn: Drawn, cut: str) -> str:
    names = PageNames()
    ranks, across = document.ranks, document.across
    shown = [rank for rank, _ in drawn]
    findings = shown_findings(ranks, shown, across)
    totals = kernel_totals(ranks)
    table = kernel_table(ranks, totals)
    kernels = kernels_document(table, shown, len(ranks), names)
    timelines = timelines_document(drawn, names)
    island: dict[str, Any] = {"kernels": kernels, "timelines": timelines, "names": names.texts()}
    return render_page(
        "kernels.html.j2",
        styles=kernels_style(),
        script=kernels_script(),
        document=document,
        job=job_head(document.job_facts),
        gpus=_gpus(ranks),
        about=_about(document),
        window=nanos(max(rank.window_ns for rank in ranks)),
        verdict=verdict_of(document, findings),
        figures=key_figures(ranks),
        findings=findings,
        missing=missing_lines(document),
        before=_before(document),
        table=table,
        views=[each["title"] for each in kernels],
        top=TOP,
        by_time=top_rows(table, by_time=True),
        by_count=top_rows(table, by_time=False),
        after=_after(ranks),
        annotations=annotations_of(ranks),
        matrix=[] if across is None else [Panel("ranks", "Ranks", matrix_blocks(ranks, across))],
        drawn=drawn,
        events=sum(len(timeline.rows) for _, timeline in drawn),
        legend=LEGEND,
        timeline_notes=[*([cut] if cut else []), *timeline_notes(document, drawn, names.omitted)],
        island=in_script(msgspec.json.encode(island)),
    )


def _gpus(ranks: Sequence[RankProfile]) -> list[str]:
    """Return the models of the GPUs with their numbers, at most three."""
    models = Counter(shown_name(gpu) for rank in ranks for gpu in rank.gpus if gpu)
    return [name if count == 1 else f"{name}, {count:,} of them" for name, count in models.most_common(3)]


def _about(document: KernelProfiles) -> list[str]:
    ranks = document.ranks
    starts = [rank.start_unix_ns for rank in ranks if rank.start_unix_ns is not None]
    steps = max((len(rank.steps) for rank in ranks), default=0)
    names = sorted({FRAMEWORKS[rank.framework] for rank in ranks if rank.framework in FRAMEWORKS})
    across = document.across
    found = [", ".join(names)] if names else []
    found += [f"recorded {moment(iso_time(min(starts) / 1e9))} UTC"] if starts else []
    found += [counted(steps, "step")] if steps else []
    if across is not None and across.world_size:
        found.append(f"{across.world_size - across.missing_count:,} of {counted(across.world_size, 'rank')}")
    return found


def _before(document: KernelProfiles) -> list[Panel]:
    time = Panel("gpu", "GPU and CPU time", time_blocks(document.ranks))
    if document.comparison is None:
        return [time]
    return [Panel("comparison", "What changed", comparison_blocks(document.comparison)), time]


def _after(ranks: Sequence[RankProfile]) -> list[Panel]:
    sections = [
        Panel("steps", "Steps", step_blocks(ranks)),
        Panel("shares", "Precision, activity, memory", share_blocks(ranks)),
        Panel("launches", "Launches and hardware", [*launch_blocks(ranks), *hardware_blocks(ranks)]),
        Panel("communication", "Communication", communication_blocks(ranks)),
        Panel("operators", "Operators", operator_blocks(ranks)),
    ]
    return [section for section in sections if section.blocks]


@functools.cache
def kernels_script() -> str:
    """Return the page's script."""
    return joined_script(("timelines/data.js", *(f"kernels/{each}" for each in _SCRIPTS)))


@functools.cache
def kernels_style() -> str:
    """Return the style that the page has beside the common one."""
    return "\n".join(read_asset(each) for each in _STYLES)
