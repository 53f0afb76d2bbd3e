"""Recomputes the facts of rules over kernel traces from their events, and whether the conditions of the rules hold."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tests.claims.claim import Unknown, Untrue
from tests.claims.kernel_trace import Event, KernelTrace
from tests.claims.random_kernels import BF16, FP32
from tests.claims.sentences import Sayable, text_claims

FAMILY = "kernels/"
PARTS = 30
LONG_NS = 500_000_000
SIGMAS, MAD_TO_SIGMA, OVER = 5.0, 1.4826, 0.1
SHARE_WITHIN, TIME_WITHIN = 5.1e-5, 5.1e-4
Truth: TypeAlias = float | str | tuple[float, float]
Recompute: TypeAlias = Callable[[KernelTrace], Truth]


def _gap_limit(trace: KernelTrace) -> float:
    return min(float(LONG_NS), 0.1 * float(np.median(trace.step_lengths)))


def _long_gaps(trace: KernelTrace) -> list[int]:
    limit = _gap_limit(trace)
    return [end - start for start, end in trace.gaps if end - start >= LONG_NS or end - start > limit]


def _loader_idle(trace: KernelTrace) -> int:
    return trace.length(trace.until_launch & trace.loading)


def _host_share(trace: KernelTrace) -> float:
    idle = trace.length(~trace.busy) - _loader_idle(trace)
    return trace.length(trace.until_launch & ~trace.loading) / idle


def _launch_delay(trace: KernelTrace) -> float:
    return float(np.median([max(event.start - call.end, 0) for event, call in trace.started])) / 1e3


def _queued(trace: KernelTrace) -> float:
    """Return how many launches wait on average: a call waits from its start until the work that it started begins."""
    pairs = [(event, trace.launch_of(event)) for event in trace.work]
    lasted = [
        max(min(event.start, trace.end) - max(call.start, trace.start), 0) for event, call in pairs if call is not None
    ]
    return sum(lasted) / trace.window


def _short_share(trace: KernelTrace) -> float:
    return float(np.mean([event.lasts < call.lasts for event, call in trace.started]))


def _waiting(trace: KernelTrace) -> float:
    return trace.share(trace.of(trace.waits))


def _idle_after(trace: KernelTrace) -> float:
    reach = trace.during([(call.start, min(call.end, trace.end) + 1_000_000) for call in trace.waits])
    return trace.share(reach & ~trace.busy)


def _overlap(trace: KernelTrace) -> float:
    sending = trace.length(trace.sending)
    return trace.length(trace.sending & trace.computing) / sending if sending else 1.0


def _pageable(trace: KernelTrace) -> float:
    copies = [each for each in trace.work if "Pageable" in each.name and _is_asynchronous(trace.launch_of(each))]
    return sum(each.lasts for each in copies) / trace.window


def _is_asynchronous(call: Event | None) -> bool:
    return call is not None and call.name.endswith("Async")


def _of_computing(trace: KernelTrace, chosen: Callable[[Event], bool]) -> float:
    every = [event for event in trace.work if event.computes]
    return sum(event.lasts for event in every if chosen(event)) / sum(event.lasts for event in every)


def _step_limit(trace: KernelTrace) -> float:
    median = float(np.median(trace.step_lengths))
    sigma = MAD_TO_SIGMA * float(np.median(np.abs(trace.step_lengths - median)))
    return max(median + SIGMAS * sigma, (1.0 + OVER) * median)


FACTS: dict[str, Recompute] = {
    "busy_share": lambda trace: trace.share(trace.busy),
    "gpus": lambda _: 1.0,
    "longest_gap": lambda trace: max(_long_gaps(trace)) / 1e6,
    "gaps": lambda trace: float(len(_long_gaps(trace))),
    "loader_share": lambda trace: trace.share(trace.loading & ~trace.busy),
    "launch_delay": _launch_delay,
    "queued_launches": _queued,
    "host_share": _host_share,
    "waits_for_data_share": lambda trace: _loader_idle(trace) / trace.window,
    "kernels_per_step": lambda trace: sum(each.category == "kernel" for each in trace.work) / len(trace.steps),
    "short_share": _short_share,
    "waiting_share": _waiting,
    "idle_share": _idle_after,
    "after_wait": lambda _: 1.0,
    "exposed_share": lambda trace: trace.share(trace.sending & ~trace.computing),
    "overlap_share": _overlap,
    "copy_share": lambda trace: trace.share(trace.busy & ~trace.computing & ~trace.sending),
    "pageable_share": _pageable,
    "tensor_core_share": lambda trace: _of_computing(trace, lambda event: event.name == BF16),
    "fp32_share": lambda trace: _of_computing(trace, lambda event: event.name == FP32),
    "underfilled_share": lambda trace: _of_computing(trace, lambda event: event.arguments["blocks per SM"] < 1.0),
    "slowest_step": lambda trace: float(trace.step_lengths.max()) / 1e6,
    "median_step": lambda trace: float(np.median(trace.step_lengths)) / 1e6,
    "slow_steps": lambda trace: float((trace.step_lengths > _step_limit(trace)).sum()),
    "steps": lambda trace: float(len(trace.steps)),
    "traces": lambda _: 1.0,
    "framework": lambda _: "pytorch",
    "gain_share": lambda _: (0.0, 1.0),
}
"""What a fact should say of a trace of one GPU and one rank."""

THRESHOLDS: dict[str, Recompute] = {
    "longest_gap": lambda trace: _gap_limit(trace) / 1e6,
    "slowest_step": lambda trace: _step_limit(trace) / 1e6,
}

CONDITIONS: dict[str, Callable[[KernelTrace], bool]] = {
    "GpuBusyLow": lambda trace: trace.share(trace.busy) < 0.7,
    "GpuGap": lambda trace: bool(_long_gaps(trace)),
    "LoaderBound": lambda trace: trace.share(trace.loading & ~trace.busy) > 0.05,
    "LaunchBound": lambda trace: (
        trace.length(trace.busy) < 0.7 * (trace.window - _loader_idle(trace))
        and _host_share(trace) >= 0.5
        and _launch_delay(trace) < 10.0
    ),
    "SyncStall": lambda trace: _waiting(trace) >= 0.1 and _idle_after(trace) >= 0.05,
    "MemcpyBound": lambda trace: trace.share(trace.busy & ~trace.computing & ~trace.sending) >= 0.1,
    "PageableCopy": lambda trace: _pageable(trace) >= 0.01,
    "TraceStepOutlier": lambda trace: len(trace.steps) >= 10 and bool((trace.step_lengths > _step_limit(trace)).any()),
    "SmallKernelStorm": lambda trace: (
        float(FACTS["kernels_per_step"](trace)) >= 300.0  # type: ignore[arg-type]
        and _short_share(trace) >= 0.5
        and trace.length(trace.busy) < 0.9 * (trace.window - _loader_idle(trace))
    ),
}
"""When a rule has a finding, as its table says it."""


def kernel_claims(folder: Path, report: dict[str, Any]) -> Iterator[Untrue | Unknown | None]:
    """Yield, for each fact and sentence of the findings on a job's trace, what is untrue, or None."""
    trace = KernelTrace(next((folder / "kernel-traces").iterdir()))
    found = {each["rule"].removeprefix(FAMILY): each for each in report["findings"] if each["rule"].startswith(FAMILY)}
    for rule, condition in CONDITIONS.items():
        holds = condition(trace)
        if rule in found and not holds:
            yield Untrue(f"{FAMILY}{rule}", "a finding", "its condition does not hold")
        elif holds and rule not in found and not _is_unsure(report, rule):
            yield Untrue(f"{FAMILY}{rule}", "no finding", "its condition holds")
        else:
            yield None
    shares = [fact["value"] for each in found.values() for fact in each["facts"] if fact["name"] == "gain_share"]
    yield None if sum(shares) <= 1.0 + 1e-3 else Untrue(FAMILY, f"gains of {sum(shares)}", "a moment counts once")
    for rule, finding in found.items():
        where, sayable = f"{FAMILY}{rule}", Sayable()
        for fact in finding["facts"]:
            sayable.add_fact(fact)
            yield _fact_claim(trace, where, fact, finding)
            for said in (fact["value"], fact.get("threshold")):
                _say(sayable, said, fact.get("unit", ""))
        for name in ("reason", "advice"):
            text = (finding[name] or "").replace("multiples of 8", "")  # what tensor cores need: of no trace
            yield from text_claims(f"{where}, {name}", text, sayable)


def _is_unsure(report: dict[str, Any], rule: str) -> bool:
    """Tell whether a rule says that it holds with low confidence: only in the first or the last step."""
    entry = next(each for each in report["rules"] if each["rule"] == f"{FAMILY}{rule}")
    return bool(entry["status"] == "WARMING_UP")


def _say(sayable: Sayable, said: Any, unit: str) -> None:
    """Add a number in the units in which sentences about traces say it: milliseconds and microseconds."""
    if isinstance(said, int | float):
        scale = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}.get(unit)
        sayable.counts.append(float(said))
        if scale is not None:
            sayable.seconds.append(said * scale)


def _fact_claim(
    trace: KernelTrace, where: str, fact: dict[str, Any], finding: dict[str, Any]
) -> Untrue | Unknown | None:
    name, value = fact["name"], fact["value"]
    if name == "evidence":
        return _evidence_claim(trace, where, fact)
    if name == "gain_per_step":
        share = next(each["value"] for each in finding["facts"] if each["name"] == "gain_share")
        near = abs(value * len(trace.steps) / trace.window - share)
        return None if near <= 2.0 * SHARE_WITHIN else Untrue(where, f"{name} = {value}", f"the share is {share}")
    if name not in FACTS:
        return Unknown(where, f"the fact {name}")
    truths = [(name, value, FACTS[name](trace))]
    if name in THRESHOLDS:
        truths.append((f"threshold of {name}", fact["threshold"], THRESHOLDS[name](trace)))
    for what, said, truth in truths:
        if not _agrees(said, truth, fact.get("unit", ""), name):
            return Untrue(where, f"{what} = {said}", f"it is {truth}")
    return None


def _agrees(said: Any, truth: Truth, unit: str, name: str) -> bool:
    if isinstance(truth, str):
        return bool(said == truth)
    least, most = truth if isinstance(truth, tuple) else (truth, truth)
    within = SHARE_WITHIN if unit == "share" else TIME_WITHIN
    within = 0.051 if name == "kernels_per_step" else within
    return not math.isnan(least) and least - within <= float(said) <= most + within


def _is_host_in(trace: KernelTrace, start: int, end: int, what: str) -> bool:
    """Tell whether the host is in what it is said to be in mostly, for half of a stretch, or at all."""
    name = what.partition(" in ")[2]
    during = trace.during([(start, end)])
    inside = trace.length(during & trace.named(name))
    if "host mostly in" in what:
        return inside >= 0.5 * (end - start)
    return name == "nothing that was recorded" or inside > 0


def _evidence_claim(trace: KernelTrace, where: str, fact: dict[str, Any]) -> Untrue | Unknown | None:
    """Hold a stretch, or all runs of a kernel: something of that length is there."""
    what, value = fact["series"], fact["value"]
    if what.startswith("GPU busy"):
        lengths = {trace.window // PARTS, trace.window - (PARTS - 1) * (trace.window // PARTS)}
    elif what.startswith("GPU idle"):
        alike = [gap for gap in trace.gaps if gap[1] - gap[0] == value]
        lengths = {value} if any(_is_host_in(trace, *gap, what) for gap in alike[:100]) else {0}
    elif what.startswith("data loader"):
        return None if value <= trace.length(trace.loading & ~trace.busy) else Untrue(where, what, "it is less")
    elif what.startswith("slow step"):
        lengths = {int(each) for each in trace.step_lengths}
    elif any(what.startswith(call.name) for call in trace.waits):
        lengths = {call.lasts for call in trace.waits if what.startswith(call.name)}
    else:
        lengths = {sum(each.lasts for each in trace.work if what.startswith(each.name))}
    shown = sorted(lengths)[-3:]
    return None if value in lengths else Untrue(where, f"evidence {what} = {value}", f"it is one of {shown}")
