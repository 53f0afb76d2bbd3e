"""Every number in a sentence is a fact of its finding; what is called least, most, first, only or all is so."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.claims.claim import Unknown, Untrue
from tests.claims.superlatives import superlative_claims
from tests.claims.times import epoch

_CLOCK = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d)(?: to (?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d))? UTC")
_NUMBER = re.compile(
    r"(?<![\w.,/=-])(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w]|[./-]\d)"
    r"(?: (%|percentage points?|seconds?|min|days?|h|s|ms|W|GB|MB|B)(?![\w]))?"
)
_MONEY = re.compile(r"\b[A-Z]{3} ([\d,]+(?:\.\d+)?)")
_OF_WHOLE = re.compile(r"([\d,.]+) (GB|MB) of ([\d,.]+) (GB|MB) \(([\d.]+) %\)")
_UNUSED = re.compile(r"left ([\d.]+) % of its (?:multiprocessors|time) unused")
# No figure of a job: a metric ends there.
_FULL = re.compile(r"\bbeen at 100 %")

_MORE = re.compile(r"and ([\d,]+) more\b")
_OF_NAMES = re.compile(r"\bp(\d+)_|_p(\d+)\b|\bp(\d+)\b")

_SECONDS = {"s": 1.0, "second": 1.0, "min": 60.0, "h": 3_600.0, "day": 86_400.0, "ms": 1e-3}
_BYTES = {"GB": 1e9, "MB": 1e6, "B": 1.0}
_MINUTE_S = 60.0


@dataclass
class Sayable:
    """What sentences may say: numbers by what they are of, times, and names that have digits in them."""

    percents: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)
    counts: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    listed: int = 0

    def add_fact(self, fact: dict[str, Any]) -> None:
        """Add a fact's value, threshold and times."""
        for value in (fact["value"], fact.get("threshold")):
            if isinstance(value, str):
                self.names.add(value)
                self.listed += 1
            elif value is not None:
                self._add(float(value), fact.get("unit", ""))
        start, end = fact.get("from"), fact.get("to")
        self.times += [at for at in (start, end) if at is not None]
        if start is not None and end is not None:
            self.seconds.append(end - start)
        self.names |= {str(fact[name]) for name in ("node", "device", "series") if fact.get(name)}
        for parts in _OF_NAMES.findall(fact["name"]):
            self.percents.append(float(next(part for part in parts if part)))

    def _add(self, value: float, unit: str) -> None:
        if unit == "share":
            self.percents.append(100.0 * value)
        elif unit in {"%", "points", "points/h"}:
            self.percents.append(value)
            if unit == "points":
                self.counts.append(value)
        elif unit == "time":
            self.times.append(value)
        elif unit in {"s", "min", "h"}:
            self.seconds.append(value * _SECONDS[unit])
            self.counts.append(value)
        elif unit == "W":
            self.watts.append(value)
        elif unit in {"B", "bytes", "bytes/h"}:
            self.bytes.append(value)
        else:
            self.counts.append(value)

    def of(self, unit: str) -> tuple[list[float], float]:
        """Return the numbers of a unit, and by what they are divided to be said in it."""
        if unit == "%" or unit.startswith("percentage"):
            return self.percents, 1.0
        if unit == "W":
            return self.watts, 1.0
        if unit in _BYTES:
            return self.bytes, _BYTES[unit]
        if unit in _SECONDS or unit.rstrip("s") in _SECONDS:
            return self.seconds, _SECONDS[unit if unit in _SECONDS else unit.rstrip("s")]
        return [*self.counts, *self.percents], 1.0


def finding_claims(finding: dict[str, Any], raw: Any) -> Iterator[Untrue | Unknown | None]:
    """Yield what is untrue of the sentences of a finding."""
    where = f"{finding['rule']}/{finding['finding_kind']}"
    sayable = Sayable()
    for fact in finding["facts"]:
        sayable.add_fact(fact)
    for episode in finding["episodes"]:
        sayable.times += [epoch(at) for at in (episode["start"], episode["end"]) if at is not None]
    for name in ("reason", "advice"):
        text = finding[name]
        if text:
            yield from text_claims(f"{where}, {name}", text, sayable)
            yield from superlative_claims(f"{where}, {name}", text, finding, raw)


def text_claims(where: str, text: str, sayable: Sayable) -> Iterator[Untrue | None]:
    """Yield, for each number and time in a text, that it is none of what may be said, or None."""
    for match in _CLOCK.finditer(text):
        for said in _clock_times(match):
            holds = any(said <= at < said + _MINUTE_S or abs(at - said) < 1.0 for at in sayable.times)
            shown = datetime.fromtimestamp(said, UTC).strftime("%Y-%m-%d %H:%M")
            yield None if holds else Untrue(where, shown, f"no fact has this time: {text}")
    rest = _CLOCK.sub(" ", text)
    for name in sorted(sayable.names, key=len, reverse=True):
        if any(letter.isdigit() for letter in name):
            rest = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", "_", rest)
    for match in _MORE.finditer(rest):
        number = float(match[1].replace(",", ""))
        holds = any(0 < count - number <= sayable.listed for count in sayable.counts)
        yield None if holds else Untrue(where, match[0], f"no fact says how many there are: {text}")
    rest = _MORE.sub(" ", _MONEY.sub(" ", _FULL.sub(" ", rest)))
    for match in _OF_WHOLE.finditer(rest):
        part, whole = (float(match[at].replace(",", "")) * _BYTES[match[at + 1]] for at in (1, 3))
        holds = whole > 0.0 and abs(100.0 * part / whole - float(match[5])) <= 1.0
        yield None if holds else Untrue(where, match[0], f"it is {part} of {whole}: {text}")
    rest = re.sub(r" \([\d.]+ %\)", " ", rest) if _OF_WHOLE.search(rest) else rest
    for match in _UNUSED.finditer(rest):
        holds = any(abs(100.0 - value - float(match[1])) <= 0.051 for value in sayable.percents)
        yield None if holds else Untrue(where, match[0], f"no fact is the rest: {text}")
    rest = _UNUSED.sub(" ", rest)
    for match in _NUMBER.finditer(rest):
        yield _number_claim(where, match[1], match[2] or "", text, sayable)


def _number_claim(where: str, said: str, unit: str, text: str, sayable: Sayable) -> Untrue | None:
    plain = said.replace(",", "")
    number, (known, scale) = float(plain), sayable.of(unit)
    digits, _, power = plain.partition("e")
    last = int(power or 0) - len(digits.partition(".")[2])
    within = 0.5 * 10.0**last * (1.0 + 1e-9) + (1e-9 * abs(number) if power else 1e-9)
    holds = any(abs(value / scale - number) <= within for value in known if math.isfinite(value))
    return None if holds else Untrue(where, f"{said} {unit}".strip(), f"no fact is this number: {text}")


def _clock_times(match: re.Match[str]) -> Iterable[float]:
    day, first, last_day, last = match.groups()
    yield datetime.fromisoformat(f"{day}T{first}:00+00:00").timestamp()
    if last:
        yield datetime.fromisoformat(f"{last_day or day}T{last}:00+00:00").timestamp()
