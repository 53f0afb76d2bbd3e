"""``kernels.html`` of kernel profiles: one file that needs nothing else."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from markupsafe import Markup
from msgspec.structs import replace

from trainguard.core.timestamps import iso_time
from trainguard.core.units import counted
from trainguard.kernels.changes import StepChange
from trainguard.kernels.comparison import text
from trainguard.kernels.costs import short_shapes
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.memory.entries import KINDS, GpuMemory
from trainguard.kernels.memory.frames import own_frame
from trainguard.kernels.timeline.build import DEEPEST, Timeline
from trainguard.render.blocks import Figure, Key
from trainguard.render.numbers import count, moment, nanos, shown_name, size
from trainguard.render.plots.charts import ChartFrame, axes, chart, line_through
from trainguard.render.plots.scale import up_from_zero
from trainguard.render.plots.svg import element, title
from trainguard.report.html.kernels import figures
from trainguard.report.html.kernels.figures import TONES, glance
from trainguard.report.html.kernels.island import LONGEST_NAME, PageNames, rank_name, timelines_document
from trainguard.report.html.kernels.tables import MOST_KERNELS, TOP, kernel_totals, kernel_views, rank_matrix, top_rows
from trainguard.report.html.kernels.verdict import key_figures, lacking, shown_findings, shown_verdict
from trainguard.report.html.packed import in_script
from trainguard.report.html.page import joined_script, read_asset, render_page

_TONES = ("s1", "s4", "s6", "s2", "s3", "s8")
_RESERVED = "s5"
_NS_PER_MS = 1e6
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def memories(document: KernelProfiles) -> list[tuple[str, GpuMemory]]:
    """Return the memory of all ranks and snapshots with the name of each, that with the highest peak first."""
    found = [(rank_name(rank), each) for rank in document.ranks for each in rank.memory]
    found += [(shown_name(snapshot.trace, 60), each) for snapshot in document.snapshots for each in snapshot.memory]
    is_named = len(found) > 1 or len(document.snapshots) > 0
    return [
        (f"{where}, {memory.name}" if is_named else memory.name, memory)
        for where, memory in sorted(found, key=lambda each: -each[1].peak)
    ]


def memory_figure(name: str, memory: GpuMemory) -> Figure:
    used = [(kind, tone) for kind, tone in zip(KINDS, _TONES, strict=True) if any(memory.curve.kinds[kind])]
    legend = [Key(f"part {tone}", kind.replace("_", " ")) for kind, tone in used]
    if memory.curve.reserved:
        legend.append(Key(f"line {_RESERVED}", "reserved"))
    without = ", without what was held before the recording" if memory.is_relative else ""
    return Figure(f"Allocated memory of {name}{without}", _curve_chart(memory, used), legend)


def _curve_chart(memory: GpuMemory, used: Sequence[tuple[str, str]]) -> Markup:
    curve = memory.curve
    top = max(*curve.allocated, *curve.reserved, 1)
    unit, scale = next((unit, scale) for unit, scale in _UNITS if top >= scale)
    divided, across = (_NS_PER_MS, "milliseconds") if memory.clock == "time" else (1.0, "events of the allocator")
    frame = ChartFrame(up_from_zero(max(curve.at_ns[-1] / divided, 1e-3)), up_from_zero(top / scale))
    at = [frame.x(each / divided) for each in curve.at_ns]
    parts = axes(frame, across, unit)
    below = [0] * len(at)
    for kind, tone in used:
        above = [held + more for held, more in zip(below, curve.kinds[kind], strict=True)]
        edge = [*zip(at, above, strict=True), *zip(reversed(at), reversed(below), strict=True)]
        points = " ".join(f"{x:.1f},{frame.y(value / scale):.1f}" for x, value in edge)
        parts.append(element("polygon", title(kind.replace("_", " ")), points=points, class_=f"part {tone}"))
        below = above
    if curve.reserved:
        line = [(x, frame.y(value / scale)) for x, value in zip(at, curve.reserved, strict=True)]
        parts.extend(line_through(line, "reserved", _RESERVED, dots=False))
    return chart(parts, f"Allocated memory over time, at most {size(memory.peak)}")


MOST_BYTES = 3_000_000
_SCRIPTS = (
    *("columns", "units", "model", "paint", "tree", "view", "draw", "marks"),
    *("details", "find", "input", "save", "timeline", "kernels", "annotations", "main"),
)
_STYLES = ("kernels/page.css", "kernels/timeline.css")

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
    findings = shown_findings([*ranks, *document.snapshots], shown, across)
    totals = kernel_totals(ranks)
    views = kernel_views(ranks, totals, shown, names)
    timelines = timelines_document(drawn, names)
    island: dict[str, Any] = {"kernels": views, "tones": TONES, "timelines": timelines, "names": names.texts}
    kernels, whole = totals[:MOST_KERNELS], views[0]
    annotations = figures.grouped((each for rank in ranks for each in rank.annotations), lambda each: each.name)
    memory = figures.memory_totals(ranks)
    return render_page(
        "kernels.html.j2",
        styles=kernels_style(),
        script=kernels_script(),
        **_HELPERS,
        document=document,
        ranks=ranks,
        across=across,
        several=len(ranks) > 1,
        gpus=_gpus(ranks),
        about=_about(document),
        window=nanos(max((rank.window_ns for rank in ranks), default=0)),
        verdict=shown_verdict(document, findings),
        figures=key_figures(ranks) if ranks else [],
        glance=glance(ranks) if ranks else None,
        findings=findings,
        lacking=lacking(ranks),
        kernels=kernels,
        others=len(totals) - len(kernels) + figures.total_of(ranks, "kernels_left_out"),
        views=[each["title"] for each in views],
        top=TOP,
        by_time=top_rows(kernels, "total_ns", whole["total"], nanos),
        by_count=top_rows(kernels, "count", whole["runs"], count),
        window_ns=figures.total_of(ranks, "window_ns"),
        busy_ns=figures.total_of(ranks, "busy_ns"),
        memory=memory,
        memories=memories(document),
        share_figures=figures.share_figures(ranks, memory),
        collectives=figures.grouped(
            (each for rank in ranks for each in rank.collectives), lambda each: (each.name, each.group, each.dtype)
        ),
        annotation_figures=figures.annotation_figures(annotations),
        annotations_left=max(len(annotations) - figures.MOST_ANNOTATIONS, 0)
        + figures.total_of(ranks, "annotations_left_out"),
        compared=[]
        if document.comparison is None
        else sorted(document.comparison.ranks, key=lambda rank: -abs(rank.worsened)),
        ranked=None if across is None else rank_matrix(ranks, across),
        drawn=drawn,
        events=sum(len(timeline.rows) for _, timeline in drawn),
        cut=cut,
        omitted=names.omitted,
        deepest=DEEPEST,
        island=in_script(msgspec.json.encode(island)),
    )


def _changed_parts(step: StepChange) -> list[tuple[str, int]]:
    parts = sorted(step.parts.items(), key=lambda part: -abs(part[1]))
    return [(text.PARTS[name], change) for name, change in parts if change]


def _whole_name(name: str, longest: int) -> Markup:
    """Write a name with its middle cut out where it is long; the pointer shows it whole."""
    short = shown_name(name, longest)
    if len(name) <= longest:
        return Markup("<code>{}</code>").format(short)
    return Markup('<code title="{}">{}</code>').format(shown_name(name, LONGEST_NAME), short)


def _shapes(text: str) -> str:
    try:
        shapes = msgspec.json.decode(text, type=list[list[int]])
    except (msgspec.DecodeError, ValueError):
        return text
    return ", ".join("x".join(map(str, shape)) for shape in shapes if shape)


_HELPERS: dict[str, Any] = {
    "changed_parts": _changed_parts,
    "each_of": lambda ranks, entries: [(rank, entry) for rank in ranks for entry in getattr(rank, entries)],
    "held_ns": lambda stretches: sum(end - start for start, end in stretches),
    "memory_figure": memory_figure,
    "own_frame": own_frame,
    "rank_name": rank_name,
    "shapes_of": _shapes,
    "short_shapes": short_shapes,
    "whole_name": _whole_name,
    "words": text,
    "charts": figures,
}


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


@functools.cache
def kernels_script() -> str:
    return joined_script(("timelines/data.js", *(f"kernels/{each}.js" for each in _SCRIPTS)))


@functools.cache
def kernels_style() -> str:
    return "\n".join(read_asset(each) for each in _STYLES)
