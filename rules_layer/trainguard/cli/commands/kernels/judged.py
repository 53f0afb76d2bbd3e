"""From traces to a verdict on the terminal, and to ``kernels.json`` and ``kernels.html``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from trainguard.cli.output.rendering import (
    Block,
    Grid,
    Item,
    Line,
    Shown,
    TerminalColumn,
    TerminalFacts,
    heading,
    severity_cell,
    table,
)
from trainguard.cli.output.result import CommandResult
from trainguard.core.units import counted
from trainguard.kernels.changes import ChangedEntry, KernelComparison, RankComparison
from trainguard.kernels.comparison.text import CHANGES, PARTS, causes, comparable, headline, signed
from trainguard.kernels.costs import short_shapes
from trainguard.kernels.device_entries import ArithmeticEntry, FamilyEntry
from trainguard.kernels.document import AcrossRanks, KernelProfiles, RankProfile, encode_profiles
from trainguard.kernels.entries import CriticalPathEntry, KernelEntry, KernelFinding
from trainguard.kernels.memory.entries import GpuMemory, SnapshotProfile
from trainguard.kernels.memory.frames import own_frame
from trainguard.kernels.overview import summary_of
from trainguard.kernels.rollups.phases import PHASES
from trainguard.kernels.rollups.rollup import with_model_flops
from trainguard.kernels.rules.allocator import UNKNOWN_PLACE, said_size
from trainguard.kernels.rules.finding import FAMILY
from trainguard.kernels.rules.ranks import by_rule
from trainguard.kernels.rules.trace_quality import TraceQuality
from trainguard.local.judged_traces import profiles_of, unwatched
from trainguard.local.traces import DOCUMENT, PAGE, open_traces
from trainguard.render.numbers import nanos, number, shown_name

_CHANGES = {"recompute": "with recomputed activations", "half_batch": "with half the batch"}
# Rows of a table, ranks, and parts of a path; ``kernels.json`` has all, and the whole name of a kernel.
_SHOWN, _SHOWN_RANKS, _SHOWN_PARTS = 15, 8, 4
_LONGEST_NAME = 100
_LABEL_WIDTH = 8
# Of more files that are left out, the others are counted.
_NAMED = 5
# So much of the time of products is all of it, but for rounding.
_ALL = 0.995


def _title(profile: RankProfile | SnapshotProfile) -> Line:
    return heading(profile.trace if profile.rank is None else f"rank {profile.rank}: {profile.trace}")


def _item(finding: KernelFinding, note: str = "", more: str = "") -> Item:
    labels = [(severity_cell(finding.severity), _LABEL_WIDTH)]
    return Item(labels, f"{finding.id}: {finding.summary}{note}", finding.recommendation + more)


def _confidence(finding: KernelFinding) -> str:
    return " Low confidence." if finding.confidence == "low" else ""


def _memory_blocks(memory: Sequence[GpuMemory]) -> Iterator[Block]:
    for each in memory:
        facts = [(f"memory of {each.name}", _sizes(each)), *_parts(each)]
        for change in each.notable_estimates:
            basis = f"estimated from {said_size(change.acts_on)} that it acts on"
            facts.append((_CHANGES[change.change], f"at most {said_size(change.saves_at_most)} less, {basis}"))
        yield TerminalFacts(facts)
        if each.unknown:
            yield Line(each.unknown)
        if each.holders:
            at = "when an allocation failed" if each.moment == "failure" else "at the peak"
            columns = {
                TerminalColumn(f"holds most {at}", folds=True): lambda held: own_frame(held.where) or UNKNOWN_PLACE,
                TerminalColumn("kind"): lambda held: held.kind.replace("_", " "),
                TerminalColumn("size", right=True): lambda held: said_size(held.bytes),
                TerminalColumn("blocks", right=True, drops=1): lambda held: f"{held.blocks:,}",
            }
            yield table(each.holders, columns)


def _sizes(memory: GpuMemory) -> str:
    reserved = "" if memory.most_reserved is None else f", {said_size(memory.most_reserved)} reserved"
    limit = f" of {said_size(memory.limit)}" if memory.limit else ""
    without = " beyond what was held before" if memory.is_relative else ""
    return f"at most {said_size(memory.peak)} allocated{without}{reserved}{limit}"


def _parts(memory: GpuMemory) -> Iterator[tuple[str, str]]:
    held = sorted(((size, kind) for kind, size in memory.kinds.items() if size), reverse=True)
    when = "at the failure" if memory.moment == "failure" else "at the peak"
    if held:
        yield when, ", ".join(f"{kind.replace('_', ' ')} {100 * size / memory.held:.0f} %" for size, kind in held)
    parts = memory.fragments
    if parts is not None:
        largest = f"the largest block {said_size(parts.largest_free)}"
        yield "free at the end", f"{said_size(parts.free)}, {largest}, {said_size(parts.inactive_split)} beside others"


def _comparison_blocks(comparison: KernelComparison) -> Iterator[Block]:
    yield from (Line(note) for note in comparison.notes)
    ranks = sorted(comparison.ranks, key=lambda rank: -abs(rank.worsened))
    for rank in ranks[:_SHOWN_RANKS]:
        yield from _compared(rank)
    if len(ranks) > _SHOWN_RANKS:
        yield Line(f"{len(ranks) - _SHOWN_RANKS:,} ranks that changed less are in kernels.json.")


def _compared(rank: RankComparison) -> Iterator[Block]:
    yield heading(f"{rank.after_trace} compared with {rank.before_trace}")
    yield from (Line(text) for text in (comparable(rank.comparable), headline(rank), *causes(rank)))
    if rank.step is not None:
        parts = sorted(rank.step.parts.items(), key=lambda part: -abs(part[1]))
        yield TerminalFacts([(PARTS[name], signed(part)) for name, part in parts if part])
    for title, entries in (("kernel", rank.kernels), ("operator", rank.operators)):
        changed = [each for each in entries if each.change != "same"][:_SHOWN]
        whole = "of a step" if rank.per == "step" else "of this work"
        of_step = [] if rank.step is None else [TerminalColumn(whole, right=True)]
        columns = (
            TerminalColumn(title, folds=True),
            TerminalColumn("change"),
            TerminalColumn("a run"),
            *of_step,
            TerminalColumn("runs"),
        )
        if changed:
            yield Grid(columns, [_row(each) for each in changed])


def _row(entry: ChangedEntry) -> list[str]:
    name = f"{entry.name} {short_shapes(entry.shapes)}" if entry.shapes else entry.name
    run = f"{nanos(entry.run_before_ns)} to {nanos(entry.run_after_ns)}"
    of_step = [] if entry.before_ns is None else [signed(entry.delta_ns)]
    runs = f"{number(entry.before_runs)} to {number(entry.after_runs)}"
    return [shown_name(name, _LONGEST_NAME), CHANGES[entry.change], run, *of_step, runs]


def _across(across: AcrossRanks) -> Iterator[Block]:
    yield heading(f"{len(across.lines)} traces compared")
    yield from map(_item, across.findings)
    cells = {
        TerminalColumn("rank"): lambda line: line.trace if line.rank is None else str(line.rank),
        TerminalColumn("step", right=True): lambda line: _ms(line.step_ns),
        TerminalColumn("computes", right=True): lambda line: _ms(line.compute_ns),
        TerminalColumn("communicates", right=True): lambda line: _ms(line.communication_ns),
        TerminalColumn("waits", right=True): lambda line: "-" if line.wait_ns is None else _ms(line.wait_ns),
        TerminalColumn("last in", right=True, drops=1): lambda line: f"{line.last_steps} of {across.compared_steps}",
    }
    yield table(sorted(across.lines, key=lambda line: (-line.last_steps, line.rank or 0))[:_SHOWN], cells)
    yield from (Line(note) for note in across.notes)


def judged(
    source: str, out: Path | None, compare: str | None, *, model_tflops: float | None = None, gpu: str = ""
) -> CommandResult:
    """Judge the traces of a place, beside those of another one; with ``out`` write the document and its page there.

    ``model_tflops`` are the operations that the model needs for a step of a rank, in 10^12; ``gpu`` is the GPU of
    traces that do not name theirs.
    """
    place = open_traces(source)
    other = None if compare is None else open_traces(compare)
    drawn = None
    if out is not None:
        from trainguard.cli.output.files import prepare
        from trainguard.kernels.timeline.build import DrawnRanks

        prepare(out)
        drawn = DrawnRanks(len(place.names))
    document = profiles_of(place, unwatched if drawn is None else drawn.add, gpu)
    if model_tflops is not None:
        document = replace(document, ranks=[_of_model(rank, model_tflops * 1e12) for rank in document.ranks])
    if other is not None:
        from trainguard.kernels.comparison.compare import compared

        document = replace(document, comparison=compared(profiles_of(other, gpu=gpu), document))
    blocks = [*_overview(document), *_all_ranks(document)]
    if out is not None and drawn is not None:
        # The page's templates are slow to import.
        from trainguard.cli.output.files import write_files
        from trainguard.report.html.kernels.page import render_kernels

        files = {DOCUMENT: encode_profiles(document), PAGE: render_kernels(document, drawn.in_order()).encode()}
        write_files(out, files)
        blocks += [Line(f"Written: {out / name}", whole=True) for name in files]
    notes = [f"{name} was not read: {why}" for name, why in document.unread.items()]
    if place.left_out:
        files_left = f"{counted(len(place.left_out), 'file')} not read: {_listed(place.left_out)}"
        how = "They do not begin as a trace; give one by its own path to read it all the same."
        notes.insert(0, f"{files_left}. {how}")
    profiles: list[RankProfile | SnapshotProfile] = [*document.ranks, *document.snapshots]
    fired = any(finding.id != TraceQuality.name for each in profiles for finding in each.findings)
    return CommandResult(
        document=document,
        blocks=blocks,
        notes=notes,
        fired=fired or (document.across is not None and bool(document.across.findings)),
        evaluated=any(rank.busy_ns for rank in document.ranks) or bool(document.snapshots),
    )


def _overview(document: KernelProfiles) -> Iterator[Block]:
    profiles: list[RankProfile | SnapshotProfile] = [*document.ranks, *document.snapshots]
    fired = [
        (rule.removeprefix(FAMILY), max((each.severity for _, each in entries), key=lambda each: each.rank))
        for rule, entries in by_rule(profiles, document.across).items()
        if rule != TraceQuality.name
    ]
    verdict = summary_of(document, fired)
    yield Line(f"{verdict.word}. {' '.join(verdict.sentences)}")
    if document.comparison is not None:
        yield from _comparison_blocks(document.comparison)


def _all_ranks(document: KernelProfiles) -> Iterator[Block]:
    for rank in document.ranks[:_SHOWN_RANKS]:
        yield from _blocks(rank)
    for snapshot in document.snapshots[:_SHOWN_RANKS]:
        yield _title(snapshot)
        yield from (_item(each, _confidence(each)) for each in snapshot.findings)
        yield from _memory_blocks(snapshot.memory)
    if others := [each.trace for found in (document.ranks, document.snapshots) for each in found[_SHOWN_RANKS:]]:
        yield Line(f"{counted(len(others), 'more trace')} not shown here: {_listed(others)}.")
    if document.across is not None:
        yield from _across(document.across)


def _of_model(rank: RankProfile, flops: float) -> RankProfile:
    used = rank.rollup.arithmetic
    if used is None:
        return rank
    return replace(rank, rollup=replace(rank.rollup, arithmetic=with_model_flops(used, flops)))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _blocks(rank: RankProfile) -> Iterator[Block]:
    delay, precise = rank.launch_delay_ns, sum(rank.precision.values())
    precisions = (f"{name} {100 * part / precise:.0f} %" for name, part in rank.precision.items() if precise)
    yield _title(rank)
    yield TerminalFacts(
        [
            ("window", f"{_ms(rank.window_ns)}, {counted(len(rank.steps), 'step')}"),
            ("GPU busy", ("at least " if rank.quality.work_lost else "") + _part(rank, rank.busy_ns)),
            ("computes", _part(rank, rank.compute_ns)),
            ("communicates", f"{_part(rank, rank.communication_ns)}, exposed {_ms(rank.exposed_communication_ns)}"),
            ("copies, sets memory", f"{_part(rank, rank.memory_ns)}, exposed {_ms(rank.exposed_memory_ns)}"),
            ("precision", ", ".join(precisions) or "-"),
            ("launch delay", "-" if delay is None else f"median {_us(delay.median)}, p90 {_us(delay.p90)}"),
            *(("arithmetic", _arithmetic(used)) for used in [rank.rollup.arithmetic] if used is not None),
            *(("critical path", _path(path)) for path in rank.critical_paths[:1]),
        ]
    )
    for finding in rank.findings:
        explains = f" It explains {_ms(finding.gain.ns_per_step)} of {'each step' if rank.steps else 'the window'}."
        yield _item(finding, _confidence(finding), explains if finding.gain.ns_per_step else "")
    if rank.rollup.families:
        yield _families(rank)
    if rank.kernels:
        yield table(rank.kernels[:_SHOWN], _KERNELS)
    yield from _memory_blocks(rank.memory)


def _arithmetic(used: ArithmeticEntry) -> str:
    least = "" if used.covered_share >= _ALL else "at least "
    peak = f"{used.peak_tflops:,g} TFLOP/s in {used.precision}{'' if used.peak_confirmed else ' (not confirmed)'}"
    return f"MFU {least}{used.mfu:.1%}, HFU {least}{used.hfu:.1%} of {peak}"


def _families(rank: RankProfile) -> Grid:
    """Return the GPU's time by family, and by phase where one is known."""
    whole = sum(each.total_ns for each in rank.rollup.families)
    names = dict.fromkeys(_family(each) for each in rank.rollup.families)
    phases = [phase for phase in PHASES if any(each.phase == phase for each in rank.rollup.families)]
    shown = phases if phases != ["unknown"] else []

    def ns(name: str, *wanted: str) -> int:
        return sum(each.total_ns for each in rank.rollup.families if _family(each) == name and each.phase in wanted)

    rows = sorted(((name, ns(name, *phases)) for name in names), key=lambda row: -row[1])
    columns = (
        TerminalColumn("family"),
        *(TerminalColumn("other" if phase == "unknown" else phase, right=True, drops=1) for phase in shown),
        TerminalColumn("total", right=True),
        TerminalColumn("share", right=True),
    )
    return Grid(
        columns,
        [
            (name, *(_ms(ns(name, phase)) for phase in shown), _ms(total), f"{total / whole:.1%}" if whole else "-")
            for name, total in rows
        ],
    )


def _family(entry: FamilyEntry) -> str:
    return entry.collective.replace("_", "-") or entry.family


_KERNELS: Mapping[TerminalColumn, Callable[[KernelEntry], Shown]] = {
    TerminalColumn("kernel", folds=True): lambda each: shown_name(each.name, _LONGEST_NAME),
    TerminalColumn("runs", right=True): lambda each: f"{each.count:,}",
    TerminalColumn("total", right=True): lambda each: _ms(each.total_ns),
    TerminalColumn("mean", right=True, drops=2): lambda each: _us(each.mean_ns),
    TerminalColumn("p99", right=True, drops=3): lambda each: _us(each.p99_ns),
    TerminalColumn("precision", drops=1): lambda each: each.precision + (", tensor cores" if each.tensor_core else ""),
}


def _part(rank: RankProfile, part_ns: int) -> str:
    share = part_ns / rank.window_ns if rank.window_ns else 0.0
    return f"{100 * share:.1f} %, {_ms(part_ns)}"


def _path(path: CriticalPathEntry) -> str:
    parts = sorted(path.parts.items(), key=lambda part: -part[1])[:_SHOWN_PARTS]
    shown = ", ".join(f"{name.replace('_', ' ')} {100 * part / path.total_ns:.0f} %" for name, part in parts)
    return shown if path.step is None else f"{shown} of step {path.step}"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f} ms"


def _us(ns: int) -> str:
    return f"{ns / 1e3:,.1f} us"
