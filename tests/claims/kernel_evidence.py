"""Recomputes the evidence of findings on a rank's kernel trace: what took how long, the longest first."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tests.claims import kernel_facts
from tests.claims.kernel_facts import computing, is_underfilled, is_wide, too_wide, total
from tests.claims.kernel_files import KERNEL, Event
from tests.claims.kernel_memory import PASS, known
from tests.claims.kernel_operators import found_of
from tests.claims.kernel_trace import LOADERS, KernelTrace

PARTS = 30
SHOWN = 3
MOST_FACTS = 12
COVERS = 0.5

# What it is, as a pattern that its name matches as a whole, and how long it took in nanoseconds.
Line = tuple[str, float]


def evidence_fault(trace: KernelTrace, rule: str, facts: list[dict[str, Any]]) -> str | None:
    """Say what does not hold of a finding's evidence; None where all does."""
    every = EVIDENCE[rule](trace)
    expected = every[:SHOWN]
    said = [(fact["series"], fact["value"]) for fact in facts if fact["name"] == "evidence"]
    # A finding has no more than so many facts: evidence is what is left out.
    if len(said) > len(expected) or (len(said) < len(expected) and len(facts) < MOST_FACTS):
        return f"{len(said)} lines of evidence, and there are {len(expected)}"
    for (what, value), (pattern, lasts) in zip(said, expected, strict=False):
        # A rank has fewer facts than lines where it has many of both; of lines that last as long any may stand first.
        alike = [each for each, other in every if other == lasts]
        if value != lasts:
            return f"{what} takes {value} ns, and the longest are {[each for _, each in expected]}"
        if not any(re.fullmatch(each, what) for each in alike):
            return f"it is called {what!r}, expected {pattern!r}"
    return None


def _share(share: float) -> str:
    """Return a pattern of a share in percent, rounded either way."""
    return "|".join(sorted({re.escape(f"{100.0 * share + more:.1f} %") for more in (-1e-6, 0.0, 1e-6)}))


def _host(trace: KernelTrace, start: int, end: int) -> str:
    """Return a pattern of what the host did in a stretch: the shortest event over half of it, else the widest."""
    every = [*trace.host, *trace.calls]
    pairs = [(min(each.end, end) - max(each.start, start), each) for each in every if each.lasts]
    met = [(over, each) for over, each in pairs if over > 0]
    if not met:
        return ""
    wide = [each for over, each in met if over >= COVERS * (end - start)]
    least = min((each.lasts for each in wide), default=0)
    most = max(over for over, _ in met)
    named = [each.name for each in wide if each.lasts == least] or [each.name for over, each in met if over == most]
    return f"{'mostly' if wide else 'longest'} in ({'|'.join(sorted(map(re.escape, set(named))))})"


def _gap_lines(trace: KernelTrace, gaps: list[tuple[int, int]]) -> list[Line]:
    longest = sorted(gaps, key=lambda each: each[0] - each[1])
    close = [gap for gap in longest if gap[1] - gap[0] >= _length(longest[:SHOWN])]
    hosts = [(_host(trace, *gap) or "in nothing that was recorded", float(gap[1] - gap[0])) for gap in close]
    return [(f"GPU idle, host {host}(, behind .+)?", lasts) for host, lasts in hosts]


def _late(trace: KernelTrace) -> list[Line]:
    """Return the longest gaps, or where a queue forms, short ones by the work that ends them."""
    if kernel_facts.is_launch_bound(trace):
        return _gap_lines(trace, trace.gaps)
    sums: dict[str, float] = {}
    for start, end in kernel_facts.late_gaps(trace):
        following = next((event.name for event in trace.recorded if event.start >= end), "")
        sums[following] = sums.get(following, 0.0) + end - start
    lines = [(f"GPU idle before {re.escape(name)}", lasts) for name, lasts in sums.items() if name]
    return sorted(lines, key=lambda line: -line[1])


def _length(gaps: list[tuple[int, int]]) -> int:
    return min((end - start for start, end in gaps), default=0)


def _least_busy_parts(trace: KernelTrace) -> list[Line]:
    """Return the parts of the window in which GPUs do least."""
    each = trace.window // PARTS
    edges = [trace.start + each * part for part in range(PARTS)] + [trace.end]
    found = []
    for start, end in pairwise(edges):
        shares = [
            sum(max(min(b, end) - max(a, start), 0) for a, b in trace.stretches(gpu.busy)) / (end - start)
            for gpu in trace.counted
        ]
        found.append((float(np.mean(shares)), start, end))
    lines = []
    for share, start, end in sorted(found, key=lambda part: part[0]):
        host = _host(trace, start, end)
        lines.append((f"GPU busy ({_share(share)}) here" + (f", host {host}" if host else ""), float(end - start)))
    return lines


def _loader_lines(trace: KernelTrace) -> list[Line]:
    lengths = [end - start for start, end in trace.stretches(trace.loading & ~trace.busy)]
    return [("data loader, GPU idle", float(each)) for each in sorted(lengths, reverse=True)]


def _waits(trace: KernelTrace) -> list[Line]:
    return [(re.escape(call.name), float(call.lasts)) for call in sorted(trace.waits, key=lambda each: -each.lasts)]


def _by_name(trace: KernelTrace, events: list[Event], order: Callable[[list[Event]], float] = total) -> list[Line]:
    """Return all runs of a name together."""
    groups = [[event for event in events if event.name == name] for name in {event.name for event in events}]
    return [(re.escape(each[0].name), float(total(each))) for each in sorted(groups, key=lambda each: -order(each))]


def _copies(trace: KernelTrace, events: list[Event]) -> list[Line]:
    lines = []
    for name in {event.name for event in events}:
        mine = [event for event in events if event.name == name]
        size, lasts = sum(event.bytes for event in mine), total(mine)
        lines.append((re.escape(f"{name}, {size:,} bytes, {size / lasts:.2f} GB/s"), float(lasts)))
    return sorted(lines, key=lambda line: -line[1])


def _collectives(trace: KernelTrace) -> list[Line]:
    events = [event for event in trace.work if event.sends]
    gpus = {gpu.number: gpu for gpu in trace.gpus}
    lines = []
    for key in {(event.collective, event.name if not event.collective[0] else "") for event in events}:
        mine = [each for each in events if (each.collective, "" if each.collective[0] else each.name) == key]
        called, group, ranks = key[0]
        # A run that goes beyond the window has no part under computation there.
        over = [trace.length(trace.of([each]) & gpus[each.device].computing) for each in mine]
        parts = [re.escape(called or key[1]), re.escape(group), f"{ranks} ranks" if ranks else ""]
        parts.append(f"({_share(sum(over) / total(mine))}) overlaps")
        sized = [each for each in mine if each.bytes >= 0]
        if sized and ranks:
            # Links carry what goes to other ranks: the only sizes that are written are those of exchanges.
            rate = sum(each.bytes for each in sized) / total(sized) * (ranks - 1) / ranks
            parts.append(re.escape(f"{round(rate, 3):.2f} GB/s on the bus"))
        lines.append((", ".join(part for part in parts if part), float(total(mine))))
    return sorted(lines, key=lambda line: -line[1])


def _short_first(trace: KernelTrace) -> list[Line]:
    short = {id(event) for event, call in trace.started if event.lasts < call.lasts}
    return _by_name(trace, computing(trace), lambda runs: sum(id(event) in short for event in runs))


def _parallel(trace: KernelTrace) -> list[Line]:
    if not kernel_facts.is_data_parallel(trace):
        calls = trace.length(kernel_facts.calls_named(trace, *kernel_facts.LIBRARIES))
        return [(f"collectives of {', '.join(sorted(kernel_facts.libraries(trace)))}", float(calls))]
    calls = trace.length(kernel_facts.calls_named(trace, kernel_facts.DATA_PARALLEL))
    lines: list[Line] = [(re.escape(kernel_facts.DATA_PARALLEL), float(calls))]
    for gpu in trace.gpus:
        kernels = trace.of([event for event in gpu.work if event.category == KERNEL])
        lines.append((f"kernels of GPU {gpu.number}", float(trace.length(kernels))))
    return lines


def _slow_steps(trace: KernelTrace) -> list[Line]:
    """Return the slowest steps, each with what has grown most over its median."""
    parts = [_step_parts(trace, start, end) for start, end in trace.gpu_steps]
    medians = {name: float(np.median([each[name] for each in parts])) for name in parts[0]}
    limit, lines = kernel_facts.step_limit(trace), []
    for (start, end), mine in zip(trace.gpu_steps, parts, strict=True):
        grown = {name: mine[name] - medians[name] for name in mine}
        most = max(grown, key=grown.__getitem__)
        said = "|".join({re.escape(f"{grown[most] / 1e6 + more:+,.1f} ms") for more in (-1e-5, 0.0, 1e-5)})
        if end - start > limit:
            lines.append((f"slow step, {most} ({said}) over its median", float(end - start)))
    return sorted(lines, key=lambda line: -line[1])


def _step_parts(trace: KernelTrace, start: int, end: int) -> dict[str, float]:
    """Return a step's time by what goes on, each moment at the first of it; the mean over GPUs that count."""
    during, calls = trace.during([(start, end)]), trace.of(trace.calls)
    loading = trace.of([event for event in trace.host if event.name.startswith(LOADERS)])
    sums: dict[str, float] = {}
    for gpu in trace.counted:
        sets = trace.of([event for event in gpu.work if event.category == "set"])
        copies = trace.of([event for event in gpu.work if event.category == "copy"])
        rest, parts = during.copy(), {}
        classes = (gpu.computing, gpu.sending, copies, sets, calls, loading)
        names = ("compute", "exposed_communication", "memcpy", "memset", "runtime", "data_loader")
        for name, mask in zip(names, classes, strict=True):
            parts[name] = trace.length(rest & mask)
            rest &= ~mask
        parts["other"] = trace.length(rest)
        for name, part in parts.items():
            sums[name] = sums.get(name, 0.0) + part / len(trace.counted)
    return sums


def _memory(trace: KernelTrace) -> list[Line]:
    cards, reserved = trace.recording.cards, trace.recording.reserved
    most = max(reserved, key=lambda gpu: reserved[gpu] / cards[gpu].memory)
    return [(f"GPU {most}, {reserved[most]:,} bytes reserved", 0.0)]


def _parts(trace: KernelTrace) -> list[Line]:
    held, reserved = known(trace).peak
    return [(f"{held:,} of {reserved:,} reserved bytes allocated at the peak", 0.0)]


def _held(trace: KernelTrace) -> list[Line]:
    """Return the buffer, and what steps have kept, which nothing frees: the largest first."""
    found, kept = [(known(trace).buffer, "workspace")], known(trace).kept_at_peak
    found += [(kept, "activations|unattributed")] if kept else []
    return [(f"{size:,} bytes of ({kind}), {PASS}", 0.0) for size, kind in sorted(found, reverse=True)]


def _operators(trace: KernelTrace) -> list[Line]:
    found = found_of(trace)
    return [] if found is None else [(re.escape(name), lasts) for name, lasts in found.lines]


# What each rule shows of a trace, in its order.
EVIDENCE: dict[str, Callable[[KernelTrace], list[Line]]] = {
    "GpuBusyLow": _least_busy_parts,
    "GpuGap": lambda trace: _gap_lines(trace, kernel_facts.long_gaps(trace)),
    "LaunchBound": _late,
    "LoaderBound": _loader_lines,
    "SyncStall": _waits,
    "ExposedCommunication": _collectives,
    "MemcpyBound": lambda trace: _copies(trace, [event for event in trace.work if event.copies]),
    "PageableCopy": lambda trace: _copies(trace, kernel_facts.pageable(trace)),
    "TensorCoresIdle": lambda trace: _by_name(trace, computing(trace, is_wide)),
    "LowPrecisionUnused": lambda trace: _by_name(trace, computing(trace, too_wide(trace))),
    "SlowOperators": _operators,
    "SmUnderfilled": lambda trace: _by_name(trace, computing(trace, is_underfilled)),
    "SmallKernelStorm": _short_first,
    "WrongParallel": _parallel,
    "TraceStepOutlier": _slow_steps,
    "GpuMemoryFull": _memory,
    "GpuMemoryFragmented": _parts,
    "GpuMemoryGrows": lambda trace: [(f"{known(trace).kept:,} bytes kept, {PASS}", 0.0)],
    "GpuMemoryHeld": _held,
}
