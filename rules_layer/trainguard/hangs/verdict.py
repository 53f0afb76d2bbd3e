"""The verdict on a job that stands still: facts for the page, the row and ``trainguard hang --json``."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import msgspec
from msgspec.structs import replace

from trainguard.formats.hangs.flight_recorder import Dump
from trainguard.formats.hangs.ras import Communicator, Process, RasAnswer, RasRank
from trainguard.formats.hangs.stacks import StackFrame, ThreadStack
from trainguard.hangs.positions import RankPositions, positions
from trainguard.hangs.waits import HangCause, HangCauseKind, Waits, who_waits

_LIBRARY = re.compile(
    r"(?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python3\.\d+[/\\]|[/\\]pytorch[/\\]torch[/\\]|^<|^\?\?"
)
# py-spy writes files below Python's path without it: ``threading.py``, ``torch/nn/modules/module.py``.
_PACKAGES = sys.stdlib_module_names | {
    "accelerate",
    "deepspeed",
    "lightning",
    "megatron",
    "numpy",
    "torch",
    "transformers",
}

_WHILE = {
    "communication": r"distributed_c10d|\btorch[/\\]distributed[/\\]c10d|c10d_logger",
    "data": r"torch[/\\]utils[/\\]data|_next_data|_try_get_data|\bdatasets?[/\\]|webdataset",
    "checkpoint": r"\bserialization\.py|torch[/\\]distributed[/\\]checkpoint|save_pretrained|safetensors",
    "lock": r"\bthreading\.py|\bqueue\.py|filelock|fcntl|synchronize\.py|multiprocessing[/\\]connection",
    "network": r"\bsocket\.py|\bssl\.py|urllib3|\brequests[/\\]|botocore|http[/\\]client",
}
_FORMS = {doing: re.compile(form) for doing, form in _WHILE.items()}


class Doing(StrEnum):
    """What a stack says that a process does; OWN_CODE where none of the others is in it."""

    COMMUNICATION = "communication"
    DATA = "data"
    CHECKPOINT = "checkpoint"
    LOCK = "lock"
    NETWORK = "network"
    OWN_CODE = "own_code"


@dataclass(frozen=True, slots=True)
class CodePlace:
    """The innermost line of a person's own code, ``file:line function``, and what is done there."""

    line: str
    doing: Doing


def place_of(stack: ThreadStack) -> CodePlace:
    """Return where a process stands."""
    own = next((each for each in stack.frames if not _is_library(each.file)), stack.frames[0])
    called = stack.frames[: stack.frames.index(own) + 1]
    return CodePlace(str(own), _doing(called))


def _doing(called: Sequence[StackFrame]) -> Doing:
    found = (doing for doing, form in _FORMS.items() if any(form.search(str(each)) for each in called))
    return Doing(next(found, Doing.OWN_CODE))


def own_line(where: Sequence[str]) -> str:
    """Return the innermost line of a person's own code of the frames of an operation, or nothing."""
    return next((each for each in where if not _is_library(each)), "")


def _is_library(file: str) -> bool:
    first = re.split(r"[/\\:]", file, maxsplit=1)[0].removesuffix(".py")
    return first in _PACKAGES or _LIBRARY.search(file) is not None


class RasKind(StrEnum):
    """How a rank stands, from the most certain.

    DEAD: RAS has given its process up. UNRESPONSIVE: Its process does not answer RAS. BEHIND: It has launched fewer
    collectives of a communicator than most of its ranks.
    """

    DEAD = "dead"
    UNRESPONSIVE = "unresponsive"
    BEHIND = "behind"


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that others wait for.

    kind: As of `HangCauseKind` by its dump, as of `RasKind` by NCCL RAS, or ``elsewhere``: its stack alone is elsewhere
        than that of most ranks.
    operation, group, sequence: What it is in itself, or entered last; empty and None where unknown. By NCCL RAS the
        kind of collectives of which it has launched too few, and how many it has.
    line: Its own line of code; empty without a stack. doing: As of `Doing`.
    waiting: How many ranks wait for it in the operation of the verdict.
    """

    rank: int
    kind: str
    operation: str = ""
    group: str = ""
    sequence: int | None = None
    line: str = ""
    doing: str = ""
    waiting: int = 0


def stand_of(answers: Iterable[RasAnswer]) -> tuple[list[int], list[Culprit]]:
    """Return the ranks of the largest communicator, and those that hold up others, the most certain first.

    Ranks of a smaller communicator are named by their place in the largest one.
    """
    communicators = [each for answer in answers for each in answer.communicators if each.ranks]
    if not communicators:
        return [], []
    size = max(each.size for each in communicators)
    of_all = [each for each in communicators if each.size == size]
    places = {each.process: each.rank for communicator in of_all[:1] for each in communicator.ranks}
    causes: dict[int, Culprit] = {}
    for communicator in sorted(communicators, key=lambda each: -each.size):
        # Who waits in the group of all ranks is behind in the groups in it, too.
        has_behind = any(each.kind == RasKind.BEHIND for each in causes.values())
        for cause in _causes(communicator, places, counts=communicator.size == size or not has_behind):
            known = causes.get(cause.rank)
            if known is None or _ORDER.index(cause.kind) < _ORDER.index(known.kind):
                causes[cause.rank] = cause
    return sorted(places.values()), sorted(causes.values(), key=lambda each: (_ORDER.index(each.kind), each.rank))


_ORDER: tuple[str, ...] = tuple(RasKind)


def _causes(communicator: Communicator, places: Mapping[Process, int], *, counts: bool) -> Iterator[Culprit]:
    for each in communicator.ranks:
        rank = places.get(each.process)
        if rank is not None and (each.is_dead or each.is_unresponsive):
            yield Culprit(rank=rank, kind=(RasKind.DEAD if each.is_dead else RasKind.UNRESPONSIVE).value)
    for each, operation in _behind(communicator) if counts else ():
        rank = places.get(each.process)
        if rank is not None:
            yield Culprit(rank=rank, kind=RasKind.BEHIND.value, operation=operation, sequence=each.counts[operation])


def _behind(communicator: Communicator) -> Iterator[tuple[RasRank, str]]:
    """Yield the ranks that have launched fewer collectives than most, each with the kind that it lacks most of."""
    answered = [each for each in communicator.ranks if not each.is_missing and each.counts]
    most = Counter(tuple(sorted(each.counts.items())) for each in answered).most_common(1)
    if not most or 2 * most[0][1] <= len(answered):
        return
    usual = dict(most[0][0])
    for each in answered:
        lacking = {name: count - each.counts.get(name, 0) for name, count in usual.items() if name in each.counts}
        name = max(lacking, key=lambda kind: lacking[kind], default="")
        if each.launched < sum(usual.values()) and name and lacking[name] > 0:
            yield each, name


class HangVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds up a job.

    culprits: Ranks, the most certain first; empty where no rank can be named. victims: Ranks that wait.
    without_dump: Ranks that a dump names and that left none. ranks: All that dumps or stacks name.
    operation, group, group_description, sequence: What the victims wait in; empty and None where unknown.
    line: The culprit's line of code where its stack is known; else that in which most ranks wait. waiting_line: The
        latter.
    details: A `Culprit` for each of ``culprits``. unread: By file, why it could not be read.
    reason, advice: Sentences, which `trainguard.hangs.text` writes.
    """

    schema_version: Literal["1"] = "1"
    culprits: list[int]
    victims: list[int]
    without_dump: list[int]
    ranks: int
    operation: str
    group: str
    group_description: str
    sequence: int | None
    line: str
    waiting_line: str
    details: list[Culprit]
    unread: dict[str, str]
    reason: str = ""
    advice: str = ""


def hang_verdict(
    dumps: Iterable[Dump],
    stacks: Mapping[int, ThreadStack],
    unread: Mapping[str, str],
    answers: Iterable[RasAnswer] = (),
) -> HangVerdict:
    """Return who holds up the job whose ranks left these dumps, stacks and answers of RAS; without its sentences."""
    found = positions(dumps)
    waits = who_waits(found)
    answering, causes = stand_of(answers)
    places = {rank: place_of(stack) for rank, stack in sorted(stacks.items())}
    details = _with_places(waits, places) if found.ranks else []
    victims = list(waits.victims)
    if all(each.kind == HangCauseKind.NO_DUMP for each in details):
        details = _by_ras(answering, causes, places, details)
        victims = victims or (answering if details and causes else [])
    if not details:
        details, victims = _elsewhere(places, victims)
    awaited = waits.causes[0].waits if waits.causes and details else waits.shared
    ranks = {each.rank for each in details}
    victims = [rank for rank in victims if rank not in ranks]
    waiting_line = _waiting_line(victims, places, found)
    own = next((each.line for each in details if each.line), "")
    return HangVerdict(
        culprits=[each.rank for each in details],
        victims=victims,
        without_dump=list(found.without_dump),
        ranks=len({*found.world, *places, *answering}),
        operation="" if awaited is None else awaited.name,
        group="" if awaited is None else awaited.group,
        group_description="" if awaited is None else found.descriptions.get(awaited.group, ""),
        sequence=None if awaited is None else awaited.sequence,
        line=own or waiting_line,
        waiting_line=waiting_line,
        details=details,
        unread=dict(unread),
    )


def _with_places(waits: Waits, places: Mapping[int, CodePlace]) -> list[Culprit]:
    """Return the causes with their lines; a rank whose stack is in a transfer that no recorder sees waits itself."""
    found = [_culprit(each, places.get(each.rank)) for each in waits.causes]
    sure = [each for each in found if each.kind != HangCauseKind.NOT_ENTERED or each.doing != Doing.COMMUNICATION]
    return sure or found


def _culprit(cause: HangCause, place: CodePlace | None) -> Culprit:
    found = Culprit(rank=cause.rank, kind=cause.kind.value, waiting=len(cause.waiting))
    if (own := cause.own) is not None:
        found = replace(found, operation=own.name, group=own.group, sequence=own.sequence)
    return _at(found, place)


def _at(found: Culprit, place: CodePlace | None) -> Culprit:
    return found if place is None else replace(found, line=place.line, doing=place.doing.value)


def _by_ras(
    ranks: Sequence[int], found: Sequence[Culprit], places: Mapping[int, CodePlace], without_dump: Sequence[Culprit]
) -> list[Culprit]:
    """Return the ranks that RAS names, where no dump shows a cause; then those that left no dump, if RAS names none."""
    waiting = {each.rank: each.waiting for each in without_dump}
    causes = [each for each in found if not waiting or each.rank in waiting or each.kind != RasKind.BEHIND]
    if not causes:
        return list(without_dump)
    left = len(ranks) - len(causes)
    return [_at(replace(each, waiting=waiting.get(each.rank, left)), places.get(each.rank)) for each in causes]


def _elsewhere(places: Mapping[int, CodePlace], victims: Sequence[int]) -> tuple[list[Culprit], list[int]]:
    """Return the ranks whose stack is elsewhere than that of most, which wait in one line."""
    lines = Counter((each.line, each.doing) for each in places.values())
    common = lines.most_common(1)
    if not common or 2 * common[0][1] <= len(places):
        return [], list(victims)
    (line, doing), count = common[0]
    odd = [rank for rank, each in places.items() if (each.line, each.doing) != (line, doing)]
    # Those who wait in another transfer are no cause, as long as somebody is not in any.
    apart = [rank for rank in odd if places[rank].doing is not Doing.COMMUNICATION] or odd
    culprits = [_at(Culprit(rank=rank, kind="elsewhere", waiting=count), places[rank]) for rank in apart]
    return culprits, [rank for rank in places if rank not in apart]


def _waiting_line(victims: Sequence[int], places: Mapping[int, CodePlace], found: RankPositions) -> str:
    """Return the line in which most victims wait, by their stacks, else by the frames of their operations."""
    stacked = Counter(places[rank].line for rank in victims if rank in places)
    heads = (found.ranks[rank].head for rank in victims if rank in found.ranks)
    recorded = Counter(line for head in heads if head is not None and (line := own_line(head.where)))
    most = (stacked or recorded).most_common(1)
    return most[0][0] if most else ""
