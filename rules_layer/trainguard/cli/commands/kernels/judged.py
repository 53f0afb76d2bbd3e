"""From traces to ``kernels.json`` and ``kernels.html``, and their summary on the terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from trainguard.cli.output.files import prepare, write_files
from trainguard.cli.output.rendering import Block, Column, Facts, Grid, Heading, Item, Line, Shown, severity_cell, table
from trainguard.cli.output.result import CommandResult
from trainguard.core.errors import KernelTraceError, ObjectMissingError, PortUnavailableError
from trainguard.core.units import counted
from trainguard.kernels.columns import Trace
from trainguard.kernels.compare import compared
from trainguard.kernels.costs import short_shapes
from trainguard.kernels.document import (
    AcrossRanks,
    ChangedEntry,
    KernelProfiles,
    RankComparison,
    RankLine,
    RankProfile,
    encode_profiles,
)
from trainguard.kernels.entries import CriticalPathEntry, KernelEntry, KernelFinding
from trainguard.kernels.join import across_ranks
from trainguard.kernels.listing import ListedProfile, Wanted
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.rules.trace_quality import TraceQuality
from trainguard.kernels.timeline.build import DrawnRanks
from trainguard.local.traces import DOCUMENT, PAGE, FilesBelow, list_kernels, open_traces
from trainguard.report.html.kernels.page import render_kernels

_SHOWN = 15


def _across(across: AcrossRanks) -> Iterator[Block]:
    yield Heading(f"{len(across.lines)} traces compared")
    for finding in across.findings:
        labels = [(severity_cell(finding.severity), _LABEL_WIDTH)]
        yield Item(labels=labels, text=f"{finding.id}: {finding.summary}", advice=finding.recommendation)
    cells: Mapping[Column, Callable[[RankLine], Shown]] = {
        Column("rank"): lambda line: line.trace if line.rank is None else str(line.rank),
        Column("step", right=True): lambda line: _ms(line.step_ns),
        Column("computes", right=True): lambda line: _ms(line.compute_ns),
        Column("communicates", right=True): lambda line: _ms(line.communication_ns),
        Column("waits", right=True): lambda line: "-" if line.wait_ns is None else _ms(line.wait_ns),
        Column("last in", right=True, drops=1): lambda line: f"{line.last_steps} of {across.compared_steps}",
    }
    yield table(sorted(across.lines, key=lambda line: (-line.last_steps, line.rank or 0))[:_SHOWN], cells)
    yield from (Line(note) for note in across.notes)


def _compared(rank: RankComparison) -> Iterator[Block]:
    yield Heading(f"{rank.after_trace} compared with {rank.before_trace}")
    if rank.step is not None:
        parts = sorted(rank.step.parts.items(), key=lambda part: -abs(part[1]))
        yield Facts(
            [
                ("step", f"{_ms(rank.step.before_ns)} before, {_ms(rank.step.after_ns)} now"),
                *((name.replace("_", " "), _signed(part)) for name, part in parts if part),
            ]
        )
    for title, entries in (("kernel", rank.kernels), ("operator", rank.operators)):
        changed = [each for each in entries if each.change != "same"][:_SHOWN]
        if changed:
            columns = (
                Column(title, folds=True),
                Column("change"),
                Column(f"of a {rank.per}", right=True),
                Column("runs"),
            )
            yield Grid(columns, [_row(each) for each in changed])


def _row(entry: ChangedEntry) -> tuple[str, str, str, str]:
    name = f"{entry.name} {short_shapes(entry.shapes)}" if entry.shapes else entry.name
    return shortened(name), entry.change, _signed(entry.delta_ns), f"{entry.before_runs:g} to {entry.after_runs:g}"


def _signed(ns: int) -> str:
    return f"{ns / 1e6:+,.3f} ms"


_SHOWN_RANKS = 8
_SHOWN_PARTS = 4
_LABEL_WIDTH = 8
_LONGEST_NAME = 100
_NAMED = 5
"""Of more files that are left out, the others are counted."""


def judged(source: str, out: Path, compare: str | None) -> CommandResult:
    """Judge the traces of a place, beside those of another one; write ``kernels.json`` and ``kernels.html``."""
    place = open_traces(source)
    other = None if compare is None else open_traces(compare)
    prepare(out)
    drawn = DrawnRanks(len(place.names))
    document = _profiles_of(place, drawn.add)
    if other is not None:
        document = replace(document, comparison=compared(_profiles_of(other, lambda *_: None), document))
    files = {DOCUMENT: encode_profiles(document), PAGE: render_kernels(document, drawn.in_order()).encode()}
    write_files(out, files)
    blocks = [block for rank in document.ranks[:_SHOWN_RANKS] for block in _blocks(rank)]
    if others := [rank.trace for rank in document.ranks[_SHOWN_RANKS:]]:
        blocks.append(Line(f"{counted(len(others), 'more trace')} not shown here: {_listed(others)}."))
    if document.across is not None:
        blocks += _across(document.across)
    if document.comparison is not None:
        blocks += [Line(note) for note in document.comparison.notes]
        blocks += [block for rank in document.comparison.ranks for block in _compared(rank)]
    notes = [f"{name} was not read: {why}" for name, why in document.unread.items()]
    if place.left_out:
        files_left = f"{counted(len(place.left_out), 'file')} not read: {_listed(place.left_out)}"
        how = "Other files are named as traces; give one of these by its own path to read it."
        notes.insert(0, f"{files_left}. {how}")
    return CommandResult(
        document=document,
        blocks=[*blocks, *(Line(f"Written: {out / name}", whole=True) for name in files)],
        notes=notes,
        fired=_fired(document),
        evaluated=any(rank.busy_ns for rank in document.ranks),
    )


def _profiles_of(place: FilesBelow, watch: Callable[[RankProfile, Trace], None]) -> KernelProfiles:
    """Judge all traces of a place, one at a time, for ``watch``; raises KernelTraceError when none can be read."""
    ranks: list[RankProfile] = []
    unread: dict[str, str] = {}
    for name in place.names:
        try:
            trace = place.read(name)
            ranks.append(rank_profile(trace))
            watch(ranks[-1], trace)
        except KernelTraceError as fault:
            unread[name] = fault.reason
        except (ObjectMissingError, PortUnavailableError, OSError) as fault:
            unread[name] = str(fault)
        except Exception as fault:
            # What nobody thought of in one file must not cost the others.
            unread[name] = f"{type(fault).__name__}: {fault}"
    if not ranks:
        name, reason = next(iter(unread.items()))
        raise KernelTraceError(f"{place.place} ({name})" if len(place.names) > 1 else place.place, reason)
    ranks.sort(key=lambda rank: (rank.rank is None, rank.rank or 0, rank.trace))
    source = place.place.encode("utf-8", "replace").decode()
    return KernelProfiles(source=source, ranks=ranks, unread=unread, across=across_ranks(ranks))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _fired(document: KernelProfiles) -> bool:
    across = [] if document.across is None else document.across.findings
    return bool(across) or any(finding.id != TraceQuality.name for rank in document.ranks for finding in rank.findings)


def _blocks(rank: RankProfile) -> Iterator[Block]:
    title = rank.trace if rank.rank is None else f"rank {rank.rank}: {rank.trace}"
    yield Heading(title)
    yield Facts(
        [
            ("window", f"{_ms(rank.window_ns)}, {counted(len(rank.steps), 'step')}"),
            ("GPU busy", ("at least " if rank.quality.work_lost else "") + _part(rank, rank.busy_ns)),
            ("computes", _part(rank, rank.compute_ns)),
            ("communicates", f"{_part(rank, rank.communication_ns)}, exposed {_ms(rank.exposed_communication_ns)}"),
            ("copies, sets memory", f"{_part(rank, rank.memory_ns)}, exposed {_ms(rank.exposed_memory_ns)}"),
            ("precision", _precisions(rank)),
            ("launch delay", _delay(rank)),
            *(("critical path", _path(path)) for path in rank.critical_paths[:1]),
        ]
    )
    for finding in rank.findings:
        labels = [(severity_cell(finding.severity), _LABEL_WIDTH)]
        text = f"{finding.id}: {finding.summary}" + (" Low confidence." if finding.confidence == "low" else "")
        yield Item(labels=labels, text=text, advice=finding.recommendation + _explained(rank, finding))
    if rank.kernels:
        yield table(rank.kernels[:_SHOWN], _KERNELS)


def shortened(name: str) -> str:
    """Return a kernel's name as it fits on a line; ``kernels.json`` has it whole."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


_KERNELS: Mapping[Column, Callable[[KernelEntry], Shown]] = {
    Column("kernel", folds=True): lambda each: shortened(each.name),
    Column("runs", right=True): lambda each: f"{each.count:,}",
    Column("total", right=True): lambda each: _ms(each.total_ns),
    Column("mean", right=True, drops=2): lambda each: _us(each.mean_ns),
    Column("p99", right=True, drops=3): lambda each: _us(each.p99_ns),
    Column("precision", drops=1): lambda each: each.precision + (", tensor cores" if each.tensor_core else ""),
}


def _explained(rank: RankProfile, finding: KernelFinding) -> str:
    """Say what only this finding explains: of a step, or of the window of a trace without steps."""
    if not finding.gain.ns_per_step:
        return ""
    return f" It explains {_ms(finding.gain.ns_per_step)} of {'each step' if rank.steps else 'the window'}."


def _part(rank: RankProfile, part_ns: int) -> str:
    share = part_ns / rank.window_ns if rank.window_ns else 0.0
    return f"{100 * share:.1f} %, {_ms(part_ns)}"


def _precisions(rank: RankProfile) -> str:
    total = sum(rank.precision.values())
    return ", ".join(f"{name} {100 * part / total:.0f} %" for name, part in rank.precision.items()) if total else "-"


def _delay(rank: RankProfile) -> str:
    delay = rank.launch_delay_ns
    return "-" if delay is None else f"median {_us(delay.median)}, p90 {_us(delay.p90)}"


def _path(path: CriticalPathEntry) -> str:
    parts = sorted(path.parts.items(), key=lambda part: -part[1])[:_SHOWN_PARTS]
    shown = ", ".join(f"{name.replace('_', ' ')} {100 * part / path.total_ns:.0f} %" for name, part in parts)
    return shown if path.step is None else f"{shown} of step {path.step}"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f} ms"


def _us(ns: int) -> str:
    return f"{ns / 1e3:,.1f} us"


_SHOWN_PROFILES = 50
_MINUTE = len("2026-11-23T15:04")


def listed(source: str, wanted: Wanted) -> CommandResult:
    found = list_kernels(source, wanted)
    chosen = len(found.profiles) + found.left_out
    of = "" if chosen == found.found else f" of {found.found:,}"
    blocks: list[Block] = [Heading(f"{chosen:,}{of} kernel profiles below {found.source}")]
    if found.profiles:
        blocks.append(table(found.profiles[:_SHOWN_PROFILES], _PROFILES))
        left = len(found.profiles) - _SHOWN_PROFILES + found.left_out
        if left > 0:
            blocks.append(Line(f"{left:,} older ones are not shown; --json has more."))
    notes = [f"{each.place}: {each.why}." for each in found.profiles if each.status == "unreadable"]
    fired = any(each.findings for each in found.profiles)
    return CommandResult(document=found, blocks=blocks, notes=notes, fired=fired)


def _where(profile: ListedProfile) -> str:
    return profile.name if profile.place in (".", profile.name) else f"{profile.place}: {profile.name}"


_PROFILES: Mapping[Column, Callable[[ListedProfile], Shown]] = {
    Column("profile", folds=True): _where,
    Column("time"): lambda each: (each.recorded_at or each.changed_at or "-")[:_MINUTE].replace("T", " "),
    Column("status"): lambda each: each.status,
    Column("framework", drops=2): lambda each: each.framework,
    Column("traces", right=True, drops=1): lambda each: f"{each.traces:,}",
    Column("busy", right=True, drops=3): lambda each: (
        "-" if each.busy_share is None else f"{100 * each.busy_share:.0f} %"
    ),
    Column("severity"): lambda each: "-" if each.severity is None else severity_cell(each.severity),
    Column("findings", folds=True): lambda each: ", ".join(each.findings) or "-",
}
