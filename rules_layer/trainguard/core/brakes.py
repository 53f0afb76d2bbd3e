"""Operators' brakes: what somebody has silenced or forbidden, for a job, a rule or the stack, until a time.

A brake that is released, or whose time is over, stays in the list for a while: two people who write at once are joined
by it, as the earlier end of a brake counts.
"""

import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from trainguard.core.canary_name import is_canary
from trainguard.core.text import one_line
from trainguard.core.timestamps import epoch_from_iso, iso_time

LONGEST_WHY = 200
LONGEST_NAME = 256
# Of a standard SSM parameter.
MOST_BYTES = 4_096

# A brake that has ended is listed for so long, where there is room.
KEPT_S = 86_400.0


class Braked(StrEnum):
    """What a brake holds back."""

    ALERTS = "alerts"
    EVALUATION = "evaluation"
    STOPS = "stops"


_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]


class Brake(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One brake; ``job`` and ``rule`` None stand for all. Times are ISO 8601, ``until`` None is until it is released.

    ``released_by`` is who ended it before its time.
    """

    id: _Name
    what: Braked
    since: str
    by: _Name
    why: Annotated[str, msgspec.Meta(max_length=LONGEST_WHY)]
    job: _Name | None = None
    rule: _Name | None = None
    until: str | None = None
    released_by: _Name | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a time that is none, and for a rule where only whole jobs can be braked."""
        epoch_from_iso(self.since)
        if self.until is not None:
            epoch_from_iso(self.until)
        if self.what is Braked.EVALUATION and self.rule is not None:
            raise ValueError("rule is given, expected none: evaluation is braked for a job or the stack")

    def in_force(self, now: float) -> bool:
        return self.until is None or now < epoch_from_iso(self.until)

    def covers(self, what: Braked, job: str, rule: str | None) -> bool:
        return self.what is what and self.job in {None, job} and self.rule in {None, rule}

    @property
    def scope(self) -> str:
        """Return what it holds back, for example ``alerts on job bert``."""
        rule = "" if self.rule is None else f" of {self.rule}"
        return f"{self.what.value}{rule} on {'all jobs' if self.job is None else f'job {self.job}'}"

    @property
    def words(self) -> str:
        """Return a phrase that names it, who made it, how long it holds and why, on one line."""
        end = "it is released" if self.until is None else self.until
        return one_line(f"brake {self.id} of {self.by.rpartition('/')[2]} until {end}: {self.why}")


@dataclass(frozen=True, slots=True)
class BrakeList:
    """The brakes of a stack as they are stored; ``faults`` say what of them cannot be read."""

    brakes: tuple[Brake, ...] = ()
    faults: tuple[str, ...] = ()

    def on(self, what: Braked, *, job: str, rule: str | None = None, now: float) -> Brake | None:
        """Return the brake in force that holds ``what`` back, the longest; None where there is none."""
        found = [each for each in self.brakes if each.covers(what, job, rule) and each.in_force(now)]
        return max(found, key=_end, default=None)

    def on_evaluation(self, job: str, arn: str, canary: object, now: float) -> Brake | None:
        """Return the brake that holds a job's evaluation back; canaries show that evaluation works."""
        brake = self.on(Braked.EVALUATION, job=job, now=now)
        return None if brake is None or is_canary(job, arn, canary) else brake

    def in_force(self, now: float) -> list[Brake]:
        return [each for each in self.brakes if each.in_force(now)]


NO_BRAKES = BrakeList()


def _end(brake: Brake) -> float:
    return float("inf") if brake.until is None else epoch_from_iso(brake.until)


def read_brakes(document: str | None) -> BrakeList:
    """Read a stored list; an entry that cannot be read is a fault, and the others hold."""
    if document is None:
        return BrakeList()
    try:
        entries = msgspec.json.decode(document, type=list[Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        return BrakeList(faults=(f"the list of brakes is {document[:40]!r}: {fault}",))
    brakes, faults = [], []
    for number, entry in enumerate(entries, 1):
        try:
            brakes.append(msgspec.convert(entry, Brake))
        except (msgspec.ValidationError, RecursionError) as fault:
            faults.append(one_line(f"brake {number} of {len(entries)} cannot be read: {fault}", LONGEST_NAME))
    return BrakeList(joined(brakes), tuple(faults))


def joined(brakes: Iterable[Brake]) -> tuple[Brake, ...]:
    """Return each brake once, the oldest first; of two of one id, the one that ends earlier."""
    by_id: dict[str, Brake] = {}
    for each in brakes:
        known = by_id.get(each.id)
        if known is None or _end(each) < _end(known):
            by_id[each.id] = each
    return tuple(sorted(by_id.values(), key=lambda each: (each.since, each.id)))


class BrakesFullError(ValueError):
    """The brakes in force have no room for another."""


def written_brakes(brakes: Sequence[Brake], *, now: float) -> str:
    """Return the list to store, without brakes that ended long ago; raises BrakesFullError.

    The newest of those that have ended are kept as far as there is room.
    """
    kept = [each for each in brakes if each.in_force(now) or now - _end(each) < KEPT_S]
    ended = sorted((each for each in kept if not each.in_force(now)), key=_end)
    while len(document := _encoded(kept)) > MOST_BYTES and ended:
        kept.remove(ended.pop(0))
    if len(document) > MOST_BYTES:
        raise BrakesFullError(
            f"{len(kept)} brakes take {len(document):,} bytes, expected at most {MOST_BYTES:,}: release one, "
            "or make one that holds for the rule or the stack"
        )
    return document


def _encoded(brakes: Sequence[Brake]) -> str:
    """Return the list as JSON in ASCII; SSM takes two braces for a reference to another parameter."""
    return json.dumps(msgspec.to_builtins(brakes), separators=(",", ":")).replace("{{", "{\\u007b")


def new_brake(  # noqa: PLR0913 - the fields of a brake, by name
    identity: str,
    what: Braked,
    *,
    by: str,
    why: str,
    now: float,
    job: str | None = None,
    rule: str | None = None,
    until: float | None = None,
) -> Brake:
    """Return a brake from ``now`` on, epoch seconds; raises ValueError for what no brake can be."""
    given = {
        "id": identity,
        "what": what,
        "since": iso_time(now),
        "by": by,
        "why": one_line(why.strip()),
        "job": job,
        "rule": rule,
        "until": None if until is None else iso_time(until),
    }
    if not given["why"]:
        raise ValueError("why is empty, expected who reads it to learn the reason")
    if until is not None and until <= now:
        raise ValueError(f"until is {given['until']}, which is over, expected a time to come")
    return msgspec.convert({name: value for name, value in given.items() if value is not None}, Brake)


def released(brakes: Sequence[Brake], ids: Collection[str], *, by: str, now: float) -> tuple[Brake, ...]:
    """Return the brakes, those of ``ids`` ended at ``now`` where they still hold."""
    # A time is written in whole milliseconds; one that is rounded up would not be over yet.
    ended = iso_time(math.floor(now * 1_000.0) / 1_000.0)
    return tuple(
        msgspec.structs.replace(each, until=ended, released_by=by) if each.id in ids and each.in_force(now) else each
        for each in brakes
    )
