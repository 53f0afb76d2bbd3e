"""Recomputes which ranks hold other copies than most, from the hashes that each rank saved."""

import json
import zlib
from collections import Counter
from itertools import groupby
from typing import Any, NamedTuple

from tests.claims.tensor_files import Step
from tests.claims.tensor_values import Seen

PREFIX = "trainguard/replicas/"
SHOWN = {"rank": 6, "tensor": 3}
# Numbers and names of tensors by rank, of ranks that are compared.
Part = dict[int, tuple[list[int], list[str]]]


class Apart(NamedTuple):
    """How the copies of some ranks differ; ``named`` are ranks, ``tensors`` names."""

    order: tuple[int, int]
    named: list[int]
    tensors: list[str]
    ranks: int
    alike: int
    tensors_held: int
    of: str


class Told(NamedTuple):
    """What is found at one step; ``unused`` are counts by the name of their fact."""

    apart: list[Apart]
    compared: set[int]
    unused: dict[str, int]


def copies(seen: Seen, facts: dict[str, Any]) -> dict[str, Any] | None:
    """Follow the steps so far: when copies were equal last, and since when some differ."""
    equal: int | None = None
    since: int | None = None
    waits: set[int] = set()
    truths: dict[str, Any] | None = None
    for step in seen.so_far:
        told = _told(step)
        truths = None
        if told is None or not told.compared:
            continue
        if not told.apart:
            if waits <= told.compared:
                equal, since, waits, truths = step.number, None, set(), {"fires": False}
            continue
        worst = min(told.apart, key=lambda each: each.order)
        since = step.number if since is None else since
        waits = set(worst.named[: SHOWN["rank"]])
        truths = {
            "fires": True,
            "copies_of": worst.of,
            "ranks": worst.ranks,
            "ranks_apart": len(worst.named),
            "threshold of ranks_apart": 0.0,
            "ranks_alike": worst.alike,
            "rank": {f"rank {rank}": rank for rank in worst.named},
            "tensors": worst.tensors_held,
            "tensors_apart": len(worst.tensors),
            "tensor": worst.tensors,
            "since_step": since,
            "sets_apart": len(told.apart),
            **({} if equal is None else {"equal_step": equal}),
            **told.unused,
        }
    return truths


def holds(step: Step) -> bool:
    return any(name.startswith(PREFIX) for name in step.tensors)


def _told(step: Step) -> Told | None:
    by_set: dict[tuple[str, str, str], list[tuple[Any, ...]]] = {}
    lonely = set()
    for name, content in step.tensors.items():
        if not (name.startswith(PREFIX) and name.endswith("/about")):
            continue
        rank, about = int(name.split("/")[2]), json.loads(content.tobytes())
        if not about["sets"]:
            lonely.add(rank)
            continue
        hashes = step.tensors[f"{PREFIX}{rank}"].tolist()
        listed = json.loads(zlib.decompress(step.tensors[f"{PREFIX}{rank}/tensors"].tobytes()))
        begins = 0
        for each, tensors in zip(about["sets"], listed, strict=True):
            names = [tensor[0] for tensor in tensors]
            moment = str([about["mode_step"], about["attempt"], each["moment"]])
            own = hashes[begins : begins + each["count"]]
            key = each["of"], each["ranks"], each["device"]
            by_set.setdefault(key, []).append((each["layout"], moment, about["at"], rank, own, names, each["copies"]))
            begins += each["count"]
    if not by_set and not lonely:
        return None
    apart: list[Apart] = []
    compared, moved, others = set[int](), set[int](), set[int]()
    missing = 0
    for (of, _, _), held in by_set.items():
        parts = _parts(held)
        largest = max(parts, key=len)
        for part in parts:
            if len(part) > 1:
                compared |= {each[3] for each in part}
                apart += _apart(of, {each[3]: (each[4], each[5]) for each in part})
            if part is not largest:
                (moved if part[0][0] == largest[0][0] else others).update(each[3] for each in part)
        missing = max(missing, largest[0][6] - len(held))
    unused = {
        "ranks_of_other_moment": len(moved - compared),
        "ranks_of_other_tensors": len(others - compared),
        "ranks_without_copies": len(lonely),
        "copies_missing": missing,
    }
    return Told(apart, compared, unused)


def _parts(held: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Return ranks of one layout and moment together, as long as each is within 30 s of the one before it."""
    parts = []
    for _, together in groupby(sorted(held, key=lambda each: each[:4]), key=lambda each: each[:2]):
        row: list[tuple[Any, ...]] = []
        for each in together:
            if row and each[2] - row[-1][2] > 30.0:
                parts.append(row)
                row = []
            row.append(each)
        parts.append(row)
    return parts


def _apart(of: str, part: Part) -> list[Apart]:
    names = next(iter(part.values()))[1]
    wrong, decided, undecided = set[int](), list[str](), list[str]()
    for place, name in enumerate(names):
        values = {rank: hashes[place] for rank, (hashes, _) in part.items()}
        most, count = Counter(values.values()).most_common(1)[0]
        if count == len(values):
            continue
        if count > len(values) / 2:
            decided.append(name)
            wrong |= {rank for rank, value in values.items() if value != most}
        else:
            undecided.append(name)
    if not decided and not undecided:
        return []
    unkept = len(names) >= 4 and len(undecided) >= len(names) / 2
    kind = 2 if unkept else 0 if wrong else 1
    named = sorted(wrong if kind == 0 else part)
    alike = len(part) - len(wrong) if kind == 0 else 0
    tensors = [*decided, *undecided]
    return [Apart((kind, -len(tensors)), named, tensors, len(part), alike, len(names), of)]
