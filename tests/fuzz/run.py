"""Reads mutated inputs for a time: each gives a result or a named error, within a time and a memory."""

import hashlib
import random
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.mutate import LONGEST, mutated
from tests.fuzz.target import Target

# CPU seconds that one input of at most 200 kB may take, or STANDING times as many on the clock.
MOST_SECONDS = 10.0

STANDING = 10.0

# By so much the process may grow beyond what it has when it begins.
MOST_MIB = 1_024


class HangError(BaseException):
    """An input took longer than MOST_SECONDS; no ``except Exception`` survives it."""


@dataclass(frozen=True, slots=True)
class Defect:
    """An input that a target failed on, and how."""

    target: str
    body: bytes
    what: str
    where: str


@dataclass(slots=True)
class Outcome:
    """How many inputs were read, refused, and which were neither."""

    read: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    defects: dict[tuple[str, str], Defect] = field(default_factory=dict)


@contextmanager
def bounded(mebibytes: int = MOST_MIB) -> Iterator[None]:
    """Let the process take at most so much more memory; an allocation beyond it is a MemoryError."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        held = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + mebibytes * 1024**2, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def take(target: Target, body: bytes, outcome: Outcome, seconds: float = MOST_SECONDS) -> None:
    """Give one input to a target, and note what came of it."""

    def ring(*_: Any) -> None:
        raise HangError(f"longer than {seconds} s")

    before = {each: signal.signal(each, ring) for each in (signal.SIGPROF, signal.SIGALRM)}
    _alarm(seconds)
    try:
        target.read(body)
        outcome.read[target.name] += 1
    except target.refusals:
        outcome.refused[target.name] += 1
    except (Exception, HangError) as error:
        _alarm(0.0)
        ours = [each for each in traceback.extract_tb(error.__traceback__) if "trainguard" in each.filename]
        places = [f"{each.filename.rpartition('trainguard/')[2]}:{each.lineno}" for each in reversed(ours[-3:])]
        where = " < ".join(places)
        defect = Defect(target.name, body, f"{type(error).__name__}: {str(error)[:200]}", where)
        outcome.defects.setdefault((target.name, f"{type(error).__name__} {where.split(' < ')[0]}"), defect)
    finally:
        _alarm(0.0)
        for each, handler in before.items():
            signal.signal(each, handler)


def _alarm(seconds: float) -> None:
    """Raise an alarm after this many CPU seconds, or STANDING times as many on the clock; never for 0."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, STANDING * seconds)


def fuzz(
    targets: Sequence[Target], *, seconds: float, seed: int = 0, told: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Fuzz targets for a time, each in turns of at most ten seconds; the inputs depend on ``seed`` alone."""
    outcome = Outcome()
    seeds = {target.name: [each[:LONGEST] for each in target.seeds()] for target in targets}
    for target in targets:
        if not seeds[target.name]:
            raise ValueError(f"target {target.name!r} has no seed")
        with target.around():
            for body in target.seeds():
                take(target, body, outcome)
    with bounded():
        turns = max(1, round(seconds / (10.0 * len(targets))))
        for turn in range(turns):
            for target in targets:
                _turn(target, seeds[target.name], f"{seed}/{turn}", seconds / (turns * len(targets)), outcome)
            told(f"turn {turn + 1} of {turns}: {_sum(outcome)}")
    return outcome


def _turn(target: Target, seeds: Sequence[bytes], name: str, seconds: float, outcome: Outcome) -> None:
    rng = random.Random(hashlib.sha256(f"{name}/{target.name}".encode()).digest())
    with target.around():
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            take(target, mutated(rng.choice(seeds), rng, seeds), outcome)


def _sum(outcome: Outcome) -> str:
    read, refused = sum(outcome.read.values()), sum(outcome.refused.values())
    return f"{read:,} inputs read, {refused:,} refused, {len(outcome.defects)} defects"
