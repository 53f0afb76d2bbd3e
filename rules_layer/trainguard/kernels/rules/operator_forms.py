"""Operators that cost time by the form in which they run, none of them slow: what each form costs, and would save."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from trainguard.core.finding import Fact
from trainguard.kernels.columns import Ints, WorkKind
from trainguard.kernels.costs import short_shapes
from trainguard.kernels.device_entries import PeaksEntry
from trainguard.kernels.entries import OperatorEntry
from trainguard.kernels.formulas.moved import POINTWISE
from trainguard.kernels.operators import BYTES_OF, CACHED
from trainguard.kernels.peaks import peaks_entry
from trainguard.kernels.rules.experts import Fused, fused_of
from trainguard.kernels.rules.finding import JudgedRank, rows_of, time_of
from trainguard.kernels.rules.rule import portion
from trainguard.kernels.rules.text import Saying
from trainguard.kernels.times.intervals import inside_rows

MATH_ATTENTION = "aten::_scaled_dot_product_attention_math"
SHORTEST_CHAIN = 3
SHOWN_NAMES = 5


def math_attention(judged: JudgedRank) -> Ints:
    trace = judged.trace
    mine = np.isin(trace.operators.name, trace.numbers_of(lambda name: name == MATH_ATTENTION))
    rows = np.flatnonzero(judged.in_window & (trace.gpu.kind == WorkKind.COMPUTE) & (judged.window.launch >= 0))
    calls = judged.window.launch[rows]
    return rows[inside_rows(trace.operators, mine, trace.launches.lane[calls], trace.launches.start[calls])]


@dataclass(frozen=True, slots=True)
class _Link:
    """A call of an operator on single elements: how many it has, and how many tensors of that size it moves."""

    entry: OperatorEntry
    elements: int
    tensors: float
    row: int


def chains_of(judged: JudgedRank, peaks: PeaksEntry) -> list[tuple[float, str, list[list[_Link]]]]:
    """Return chains of operators on single elements over tensors that no cache holds, those first that would save most.

    Those of the same operators are together, with the nanoseconds that one kernel would save for each, and their names.
    A link reads what the one before it wrote: one kernel would move two tensors less for each link but the first.
    """
    found: dict[str, list[list[_Link]]] = {}
    for chain in _runs(judged, _links(judged, peaks)):
        if len(chain) >= SHORTEST_CHAIN:
            found.setdefault(_names(chain), []).append(chain)
    every = [(sum(_saved(judged, chain) for chain in alike), names, alike) for names, alike in found.items()]
    return sorted(every, key=lambda each: -each[0])


def _links(judged: JudgedRank, peaks: PeaksEntry) -> Mapping[int, _Link]:
    links = {}
    for called in judged.operators:
        entry, size = called.entry, BYTES_OF.get(called.entry.precision, 0)
        held = entry.name in POINTWISE and (entry.held_bytes or 0) > CACHED * peaks.cache_mb * 1e6
        held &= entry.unrated != "not_moved"
        if held and size and entry.flops and entry.bytes and len(called.rows) == entry.count:
            tensors = entry.bytes / (entry.flops * size)
            for row in called.rows.tolist():
                links[row] = _Link(entry, entry.flops // entry.count, tensors, row)
    return links


def _runs(judged: JudgedRank, links: Mapping[int, _Link]) -> list[list[_Link]]:
    gpu = judged.trace.gpu
    rows = np.flatnonzero(judged.in_window & (gpu.kind <= WorkKind.COMMUNICATION))
    order = rows[np.lexsort((gpu.start[rows], gpu.lane[rows], gpu.device[rows]))]
    linked = np.zeros(len(gpu), dtype=np.bool_)
    linked[list(links)] = True
    runs: list[list[_Link]] = []
    last = -1
    for place in np.flatnonzero(linked[order]).tolist():
        link = links[int(order[place])]
        if last == place - 1 and runs and _follows(judged, runs[-1][-1], link):
            runs[-1].append(link)
        else:
            runs.append([link])
        last = place
    return runs


def _follows(judged: JudgedRank, one: _Link, other: _Link) -> bool:
    """Whether a link may read what the other wrote; the same operator again is more likely one over another tensor."""
    gpu, rows = judged.trace.gpu, (one.row, other.row)
    same_stream = len({(int(gpu.lane[row]), int(gpu.device[row])) for row in rows}) == 1
    return same_stream and one.elements == other.elements and one.entry.name != other.entry.name


def _names(chain: list[_Link]) -> str:
    names = [link.entry.name for link in chain]
    return ", ".join(names[:SHOWN_NAMES]) + (", …" if len(names) > SHOWN_NAMES else "")


def _saved(judged: JudgedRank, chain: list[_Link]) -> float:
    gpu, rows = judged.trace.gpu, _rows([chain])
    moved = sum(link.tensors for link in chain)
    return float((gpu.end[rows] - gpu.start[rows]).sum()) * min(2 * (len(chain) - 1) / moved, 1.0)


def _rows(chains: list[list[_Link]]) -> Ints:
    return np.array([link.row for chain in chains for link in chain], dtype=np.int64)


# What good kernels reach of a data sheet: of arithmetic (AMD: 708 of MI300X's 1,307 TFLOP/s, TraceLens), of memory.
REACHED, REACHED_AMD, REACHED_BYTES = 0.75, 0.54, 0.85

# Of a peak that others quote: an operator must be slower by a tenth more.
UNCONFIRMED = 0.9

_AMD = re.compile(r"AMD|Instinct", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What other kernels would save, in nanoseconds, and what is measured by it; ``shown`` are the rows by name."""

    kind: str
    measured: str
    measured_ns: float
    saved_ns: float
    facts: list[Fact]
    shown: list[tuple[str, Ints]]


SPREAD_TOKENS = "Route more tokens at once (a larger batch), or spread experts over ranks."

FORMS = (
    Saying(
        "slow_operators_math_attention",
        "{math_share} of the time attention runs as single operators ({operator}), which write its scores to memory.",
        "Let scaled_dot_product_attention choose FlashAttention or cuDNN: BF16 inputs, and is_causal=True in the place "
        "of a mask; or use FlexAttention.",
        "attention ran without a fused kernel",
    ),
    Saying(
        "slow_operators_unfused",
        "Chains of {operator} over {shapes} read and write tensors of the same size one after the other: one kernel "
        "would save up to {saved_share} of the time.",
        "Fuse them by torch.compile, or use an operator that does it all, such as gelu(approximate='tanh').",
        "operators in a row were not fused",
    ),
    Saying(
        "slow_operators_layout",
        "{layout_share} of the time tensors are turned between NCHW and NHWC around convolutions ({operator}).",
        "Keep model and batches in one layout: .to(memory_format=torch.channels_last).",
        "tensors were turned from one layout to another",
    ),
    Saying(
        "slow_operators_starved",
        "{starved_share} of the time {experts} experts share {rows} rows ({operator}, {shapes}): their weights are "
        "read for few rows each, and arithmetic reaches {compute_share} of what good kernels do.",
        SPREAD_TOKENS,
        "experts shared few rows",
    ),
    Saying(
        "slow_operators_unused",
        "{operator} ({shapes}), {experts_share} of the time, is faster than memory can read its {experts} experts: a "
        "call uses at most {most_used} of them.",
        "Log how many tokens each expert gets, and balance them by the router's auxiliary loss or a bias.",
        "a router used some of its experts alone",
    ),
)


def forms_of(judged: JudgedRank) -> Iterator[Saved | None]:
    """Yield what each form costs, None of one that is not there; causes in the order in which one is said."""
    peaks = peaks_entry(judged.trace.gpus)
    experts = [] if peaks is None else fused_of(judged, peaks, arithmetic_of(peaks), margin_of(peaks))
    yield _starved(judged, [each for each in experts if each.experts.are_starved])
    yield _in_math_form(judged)
    yield None if peaks is None else _unfused(judged, peaks)
    yield _turned(judged)
    yield _unused(judged, [each for each in experts if each.some_are_unused])


def arithmetic_of(peaks: PeaksEntry) -> float:
    return REACHED_AMD if _AMD.search(peaks.gpu) else REACHED


def margin_of(peaks: PeaksEntry) -> float:
    return 1.0 if peaks.confirmed else UNCONFIRMED


def named(entry: OperatorEntry) -> str:
    return f"{entry.name} {short_shapes(entry.shapes)}"


def _starved(judged: JudgedRank, found: list[Fused]) -> Saved | None:
    """Return experts that share few rows: a larger batch wins half of what is no arithmetic."""
    if not found:
        return None
    first, total = found[0], _total(judged, found)
    computes = sum(each.computes_ns for each in found) / judged.counted
    own = [
        Fact(name="rows", value=first.experts.rows),
        portion("compute_share", first.computes_ns / first.called.entry.kernel_ns),
    ]
    return _of_experts("slow_operators_starved", "starved_share", found, total, max(total - computes, 0.0) / 2, own)


def _unused(judged: JudgedRank, found: list[Fused]) -> Saved | None:
    """Return experts of which a call uses some alone: that costs the model, and no time."""
    if not found:
        return None
    own = [Fact(name="most_used", value=found[0].most_used)]
    return _of_experts("slow_operators_unused", "experts_share", found, _total(judged, found), 0.0, own)


def _of_experts(
    kind: str, measured: str, found: list[Fused], measured_ns: float, saved_ns: float, own: list[Fact]
) -> Saved:
    entry = found[0].called.entry
    return Saved(
        kind=kind,
        measured=measured,
        measured_ns=measured_ns,
        saved_ns=saved_ns,
        facts=[
            Fact(name="operator", value=entry.name),
            Fact(name="shapes", value=short_shapes(entry.shapes)),
            Fact(name="experts", value=found[0].experts.experts),
            *own,
        ],
        shown=[(named(each.called.entry), each.called.rows) for each in found],
    )


def _total(judged: JudgedRank, found: list[Fused]) -> float:
    return min(sum(each.called.entry.kernel_ns for each in found) / judged.counted, judged.compute_ns)


def _in_math_form(judged: JudgedRank) -> Saved | None:
    """Return attention in its math form: a fused kernel takes less than half of its time."""
    rows = math_attention(judged)
    if not len(rows):
        return None
    total = int((judged.trace.gpu.end[rows] - judged.trace.gpu.start[rows]).sum()) / judged.counted
    return Saved(
        kind="slow_operators_math_attention",
        measured="math_share",
        measured_ns=total,
        saved_ns=total / 2,
        facts=[Fact(name="operator", value=MATH_ATTENTION)],
        shown=[(MATH_ATTENTION, rows)],
    )


# Kernels of cuDNN and MIOpen that turn images from one layout to the other.
_TURNS = re.compile(r"nchwtonhwc|nhwctonchw|batched_transpose_\d", re.IGNORECASE)


def _turned(judged: JudgedRank) -> Saved | None:
    lines = [line for line in judged.compute if _TURNS.search(line.name)]
    if not lines:
        return None
    rows = rows_of(lines)
    callers = np.unique(judged.operator[rows], return_counts=True)
    caller = int(callers[0][callers[1].argmax()])
    trace = judged.trace
    total = time_of(lines) / judged.counted
    return Saved(
        kind="slow_operators_layout",
        measured="layout_share",
        measured_ns=total,
        saved_ns=total,
        facts=[Fact(name="operator", value=lines[0].name if caller < 0 else trace.names[trace.operators.name[caller]])],
        shown=[(line.name, line.rows) for line in lines],
    )


def _unfused(judged: JudgedRank, peaks: PeaksEntry) -> Saved | None:
    chains = chains_of(judged, peaks)
    if not chains:
        return None
    saved = min(sum(each[0] for each in chains) / judged.counted, judged.compute_ns)
    _, names, alike = chains[0]
    return Saved(
        kind="slow_operators_unfused",
        measured="saved_share",
        measured_ns=saved,
        saved_ns=saved,
        facts=[
            Fact(name="operator", value=names),
            Fact(name="shapes", value=short_shapes(alike[0][0].entry.shapes)),
        ],
        shown=[(of, _rows(each)) for _, of, each in chains],
    )
