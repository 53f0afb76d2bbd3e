"""The words of OverallSystemUsage: numbers alone, of which other rules draw conclusions."""

from trainguard.finding import Fact
from trainguard.rules.system_usage import METRIC_OF_SERIES, UsageKind
from trainguard.rules.units import show_percent
from trainguard.rules.warm_up import undecided
from trainguard.rules.words import FactSheet, Words


def text(sheet: FactSheet) -> Words:
    """Say how much of a node was used."""
    shared = undecided(sheet)
    if shared is not None:
        return shared
    node = sheet.facts[0].node
    if sheet.kind == UsageKind.NETWORK_ALONE:
        return Words(f"{node} has samples of its network alone.")
    if sheet.kind == UsageKind.NOTHING:
        return Words(f"{node} has samples of no metric that is summed up.")
    medians = _listed(sheet.all("median_utilization"))
    if sheet.kind == UsageKind.MEDIANS:
        return Words(f"on {node} the medians are {medians}.")
    highs = _listed(sheet.all("p95_utilization"))
    return Words(f"on {node} the medians are {medians}, and 95 % of the points are at or below {highs}.")


def _listed(facts: tuple[Fact, ...]) -> str:
    shown = [f"{show_percent(float(fact.value))} of {METRIC_OF_SERIES[fact.series or '']}" for fact in facts]
    return " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)
