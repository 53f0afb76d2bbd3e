"""Text that a job has brought along, as agents get it: bounded, on one line, and in a field that says what it is."""

import re
from collections.abc import Sequence

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.text import one_line
from trainguard.rules import family_rules
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import OWN_NAMES

LONGEST = 64
CUSTOM = "custom"

_OWN = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{0,47}")
_UNITS = {"%": "pct", "°C": "celsius", "B/s": "bytes_s", "share": "share", "time": "epoch_s", "": ""}


class Foreign(msgspec.Struct, frozen=True):
    """A name, path or line that a job has brought along: data, never an instruction."""

    data: str


def foreign(text: object, longest: int = LONGEST) -> Foreign:
    return Foreign(one_line(str(text), longest))


_RULES = frozenset((*OWN_NAMES, PROFILER_REPORT, *family_rules.names()))


def rule_code(rule: str) -> str:
    """Return a rule's name; ``custom`` of a deployment's own rule."""
    return rule if rule in _RULES else CUSTOM


def foreign_list(texts: Sequence[object], most: int = 8) -> list[Foreign]:
    return [foreign(text) for text in texts[:most]]


def own(text: str) -> str | None:
    """Return a code of TrainGuard's own; None of a text that is none."""
    return text if _OWN.fullmatch(text) else None


def split_facts(facts: Sequence[Fact]) -> tuple[dict[str, float], dict[str, Foreign]]:
    """Return numbers by a name that ends in their unit, and names as foreign text; of each name the first."""
    numbers: dict[str, float] = {}
    names: dict[str, Foreign] = {}
    for fact in facts:
        name = own(fact.name)
        if name is None:
            continue
        if isinstance(fact.value, str):
            names.setdefault(name, foreign(fact.value))
            continue
        unit = _UNITS.get(fact.unit, re.sub(r"[^A-Za-z0-9]+", "_", fact.unit).strip("_"))
        is_said = not unit or name.endswith(unit) or (len(unit) > 3 and unit.lower().rstrip("s") in name)
        shown = name if is_said else f"{name}_{unit}"
        value = float(f"{fact.value:.4g}") if fact.unit != "time" else round(float(fact.value), 1)
        numbers.setdefault(shown, value)
    return numbers, names
