"""Which numbers of a sentence are in no fact that it is made of."""

import re
from collections.abc import Iterable, Iterator

from trainguard.core.finding import Fact
from trainguard.core.timestamps import iso_time

NUMBER = re.compile(r"(?<![\w./-])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
CLOCK = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: to (?:\d{4}-\d\d-\d\d )?\d\d:\d\d(?::\d\d)?)?(?: UTC)?")
QUOTED = re.compile(r"`[^`]*`")
# Words that are the same in each judgement.
FIXED = (
    "3 to 10 steps",
    "the busiest 5 %",
    "the idlest 5 %",
    "95 % of its",
    "3 windows of",
    "5th to 95th percentile",
    "95th percentile",
)

# Pairs of facts of which a sentence also gives the share.
RATIOS = frozenset({("memory_in_use", "memory_total")})

# Percentages of which a sentence also gives what is left up to 100 %.
UNUSED = frozenset({"p95_activity_at_work", "p95_sm_activity"})

# A share in percent; seconds in ms, us, minutes, hours and days; bytes in MB, GB, MiB and GiB.
SCALES = (1.0, 100.0, 1e3, 1e6, 1e-3, 1e-6, 1e-9, 2.0**-20, 2.0**-30, 1 / 60.0, 1 / 3_600.0, 1 / 86_400.0)


def unfounded(words: str, facts: Iterable[Fact]) -> list[str]:
    """Return the numbers and clock times of words that are no value, threshold or time of a fact, plainly rounded."""
    facts = tuple(facts)
    words = QUOTED.sub("", words)
    for fixed in FIXED:
        words = words.replace(fixed, "")
    for name in sorted(set(_names(facts)), key=len, reverse=True):
        words = words.replace(name, "")
    moments = {iso_time(at)[:16].replace("T", " ") for at in _times(facts)}
    wrong = [clock for clock in CLOCK.findall(words) if not _clock_is_of(clock, moments)]
    values = list(_values(facts))
    shown = NUMBER.findall(CLOCK.sub("", words))
    return wrong + [number for number in shown if not any(_is_rounded(number, value) for value in values)]


def _clock_is_of(clock: str, moments: set[str]) -> bool:
    begin, _, end = clock.removesuffix(" UTC").partition(" to ")
    end = end if len(end) != len("00:00") else f"{begin[:10]} {end}"
    return begin[:16] in moments and (not end or end[:16] in moments)


def _names(facts: Iterable[Fact]) -> Iterator[str]:
    for fact in facts:
        yield from (each for each in (fact.node, fact.device, fact.series) if each)
        if isinstance(fact.value, str) and not fact.value.replace(",", "").replace(".", "").isdigit():
            yield fact.value


def _times(facts: Iterable[Fact]) -> Iterator[float]:
    for fact in facts:
        yield from (each for each in (fact.start, fact.end) if each is not None)
        if fact.unit == "time" and not isinstance(fact.value, str):
            yield float(fact.value)


def _values(facts: tuple[Fact, ...]) -> Iterator[float]:
    for fact in facts:
        if not isinstance(fact.value, str):
            yield float(fact.value)
        elif NUMBER.fullmatch(fact.value):
            yield float(fact.value.replace(",", ""))
        yield from (float(each) for each in re.findall(r"(?<=\bp)\d+", fact.name.replace("_", " ")))
        if fact.threshold is not None:
            yield float(fact.threshold)
        if fact.start is not None and fact.end is not None:
            yield fact.end - fact.start
    number = {fact.name: float(fact.value) for fact in facts if not isinstance(fact.value, str)}
    yield from (number[part] / number[whole] for part, whole in RATIOS if {part, whole} <= number.keys())
    yield from (100.0 - number[name] for name in UNUSED & number.keys())
    for name in {fact.name for fact in facts}:
        yield float(sum(fact.name == name for fact in facts))


def _is_rounded(shown: str, value: float) -> bool:
    plain = shown.replace(",", "")
    number = float(plain)
    digits = len(plain.partition("e")[0].partition(".")[2])
    last = 10.0**-digits * (10.0 ** float(plain.partition("e")[2] or 0.0))
    return any(abs(abs(value) * scale - number) <= 0.5 * last * (1.0 + 1e-6) for scale in SCALES)
