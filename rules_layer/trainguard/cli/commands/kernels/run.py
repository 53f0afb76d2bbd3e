"""``trainguard kernels``: from traces to ``kernels.json`` and ``kernels.html``, a table or JSON, and an exit code."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from trainguard.cli.commands.kernels.ranks import rank_blocks
from trainguard.cli.output.blocks import Block, Column, Facts, Grid, Heading, Item, Line, severity_cell
from trainguard.cli.output.files import prepare, write_files
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.errors import KernelTraceError, ObjectMissingError, PortUnavailableError
from trainguard.kernels.columns import Trace
from trainguard.kernels.document import KernelProfiles, RankProfile, encode_profiles
from trainguard.kernels.entries import CriticalPathEntry
from trainguard.kernels.findings.finding import KernelFinding
from trainguard.kernels.findings.trace_quality import TRACE_QUALITY
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.ranks.compare import compared
from trainguard.kernels.ranks.join import across_ranks
from trainguard.kernels.timeline.ranks import DrawnRanks
from trainguard.kernels.words import counted
from trainguard.local.kernel_list import PAGE
from trainguard.local.traces import DOCUMENT, TracePlace, open_traces
from trainguard.report.html.kernels.page import render_kernels

_SHOWN_KERNELS = 15
_SHOWN_RANKS = 8
_SHOWN_PARTS = 4
_LABEL_WIDTH = 8
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelsRequest:
    """What was asked for on the command line."""

    source: str
    out: Path
    compare: str | None = None
    fail_on_fire: bool = False
    as_json: bool = False


def kernels_command(request: KernelsRequest) -> int:
    """Judge traces; return the exit code."""
    return print_result(lambda: _result(request), as_json=request.as_json, fail_on_fire=request.fail_on_fire)


def _result(request: KernelsRequest) -> CommandResult:
    place = open_traces(request.source)
    other = None if request.compare is None else open_traces(request.compare)
    prepare(request.out)
    drawn = DrawnRanks(len(place.names))
    document = profiles_of(place, drawn.add)
    if other is not None:
        document = replace(document, comparison=compared(profiles_of(other, _unseen), document))
    files = {DOCUMENT: encode_profiles(document), PAGE: render_kernels(document, drawn.in_order()).encode()}
    write_files(request.out, files)
    blocks = [block for rank in document.ranks[:_SHOWN_RANKS] for block in _blocks(rank)]
    blocks += rank_blocks(document)
    return CommandResult(
        document=document,
        blocks=[*blocks, *(Line(f"Written: {request.out / name}", whole=True) for name in files)],
        notes=[f"{name} was not read: {reason}" for name, reason in document.unread.items()],
        fired=_fired(document),
        evaluated=any(rank.busy_ns for rank in document.ranks),
    )


def profiles_of(place: TracePlace, watch: Callable[[RankProfile, Trace], None]) -> KernelProfiles:
    """Read and judge all traces of a place, one at a time; ``watch`` gets each with its profile.

    Raises
    ------
    KernelTraceError
        When none can be read: the error of the first.
    """
    ranks: list[RankProfile] = []
    unread: dict[str, str] = {}
    for name in place.names:
        try:
            ranks.append(_profile_of(place.read(name), watch))
        except KernelTraceError as fault:
            unread[name] = fault.reason
        except (ObjectMissingError, PortUnavailableError, OSError) as fault:
            unread[name] = str(fault)
    if not ranks:
        name, reason = next(iter(unread.items()))
        raise KernelTraceError(f"{place.place} ({name})" if len(place.names) > 1 else place.place, reason)
    ranks.sort(key=lambda rank: (rank.rank is None, rank.rank or 0, rank.trace))
    source = place.place.encode("utf-8", "replace").decode()
    return KernelProfiles(source=source, ranks=ranks, unread=unread, across=across_ranks(ranks))


def _fired(document: KernelProfiles) -> bool:
    across = [] if document.across is None else document.across.findings
    return bool(across) or any(finding.id != TRACE_QUALITY for rank in document.ranks for finding in rank.findings)


def _unseen(profile: RankProfile, trace: Trace) -> None:
    """Take note of nothing: what is compared with is not drawn."""
    del profile, trace


def _profile_of(trace: Trace, watch: Callable[[RankProfile, Trace], None]) -> RankProfile:
    """Return the profile of a trace, which nobody holds afterwards."""
    profile = rank_profile(trace)
    watch(profile, trace)
    return profile


def _blocks(rank: RankProfile) -> Iterator[Block]:
    title = rank.trace if rank.rank is None else f"rank {rank.rank}: {rank.trace}"
    yield Heading(title)
    yield Facts(
        [
            ("window", f"{_ms(rank.window_ns)}, {counted(len(rank.steps), 'step')}"),
            ("GPU busy", _part(rank, rank.busy_ns)),
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
    columns = (
        Column("kernel", folds=True),
        Column("runs", right=True),
        Column("total", right=True),
        Column("mean", right=True, drops=2),
        Column("p99", right=True, drops=3),
        Column("precision", drops=1),
    )
    rows = [
        (
            shortened(each.name),
            f"{each.count:,}",
            _ms(each.total_ns),
            _us(each.mean_ns),
            _us(each.p99_ns),
            each.precision + (", tensor cores" if each.tensor_core else ""),
        )
        for each in rank.kernels[:_SHOWN_KERNELS]
    ]
    if rows:
        yield Grid(columns, rows)


def shortened(name: str) -> str:
    """Return a kernel's name as it fits on a line; templates are long, and ``kernels.json`` has them whole."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


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
    """Return the largest parts of a critical path."""
    parts = sorted(path.parts.items(), key=lambda part: -part[1])[:_SHOWN_PARTS]
    shown = ", ".join(f"{name.replace('_', ' ')} {100 * part / path.total_ns:.0f} %" for name, part in parts)
    return shown if path.step is None else f"{shown} of step {path.step}"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f} ms"


def _us(ns: int) -> str:
    return f"{ns / 1e3:,.1f} us"
