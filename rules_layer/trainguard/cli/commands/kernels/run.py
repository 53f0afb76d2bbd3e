"""``trainguard kernels``: from traces to ``kernels.json``, a table or JSON, and an exit code."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainguard.cli.output.blocks import Block, Column, Facts, Grid, Heading, Item, Line, severity_cell
from trainguard.cli.output.files import prepare, write_files
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.errors import KernelTraceError, ObjectMissingError, PortUnavailableError
from trainguard.kernels.document import KernelProfiles, RankProfile, encode_profiles
from trainguard.kernels.findings.steps_and_trace import TRACE_QUALITY
from trainguard.kernels.kineto import read_trace
from trainguard.kernels.profile import rank_profile
from trainguard.local.traces import TracePlace, open_traces

DOCUMENT = "kernels.json"
_SHOWN_KERNELS = 15
_LABEL_WIDTH = 8
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelsRequest:
    """What was asked for on the command line."""

    source: str
    out: Path
    fail_on_fire: bool = False
    as_json: bool = False


def kernels_command(request: KernelsRequest) -> int:
    """Judge traces; return the exit code."""
    return print_result(lambda: _result(request), as_json=request.as_json, fail_on_fire=request.fail_on_fire)


def _result(request: KernelsRequest) -> CommandResult:
    place = open_traces(request.source)
    prepare(request.out)
    document = profiles_of(place)
    write_files(request.out, {DOCUMENT: encode_profiles(document)})
    blocks = [block for rank in document.ranks for block in _blocks(rank)]
    return CommandResult(
        document=document,
        blocks=[*blocks, Line(f"Written: {request.out / DOCUMENT}", whole=True)],
        notes=[f"{name} was not read: {reason}" for name, reason in document.unread.items()],
        fired=any(finding.id != TRACE_QUALITY for rank in document.ranks for finding in rank.findings),
        evaluated=any(rank.busy_ns for rank in document.ranks),
    )


def profiles_of(place: TracePlace) -> KernelProfiles:
    """Read and judge all traces of a place, one at a time.

    Raises
    ------
    KernelTraceError
        When none can be read: the error of the first.
    """
    ranks: list[RankProfile] = []
    unread: dict[str, str] = {}
    for name in place.names:
        try:
            with place.open(name) as stream:
                ranks.append(rank_profile(read_trace(name, stream)))
        except KernelTraceError as fault:
            unread[name] = fault.reason
        except (ObjectMissingError, PortUnavailableError, OSError) as fault:
            unread[name] = str(fault)
    if not ranks:
        name, reason = next(iter(unread.items()))
        raise KernelTraceError(f"{place.place} ({name})" if len(place.names) > 1 else place.place, reason)
    ranks.sort(key=lambda rank: (rank.rank is None, rank.rank or 0, rank.trace))
    source = place.place.encode("utf-8", "replace").decode()
    return KernelProfiles(source=source, ranks=ranks, unread=unread)


def _blocks(rank: RankProfile) -> Iterator[Block]:
    title = rank.trace if rank.rank is None else f"rank {rank.rank}: {rank.trace}"
    yield Heading(title)
    yield Facts(
        [
            ("window", f"{_ms(rank.window_ns)}, {len(rank.steps)} steps"),
            ("GPU busy", _part(rank, rank.busy_ns)),
            ("computes", _part(rank, rank.compute_ns)),
            ("communicates", f"{_part(rank, rank.communication_ns)}, exposed {_ms(rank.exposed_communication_ns)}"),
            ("copies, sets memory", f"{_part(rank, rank.memory_ns)}, exposed {_ms(rank.exposed_memory_ns)}"),
            ("precision", _precisions(rank)),
            ("launch delay", _delay(rank)),
        ]
    )
    for finding in rank.findings:
        labels = [(severity_cell(finding.severity), _LABEL_WIDTH)]
        ceiling = f" Can win at most {_ms(finding.gain.ns_per_step)} a step." if finding.gain.ns_per_step else ""
        yield Item(labels=labels, text=f"{finding.id}: {finding.summary}", advice=finding.recommendation + ceiling)
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


def _part(rank: RankProfile, part_ns: int) -> str:
    share = part_ns / rank.window_ns if rank.window_ns else 0.0
    return f"{100 * share:.1f} %, {_ms(part_ns)}"


def _precisions(rank: RankProfile) -> str:
    total = sum(rank.precision.values())
    return ", ".join(f"{name} {100 * part / total:.0f} %" for name, part in rank.precision.items()) if total else "-"


def _delay(rank: RankProfile) -> str:
    delay = rank.launch_delay_ns
    return "-" if delay is None else f"median {_us(delay.median)}, p90 {_us(delay.p90)}"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f} ms"


def _us(ns: int) -> str:
    return f"{ns / 1e3:,.1f} us"
