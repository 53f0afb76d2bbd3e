"""Where a step goes, in one bar: computation by family, exposed communication, copies, idle time by cause."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from trainguard.kernels.comparison.text import PARTS
from trainguard.kernels.document import RankProfile
from trainguard.render.blocks import Key
from trainguard.render.numbers import nanos, share
from trainguard.render.plots.strips import parts_of_whole

# Colours of families, which charts and timeline share.
TONES: Mapping[str, str] = {
    "gemm": "s1",
    "attention": "s4",
    "convolution": "s6",
    "normalisation": "s3",
    "embedding": "s3",
    "reduction": "s5",
    "elementwise": "s5",
    "optimizer": "s7",
    "communication": "s2",
    "copy": "s8",
    "other": "s8",
}

_WAITS = {"idle_loader": "wait-loader", "idle_host": "wait-host", "idle_other": "wait-other"}
_LEAST = 0.005

# A label, nanoseconds, and the class of its colour.
Part = tuple[str, float, str]


def glance(ranks: Sequence[RankProfile]) -> tuple[str, Markup, list[Key]] | None:
    """Return a caption, the bar and its legend, as means over ranks; None without work of a GPU."""
    busy = [rank for rank in ranks if rank.busy_ns]
    if not busy:
        return None
    by_step = all(rank.typical_step is not None for rank in busy)
    totals: defaultdict[tuple[str, str], float] = defaultdict(float)
    for rank in busy:
        for label, ns, tone in _parts(rank, by_step=by_step):
            totals[label, tone] += ns
    whole = sum(totals.values())
    shown = [(label, ns / len(busy), tone) for (label, tone), ns in totals.items() if ns >= _LEAST * whole]
    what = "A typical step" if by_step else "The window"
    mean = f", mean of {len(busy):,} ranks" if len(busy) > 1 else ""
    alt = ", ".join(f"{label} {share(ns * len(busy) / whole)}" for label, ns, _ in shown)
    bar = parts_of_whole([(label, ns * len(busy) / whole, tone) for label, ns, tone in shown], alt=f"{what}: {alt}")
    keys = [Key(f"part {tone}", f"{label} {share(ns * len(busy) / whole)}, {nanos(ns)}") for label, ns, tone in shown]
    return f"{what}, {nanos(whole / len(busy))}{mean}", bar, keys


def _parts(rank: RankProfile, *, by_step: bool) -> Iterator[Part]:
    step = rank.typical_step
    parts: Mapping[str, int] = step.parts if by_step and step is not None else rank.window_parts
    families = _families(rank)
    for family, part in families.items():
        yield family, part * parts["compute"], f"{TONES[family]} family-{family}"
    yield PARTS["exposed_communication"], parts["exposed_communication"], "s2"
    yield PARTS["exposed_memory"], sum(parts.get(name, 0) for name in ("exposed_memory", "memcpy", "memset")), "s8"
    for name, tone in _WAITS.items():
        yield PARTS[name], parts[name], tone


def _families(rank: RankProfile) -> dict[str, float]:
    """Return the shares of the families in the time of kernels that compute, most first."""
    totals: Counter[str] = Counter()
    for each in rank.kernels:
        if not each.communication:
            totals[each.family if each.family in TONES else "other"] += each.total_ns
    whole = totals.total() or 1
    return {family: ns / whole for family, ns in totals.most_common()} or {"other": 1.0}
