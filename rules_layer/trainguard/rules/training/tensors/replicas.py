"""RanksOutOfSync: ranks that should hold copies of the same tensors hold others.

The recorder's ``watch_replicas`` saves a hash of each tensor's bits; a script may save one number of a rank instead, as
``trainguard/checksum/<rank>``.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mode
from typing import NamedTuple

import msgspec
import numpy as np

from trainguard.core.finding import Fact
from trainguard.formats.tensors.replicas import CopySet, Hashes, RankHashes, ranks_of, read_rank, tensor_names
from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import Measure
from trainguard.rules.training.readings import scalar, step_check, used
from trainguard.rules.training.series import step_number
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import step_spec
from trainguard.rules.training.tensors.replicas_text import (
    APART,
    BITS_DIFFER,
    COPIES_EQUAL,
    EQUAL,
    NO_MAJORITY,
    NOT_COMPARED,
    UNKEPT,
    ranks_words,
)

# Ranks that train together end a step within a step's time; a job that begins again takes longer.
APART_S = 30.0

# So large a share of tensors that differ without a majority, of so many or more, is no flipped bit.
MOST_TENSORS, FEWEST_TENSORS = 0.5, 4


class ReplicaDifference(NamedTuple):
    """How the copies of one set differ, and of how many ranks.

    ``apart`` are ranks unlike a majority of more than half, ``tensors`` those that differ, as places in the set, first
    those with a majority; ``undecided`` have none. ``rank`` says their names, in its set of that ``place``.
    """

    copies: CopySet
    ranks: tuple[int, ...]
    apart: tuple[int, ...]
    tensors: tuple[int, ...]
    undecided: int
    rank: int
    place: int


class Compared(msgspec.Struct):
    """What came of the comparison of a step: ranks that were compared, and those that could not be.

    ``missing`` counts the copies of one set that were not saved, at most, ``tensors`` the distinct tensors of which
    copies were compared.
    """

    ranks: set[int] = msgspec.field(default_factory=set)
    tensors: int = 0
    missing: int = 0
    of_other_moment: set[int] = msgspec.field(default_factory=set)
    of_other_tensors: set[int] = msgspec.field(default_factory=set)
    without_copies: set[int] = msgspec.field(default_factory=set)
    differences: list[ReplicaDifference] = msgspec.field(default_factory=list)


class _Held(NamedTuple):
    rank: int
    at: float
    place: int
    moment: tuple[object, ...]
    copies: CopySet
    hashes: Hashes


def compare(found: Sequence[RankHashes]) -> Compared:
    """Compare what ranks hold copies of with each other, set by set."""
    compared = Compared(without_copies={each.rank for each in found if not each.about.sets})
    by_set: dict[tuple[str, str, str], list[_Held]] = defaultdict(list)
    for each in found:
        for place, (copies, hashes) in enumerate(zip(each.about.sets, each.hashes, strict=True)):
            moment = each.about.mode_step, each.about.attempt, copies.moment
            held = _Held(each.rank, each.about.at, place, moment, copies, hashes)
            by_set[copies.of, copies.ranks, copies.device].append(held)
    for holders in by_set.values():
        _compare_set(compared, holders)
    return compared


def _compare_set(compared: Compared, holders: list[_Held]) -> None:
    parts = list(_comparable(holders))
    largest = max(parts, key=len)
    for part in parts:
        if len(part) > 1:
            compared.ranks |= {each.rank for each in part}
            compared.tensors += part[0].copies.count
            compared.differences += _difference(part)
        if part is not largest:
            same = part[0].copies.layout == largest[0].copies.layout
            (compared.of_other_moment if same else compared.of_other_tensors).update(each.rank for each in part)
    compared.missing = max(compared.missing, largest[0].copies.copies - len({each.rank for each in holders}))


def _comparable(holders: list[_Held]) -> Iterator[list[_Held]]:
    """Split the holders of a set into those that are of one moment and one list of tensors."""
    alike: dict[tuple[object, ...], list[_Held]] = defaultdict(list)
    for each in holders:
        alike[each.copies.layout, each.copies.count, *each.moment].append(each)
    for together in alike.values():
        in_time = sorted(together, key=lambda each: each.at)
        begins = 0
        for place, (before, after) in enumerate(pairwise(in_time), 1):
            if not after.at - before.at <= APART_S:
                yield in_time[begins:place]
                begins = place
        yield in_time[begins:]


def _difference(holders: list[_Held]) -> list[ReplicaDifference]:
    first = holders[0].hashes
    if all(np.array_equal(first, each.hashes) for each in holders[1:]):
        return []
    table = np.stack([each.hashes for each in holders])
    decided, undecided = list[int](), list[int]()
    apart = set[int]()
    for column in np.flatnonzero((table != table[0]).any(axis=0)).tolist():
        values = table[:, column].tolist()
        ((most, count),) = Counter(values).most_common(1)
        if 2 * count > len(values):
            decided.append(column)
            apart |= {each.rank for each, value in zip(holders, values, strict=True) if value != most}
        else:
            undecided.append(column)
    ranks = tuple(sorted(each.rank for each in holders))
    tensors = (*decided, *undecided)
    speaker = holders[0]
    return [
        ReplicaDifference(
            speaker.copies, ranks, tuple(sorted(apart)), tensors, len(undecided), speaker.rank, speaker.place
        )
    ]


CHECKSUM = re.compile(r"trainguard/checksum/(?P<rank>[0-9]{1,6})")
SHOWN, SHOWN_TENSORS = 6, 3
PROVEN = 2
WORST_FIRST = (BITS_DIFFER, NO_MAJORITY, UNKEPT)


class RanksState(StepState, kw_only=True):
    """``equal_step`` is the last step at which all compared copies were equal; ``since_step`` began what differs.

    ``equal_checks`` counts such steps. ``apart`` are ranks that differ, six at most: copies without them say nothing of
    an end.
    """

    equal_step: int | None = None
    equal_checks: int = 0
    since_step: int | None = None
    apart: list[int] = msgspec.field(default_factory=list)


class RanksOutOfSync(StepRule[StepParameters, RanksState]):
    by_default = True
    spec = step_spec(
        "RanksOutOfSync",
        title="Ranks out of sync",
        looks_at="the bits of parameters that several ranks hold copies of",
        fires_when="a rank holds other bits than most do, or copies differ",
        condition="a tensor of which ranks hold copies differs between two of them at the same step",
        measures=(Measure("ranks that differ from most"),),
        needs=(
            "It compares copies of parameters: call recorder.watch_replicas(model) on all ranks, or record "
            "one number for each as trainguard/checksum/RANK, for all ranks at the same steps."
        ),
        changes={"": ChangeCode.SYNC_RANKS},
        say=ranks_words,
        kinds=(BITS_DIFFER, NO_MAJORITY, UNKEPT, COPIES_EQUAL, NOT_COMPARED, APART, EQUAL),
    )
    undecided = frozenset({NOT_COMPARED})

    def check(self, state: RanksState, step: StepView, parameters: StepParameters) -> Check | None:
        ranks = ranks_of(step)
        if not ranks:
            return _check_sums(state, step)
        read = (used(state, lambda view, name: read_rank(view, int(name)), step, str(rank)) for rank in ranks)
        held = [each for each in read if each is not None]
        if not held:
            return None
        compared = compare(held)
        if not compared.ranks:
            return _not_compared(state, step, compared)
        # Ranks that are only guessed to hold copies count where something shows it: they were equal while they trained,
        # at two steps, or most of them are equal in each tensor that differs.
        proven = state.equal_checks >= PROVEN
        differences = [each for each in compared.differences if each.copies.sure or proven or not each.undecided]
        if not differences:
            return (_not_compared if compared.differences else _equal)(state, step, compared)
        worst = min(differences, key=lambda each: (WORST_FIRST.index(_kind(each)), -len(each.tensors)))
        if not (state.latest is not None and state.latest.fires):
            state.since_step = step.step
        state.apart = list(worst.apart or worst.ranks)[:SHOWN]
        return self._apart(state, step, compared, worst, len(differences))

    @staticmethod
    def _apart(state: RanksState, step: StepView, compared: Compared, worst: ReplicaDifference, sets: int) -> Check:
        kind = _kind(worst)
        named = worst.apart if kind == BITS_DIFFER else worst.ranks
        names = used(state, lambda view, _: tensor_names(view, worst.rank, worst.place), step, "") or []
        tensors = [names[place] for place in worst.tensors[:SHOWN_TENSORS] if place < len(names)]
        facts = (
            Fact(name="copies_of", value=worst.copies.of),
            Fact(name="ranks", value=len(worst.ranks)),
            Fact(name="ranks_apart", value=len(named), threshold=0.0),
            Fact(name="ranks_alike", value=len(worst.ranks) - len(worst.apart) if kind == BITS_DIFFER else 0),
            *(Fact(name="rank", value=rank, device=f"rank {rank}") for rank in named[:SHOWN]),
            Fact(name="tensors", value=worst.copies.count),
            Fact(name="tensors_apart", value=len(worst.tensors)),
            *(Fact(name="tensor", value=name, series=name) for name in tensors),
            step_number("since_step", state.since_step if state.since_step is not None else step.step),
            *([] if state.equal_step is None else [step_number("equal_step", state.equal_step)]),
            *([Fact(name="sets_apart", value=sets)] if sets > 1 else []),
            *_uncompared(compared),
        )
        return step_check(
            step,
            facts,
            fires=True,
            tensor=tensors[0] if tensors else None,
            value=float(len(named)),
            threshold=0.0,
            kind=kind,
        )


def _kind(difference: ReplicaDifference) -> str:
    total = difference.copies.count
    if total >= FEWEST_TENSORS and difference.undecided >= MOST_TENSORS * total:
        return UNKEPT  # most tensors differ, and no majority says how they should be
    return BITS_DIFFER if difference.apart else NO_MAJORITY


def _equal(state: RanksState, step: StepView, compared: Compared) -> Check | None:
    if not compared.ranks.issuperset(state.apart):
        return None
    state.equal_step, state.since_step, state.apart = step.step, None, []
    state.equal_checks += 1
    facts = (
        Fact(name="ranks", value=len(compared.ranks)),
        Fact(name="tensors", value=compared.tensors),
        *_uncompared(compared),
    )
    return step_check(step, facts, fires=False, value=0.0, threshold=0.0, kind=COPIES_EQUAL)


def _not_compared(state: RanksState, step: StepView, compared: Compared) -> Check | None:
    """Return why nothing could be compared, where nothing was before: what an earlier step showed stands."""
    if state.latest is not None and state.latest.kind != NOT_COMPARED:
        state.waiting += 1
        return None
    guessed = [Fact(name="ranks_unlike", value=len(each.ranks)) for each in compared.differences[:1]]
    return step_check(step, (*guessed, *_uncompared(compared)), fires=False, kind=NOT_COMPARED)


def _uncompared(compared: Compared) -> list[Fact]:
    """Return how many ranks could not be compared, by the reason."""
    counts = {
        "ranks_of_other_moment": len(compared.of_other_moment - compared.ranks),
        "ranks_of_other_tensors": len(compared.of_other_tensors - compared.ranks),
        "ranks_without_copies": len(compared.without_copies),
        "copies_missing": compared.missing,
    }
    return [Fact(name=name, value=count) for name, count in counts.items() if count > 0]


def _check_sums(state: RanksState, step: StepView) -> Check | None:
    sums: dict[int, str] = {}
    for name in step.names:
        found = CHECKSUM.fullmatch(name)
        value = used(state, scalar, step, name) if found is not None else None
        if found is not None and value is not None:
            # As text, a NaN equals another one, and 0 does not equal -0.
            sums[int(found["rank"])] = repr(value)
    if len(sums) < 2:
        state.waiting += bool(sums)
        return None
    most = mode(sums[rank] for rank in sorted(sums))
    apart = [rank for rank in sorted(sums) if sums[rank] != most]
    facts = (
        Fact(name="ranks", value=len(sums)),
        Fact(name="ranks_apart", value=len(apart), threshold=0.0),
        Fact(name="ranks_alike", value=len(sums) - len(apart)),
        Fact(name="checksum", value=most),
        *(Fact(name="checksum_apart", value=sums[rank], device=f"rank {rank}") for rank in apart[:SHOWN]),
    )
    return step_check(
        step,
        facts,
        fires=bool(apart),
        tensor=f"trainguard/checksum/{apart[0]}" if apart else None,
        value=float(len(apart)),
        threshold=0.0,
        kind=APART if apart else EQUAL,
    )
