"""Two profiles beside each other: the step, explained by its parts, and kernels and operators that changed."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from trainguard.core.units import counted
from trainguard.kernels.document import (
    Change,
    ChangedEntry,
    Comparison,
    KernelProfiles,
    RankComparison,
    RankProfile,
    StepChange,
)

SAME_SHARE = 0.01
"""Of a step: what changes by less is the same."""

MOST_ENTRIES = 200


def compared(before: KernelProfiles, after: KernelProfiles) -> Comparison:
    """Return what changed from one profile to the other, by rank; single traces are compared whatever their ranks."""
    pairs, notes = _pairs(before.ranks, after.ranks)
    return Comparison(before=before.source, ranks=[_compared(*pair) for pair in pairs], notes=notes)


def _pairs(
    before: Sequence[RankProfile], after: Sequence[RankProfile]
) -> tuple[list[tuple[RankProfile, RankProfile]], list[str]]:
    if len(before) == 1 and len(after) == 1:
        return [(before[0], after[0])], []
    # Of several traces of a rank the first one counts.
    old, new = ({rank.rank: rank for rank in reversed(ranks) if rank.rank is not None} for ranks in (before, after))
    notes = []
    for which, mine, others in (("this", new, old), ("the other", old, new)):
        alone = sorted(mine.keys() - others.keys())
        if alone:
            notes.append(f"Only {which} profile has rank {', '.join(map(str, alone[:10]))}{'…' if alone[10:] else ''}.")
    unnamed = sum(rank.rank is None for rank in (*before, *after))
    if unnamed:
        notes.append(f"{counted(unnamed, 'trace')} without a rank {'is' if unnamed == 1 else 'are'} not compared.")
    return [(old[rank], new[rank]) for rank in sorted(old.keys() & new.keys())], notes


_Amount = tuple[float, float]
"""Time, in nanoseconds, and runs of a mean step."""

_NONE = (0.0, 0.0)


def _compared(before: RankProfile, after: RankProfile) -> RankComparison:
    by_step = bool(before.steps and after.steps)
    per: Literal["step", "window"] = "step" if by_step else "window"
    old_steps, new_steps = (len(rank.steps) if by_step else 1 for rank in (before, after))
    step = _step(before, after) if by_step else None
    least = SAME_SHARE * (step.before_ns if step is not None else before.window_ns)
    old_kernels, new_kernels = (
        {(kernel.name, ""): (kernel.total_ns / steps, kernel.count / steps) for kernel in rank.kernels}
        for rank, steps in ((before, old_steps), (after, new_steps))
    )
    kernels = _changed(old_kernels, new_kernels, least)
    without = _without_shapes(before) | _without_shapes(after)
    operators = _changed(_operators(before, old_steps, without), _operators(after, new_steps, without), least)
    return RankComparison(
        before_trace=before.trace,
        after_trace=after.trace,
        rank=after.rank,
        per=per,
        step=step,
        kernels=kernels[:MOST_ENTRIES],
        operators=operators[:MOST_ENTRIES],
        kernels_left_out=len(kernels[MOST_ENTRIES:]),
        kernels_left_out_ns=sum(each.delta_ns for each in kernels[MOST_ENTRIES:]),
        operators_left_out=len(operators[MOST_ENTRIES:]),
    )


def _step(before: RankProfile, after: RankProfile) -> StepChange:
    """Return how the mean step changed; what rounding leaves over is in ``other``."""
    old, new = (_mean_parts(rank) for rank in (before, after))
    parts = {name: round(new.get(name, 0.0) - old.get(name, 0.0)) for name in sorted({*old, *new})}
    old_ns, new_ns = round(before.mean_step_ns), round(after.mean_step_ns)
    parts["other"] = parts.get("other", 0) + new_ns - old_ns - sum(parts.values())
    return StepChange(before_ns=old_ns, after_ns=new_ns, parts=parts)


def _mean_parts(rank: RankProfile) -> Mapping[str, float]:
    totals: Counter[str] = Counter()
    for step in rank.steps:
        totals.update(step.breakdown)
    return {name: each / len(rank.steps) for name, each in totals.items()}


def _without_shapes(rank: RankProfile) -> set[str]:
    return {each.name for each in rank.operators} - {each.name for each in rank.operators if each.shapes}


def _operators(rank: RankProfile, steps: int, without: Collection[str]) -> dict[tuple[str, str], _Amount]:
    found: defaultdict[tuple[str, str], _Amount] = defaultdict(lambda: _NONE)
    for each in rank.operators:
        key = each.name, "" if each.name in without else each.shapes
        ns, runs = found[key]
        found[key] = (ns + each.kernel_ns / steps, runs + each.count / steps)
    return found


def _changed(
    before: Mapping[tuple[str, str], _Amount], after: Mapping[tuple[str, str], _Amount], least: float
) -> list[ChangedEntry]:
    found = []
    for name, shapes in {**before, **after}:
        old, new = before.get((name, shapes), _NONE), after.get((name, shapes), _NONE)
        found.append(
            ChangedEntry(
                name=name,
                shapes=shapes,
                change=_change(old, new, least),
                before_ns=round(old[0]),
                after_ns=round(new[0]),
                before_runs=round(old[1], 3),
                after_runs=round(new[1], 3),
            )
        )
    return sorted(found, key=lambda each: (-abs(each.delta_ns), each.name, each.shapes))


def _change(old: _Amount, new: _Amount, least: float) -> Change:
    if not old[1]:
        return "came"
    if not new[1]:
        return "gone"
    if abs(new[0] - old[0]) < least:
        return "same"
    return "slower" if new[0] > old[0] else "faster"
