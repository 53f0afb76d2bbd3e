"""Two profiles beside each other: the step, explained by its parts, and kernels and operators that changed."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from trainguard.core.units import counted
from trainguard.kernels.changes import Change, ChangedEntry, KernelComparison, RankComparison, StepChange
from trainguard.kernels.comparison.comparable import comparability
from trainguard.kernels.comparison.noise import FEWEST, LEAST, CapturePace, mean_run, pace_of, run_noise, step_noise
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.entries import KernelEntry, TypicalStep

# Of a step, or of the window without steps: what changes it by less is the same.
RELEVANT = 0.001

SAME_RUNS = 0.01
MOST_ENTRIES = 200


def compared(before: KernelProfiles, after: KernelProfiles) -> KernelComparison:
    """Return what changed from one profile to the other, by rank; single traces are compared whatever their ranks."""
    pairs, notes = _pairs(before.ranks, after.ranks)
    return KernelComparison(before=before.source, ranks=[_compared(*pair) for pair in pairs], notes=notes)


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


def _compared(before: RankProfile, after: RankProfile) -> RankComparison:
    work = _work(before, after)
    kernels, operators = _kernels(before, after, work), _operators(before, after, work)
    return RankComparison(
        before_trace=before.trace,
        after_trace=after.trace,
        rank=after.rank,
        per="step" if work.by_step else "window",
        comparable=comparability(before, after),
        step=work.step,
        before_busy=_busy(before),
        after_busy=_busy(after),
        kernels=kernels[:MOST_ENTRIES],
        operators=operators[:MOST_ENTRIES],
        kernels_left_out=len(kernels[MOST_ENTRIES:]),
        kernels_left_out_ns=sum(each.delta_ns for each in kernels[MOST_ENTRIES:]),
        operators_left_out=len(operators[MOST_ENTRIES:]),
    )


def _busy(rank: RankProfile) -> float:
    return round(rank.busy_ns / rank.window_ns, 6) if rank.window_ns else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """As much work in both profiles, if that is known.

    ``scale`` is what the newer window's amounts are multiplied by; ``relative`` the noise as a share.
    """

    step: StepChange | None
    counts: tuple[int, int] | None = None
    scale: float = 1.0
    relative: float = LEAST
    relevant_ns: float

    @property
    def by_step(self) -> bool:
        return self.counts is not None


def _work(before: RankProfile, after: RankProfile) -> _Work:
    old, new = before.typical_step, after.typical_step
    if old is not None and new is not None:
        step = _step(old, new)
        relative = step.noise_ns / max(step.before_ns, step.after_ns, 1)
        counts = old.of, new.of
        return _Work(step=step, counts=counts, relative=relative, relevant_ns=RELEVANT * step.before_ns)
    relevant_ns = RELEVANT * before.window_ns
    pace = pace_of(before, after) if before.busy_ns and after.busy_ns else None
    if pace is None:
        return _Work(step=None, relevant_ns=relevant_ns)
    work, noise = pace
    return _Work(step=_windows(before, after, pace), scale=1.0 / work, relative=noise, relevant_ns=relevant_ns)


def _step(before: TypicalStep, after: TypicalStep) -> StepChange:
    return StepChange(
        before_ns=before.duration_ns,
        after_ns=after.duration_ns,
        parts={name: after.parts[name] - before.parts[name] for name in after.parts},
        noise_ns=round(step_noise(before, after)),
        noise_known=min(before.of, after.of) >= FEWEST,
        mean_before_ns=before.mean_ns,
        mean_after_ns=after.mean_ns,
        mean_parts={name: after.mean_parts[name] - before.mean_parts[name] for name in after.mean_parts},
    )


def _windows(before: RankProfile, after: RankProfile, pace: CapturePace) -> StepChange:
    old, new, (work, noise) = before.window_parts, after.window_parts, pace
    parts = {name: round(new[name] / work - old[name]) for name in new}
    after_ns = round(after.window_ns / work)
    parts["idle_other"] += after_ns - before.window_ns - sum(parts.values())
    noise_ns = round(noise * max(after_ns, before.window_ns))
    return StepChange(
        before_ns=before.window_ns,
        after_ns=after_ns,
        parts=parts,
        noise_ns=noise_ns,
        noise_known=True,
        mean_before_ns=before.window_ns,
        mean_after_ns=after_ns,
        mean_parts=parts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amount:
    """Runs and their time in as much work, else in the window; ``run_ns`` is a run's mean."""

    time_ns: float = 0.0
    runs: float = 0.0
    run_ns: float | None = None


_NONE = _Amount()


def _entry(
    key: tuple[str, str], old: _Amount, new: _Amount, change: Change, noise_ns: float, work: _Work
) -> ChangedEntry:
    known = work.step is not None
    return ChangedEntry(
        name=key[0],
        shapes=key[1],
        change=change,
        before_ns=round(old.time_ns) if known else None,
        after_ns=round(new.time_ns) if known else None,
        before_runs=round(old.runs, 3),
        after_runs=round(new.runs, 3),
        run_before_ns=None if old.run_ns is None else round(old.run_ns),
        run_after_ns=None if new.run_ns is None else round(new.run_ns),
        noise_ns=round(noise_ns),
    )


def _sorted(entries: list[ChangedEntry]) -> list[ChangedEntry]:
    return sorted(entries, key=lambda each: (-abs(each.delta_ns), each.name, each.shapes))


def _kernels(before: RankProfile, after: RankProfile, work: _Work) -> list[ChangedEntry]:
    old, new = _by_name(before), _by_name(after)
    found = []
    for name in {**old, **new}:
        one, other = old.get(name), new.get(name)
        if one is not None and other is not None:
            pair = _of_kernel(one, work), _of_kernel(other, work, newer=True)
            noise = run_noise(one, other, work.counts)
            change = _change(*pair, noise, work, moved=_all_moved(one, other, *pair, work))
            found.append(_entry((name, ""), *pair, change, noise, work))
        elif one is not None and not _may_be_left_out(one, after):
            found.append(_entry((name, ""), _of_kernel(one, work), _NONE, "gone", 0.0, work))
        elif other is not None and not _may_be_left_out(other, before):
            found.append(_entry((name, ""), _NONE, _of_kernel(other, work, newer=True), "came", 0.0, work))
    return _sorted(found)


def _by_name(rank: RankProfile) -> dict[str, KernelEntry]:
    return {each.name: each for each in rank.kernels}


def _may_be_left_out(held: KernelEntry, lacks: RankProfile) -> bool:
    """Whether a profile that lacks a kernel may have it among those with the least time, which it does not list."""
    return bool(lacks.kernels_left_out) and held.total_ns <= min(each.total_ns for each in lacks.kernels)


def _of_kernel(kernel: KernelEntry, work: _Work, *, newer: bool = False) -> _Amount:
    run_ns = mean_run(kernel, by_step=work.by_step)
    if work.by_step and kernel.per_step is not None:
        return _Amount(time_ns=kernel.per_step.time_ns, runs=kernel.per_step.runs, run_ns=run_ns)
    scale = work.scale if newer else 1.0
    return _Amount(time_ns=scale * kernel.total_ns, runs=scale * kernel.count, run_ns=run_ns)


def _all_moved(before: KernelEntry, after: KernelEntry, old: _Amount, new: _Amount, work: _Work) -> bool:
    """Whether runs differ as one, so that a mean that moved is no other mixture of short and long runs.

    As many runs as before, of as much work, are the same ones.
    """
    if work.step is not None and not _other_runs(old, new, SAME_RUNS if work.by_step else work.relative):
        return True
    moves = [
        (later - earlier) / max(earlier, 1)
        for earlier, later in (
            (before.median_ns, after.median_ns),
            (before.p99_ns, after.p99_ns),
            (before.min_ns, after.min_ns),
        )
    ]
    return min(moves) > LEAST / 2 or max(moves) < -LEAST / 2


def _other_runs(old: _Amount, new: _Amount, tolerance: float = SAME_RUNS) -> bool:
    return abs(new.runs - old.runs) > tolerance * max(old.runs, new.runs)


def _change(old: _Amount, new: _Amount, noise_ns: float, work: _Work, *, moved: bool) -> Change:
    longer_ns = (new.run_ns or 0.0) - (old.run_ns or 0.0)
    if moved and abs(longer_ns) > noise_ns and abs(longer_ns) * min(old.runs, new.runs) >= work.relevant_ns:
        return "slower" if longer_ns > 0 else "faster"
    more_ns = abs(new.runs - old.runs) * max(old.run_ns or 0.0, new.run_ns or 0.0)
    # A window ends anywhere, so that it has a run more or less of each.
    if work.by_step and _other_runs(old, new) and more_ns >= work.relevant_ns:
        return "more_runs" if new.runs > old.runs else "fewer_runs"
    return "same"


def _operators(before: RankProfile, after: RankProfile, work: _Work) -> list[ChangedEntry]:
    without = _without_shapes(before) | _without_shapes(after)
    old = _calls(before, 1.0 / before.step_count if work.by_step else 1.0, without)
    new = _calls(after, 1.0 / after.step_count if work.by_step else work.scale, without)
    found = []
    for key in {**old, **new}:
        pair = old.get(key, _NONE), new.get(key, _NONE)
        noise = work.relative * max(each.run_ns or 0.0 for each in pair)
        if key in old and key in new:
            # Calls of other shapes may hide behind one name.
            change = _change(*pair, noise, work, moved=key[0] not in without or not _other_runs(*pair))
            found.append(_entry(key, *pair, change, noise, work))
        elif not (after if key in old else before).operators_left_out:
            found.append(_entry(key, *pair, "gone" if key in old else "came", noise, work))
    return _sorted(found)


def _without_shapes(rank: RankProfile) -> set[str]:
    return {each.name for each in rank.operators} - {each.name for each in rank.operators if each.shapes}


def _calls(rank: RankProfile, scale: float, without: Collection[str]) -> Mapping[tuple[str, str], _Amount]:
    """Return the operators by name and shapes; those ``without`` shapes in a profile by name alone."""
    totals: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for each in rank.operators:
        held = totals[each.name, "" if each.name in without else each.shapes]
        held[0] += each.kernel_ns
        held[1] += each.count
    return {
        key: _Amount(time_ns=scale * ns, runs=scale * count, run_ns=ns / count if count else None)
        for key, (ns, count) in totals.items()
    }
