"""What the words on GPU use say alike: numbers of facts, and whether it is over."""

from trainguard.finding import Fact
from trainguard.rules.units import show_duration, show_percent
from trainguard.rules.words import FactSheet


def is_past(sheet: FactSheet) -> bool:
    """Whether what is said is over, or its stream has ended."""
    return sheet.past or sheet.get("stream_end") is not None


def time_of(fact: Fact) -> str:
    """Say how long a fact is."""
    return show_duration(float(fact.value))


def limit_of(fact: Fact) -> str:
    """Say a percentage with its threshold."""
    return f"{percent_of(fact)} (threshold {show_percent(fact.threshold or 0.0)})"


def percent_of(fact: Fact) -> str:
    """Say a percentage."""
    return show_percent(float(fact.value))


def share_of(fact: Fact) -> str:
    """Say a share as a percentage."""
    return show_percent(100.0 * float(fact.value))


def span_of(fact: Fact) -> str:
    """Say how long a fact's time was."""
    return show_duration((fact.end or 0.0) - (fact.start or 0.0))
