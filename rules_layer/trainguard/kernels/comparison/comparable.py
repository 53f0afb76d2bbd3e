"""Whether two profiles measure the same work on the same machine: what differs, and what neither of them says."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Literal, TypeVar

from trainguard.kernels.changes import Aspect, Comparability, KernelDifference
from trainguard.kernels.comparison.noise import FEWEST, LEAST_COMMON
from trainguard.kernels.costs import short_shapes
from trainguard.kernels.document import RankProfile
from trainguard.kernels.readers.kineto import OPTIONS

Key = TypeVar("Key")
OTHER_WORK: Collection[Aspect] = ("gpu", "framework", "kernels", "shapes")


def comparability(before: RankProfile, after: RankProfile) -> Comparability:
    differences, unknown = [], []
    for aspect, found in _looked_at(before, after):
        if found is None:
            unknown.append(aspect)
        else:
            differences += found
    aspects = {each.aspect for each in differences}
    verdict: Verdict = "no" if aspects & set(OTHER_WORK) else "in_part" if aspects else "yes"
    return Comparability(verdict=verdict, differences=differences, unknown=unknown)


Verdict = Literal["yes", "in_part", "no"]
# None is of what a profile does not say.
_Found = list[KernelDifference] | None


def _looked_at(before: RankProfile, after: RankProfile) -> Iterator[tuple[Aspect, _Found]]:
    yield "gpu", _texts("gpu", _models(before), _models(after))
    yield "gpus", _texts("gpus", _count(_devices(before)), _count(_devices(after))) or []
    yield "ranks", _texts("ranks", _count(before.world_size), _count(after.world_size)) or []
    yield "framework", _texts("framework", *(_known(rank.framework) for rank in (before, after))) or []
    yield "kernels", _kernels(before, after)
    yield "shapes", _shapes(before, after)
    yield "steps", _steps(before, after)
    yield "software", _software(before, after)
    yield "recording", _recording(before, after)


def _texts(aspect: Aspect, before: str, after: str) -> _Found:
    if not before or not after:
        return None
    return [] if before == after else [KernelDifference(aspect=aspect, before=before, after=after)]


def _models(rank: RankProfile) -> str:
    return ", ".join(sorted({name for name in rank.gpus if name}))


def _devices(rank: RankProfile) -> int:
    return sum(each.counted for each in rank.devices)


def _count(number: int | None) -> str:
    return str(number) if number else ""


def _known(framework: str) -> str:
    return "" if framework == "unknown" else framework


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %"


def _common(mine: Mapping[Key, int], others: Collection[Key]) -> float:
    total = sum(mine.values())
    return sum(ns for key, ns in mine.items() if key in others) / total if total else 0.0


def _kernels(before: RankProfile, after: RankProfile) -> _Found:
    old, new = ({each.name: each.total_ns for each in rank.kernels} for rank in (before, after))
    if not (old and new):
        return None
    shares = _common(old, new), _common(new, old)
    if min(shares) >= LEAST_COMMON:
        return []
    return [KernelDifference(aspect="kernels", before=_percent(shares[0]), after=_percent(shares[1]))]


def _shapes(before: RankProfile, after: RankProfile) -> _Found:
    old, new = (_with_shapes(rank) for rank in (before, after))
    names = {name for name, _ in old} & {name for name, _ in new}
    if not names:
        return None
    mine, others = ({key: ns for key, ns in each.items() if key[0] in names} for each in (new, old))
    if min(_common(others, mine), _common(mine, others)) >= LEAST_COMMON:
        return []
    name = max(mine, key=lambda key: (key not in others) * mine[key])[0]
    longest = (max((key for key in each if key[0] == name), key=each.__getitem__)[1] for each in (others, mine))
    one, other = (short_shapes(each) for each in longest)
    return [KernelDifference(aspect="shapes", name=name, before=one, after=other)]


def _with_shapes(rank: RankProfile) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for each in rank.operators:
        if each.shapes:
            found[each.name, each.shapes] += each.kernel_ns
    return found


def _steps(before: RankProfile, after: RankProfile) -> _Found:
    counts = before.step_count, after.step_count
    if not any(counts):
        return None
    few = min(counts) < FEWEST
    return [KernelDifference(aspect="steps", before=str(counts[0]), after=str(counts[1]))] if few else []


def _software(before: RankProfile, after: RankProfile) -> _Found:
    known = [name for name in before.software if name in after.software and name not in OPTIONS]
    found = [
        KernelDifference(aspect="software", name=name, before=before.software[name], after=after.software[name])
        for name in known
        if before.software[name] != after.software[name]
    ]
    return found if known else None


def _recording(before: RankProfile, after: RankProfile) -> list[KernelDifference]:
    pairs = [(name, before.software.get(name, "off"), after.software.get(name, "off")) for name in OPTIONS]
    return [KernelDifference(aspect="recording", name=name, before=a, after=b) for name, a, b in pairs if a != b]
