"""The rules on the page: a line each, and a section for each that has something to show."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module

import msgspec
from msgspec.structs import replace

from trainguard.core.finding import Severity
from trainguard.core.records import Status
from trainguard.core.units import counted, listed
from trainguard.render.blocks import Block, Cell, Facts, Note
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING, number
from trainguard.render.rule_entry import Parameter, RuleEntry
from trainguard.report.document import FindingEntry, Report
from trainguard.rules.parameters import UNSHOWN
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import OWN_NAMES, spec_of

Writer = Callable[[RuleEntry], list[Block]]
_OWN = frozenset({*OWN_NAMES, PROFILER_REPORT})


STATUSES: Mapping[str, tuple[str, str]] = {
    Status.FIRED: ("fired", "bad"),
    Status.ERROR: ("error", "bad"),
    Status.OK: ("ok", "ok"),
    Status.WARMING_UP: ("warming up", "idle"),
    Status.WAITING_FOR_DATA: ("no data yet", "idle"),
    Status.NOT_APPLICABLE: ("not applicable", "idle"),
    Status.DISABLED: ("disabled", "idle"),
}
NOT_JUDGING = frozenset({Status.NOT_APPLICABLE, Status.DISABLED})
SEVERITIES: Mapping[str, str] = {
    Severity.CRITICAL: "bad",
    Severity.HIGH: "high",
    Severity.MEDIUM: "warn",
    Severity.LOW: "low",
}
SHORT_UNIT = 6


Badge = tuple[str, str]
"""A word in a tone, whose icon says the same as its colour."""


@dataclass(frozen=True)
class ShownRule:
    """A rule as the page shows it; ``anchor`` is where its section is, else its line.

    ``shared`` says how a loss that it shares with others is counted; ``final`` is whether the job has ended.
    """

    entry: RuleEntry
    finding: FindingEntry | None
    anchor: str
    shared: str | None
    final: bool

    @cached_property
    def blocks(self) -> Sequence[Block]:
        return _blocks(self.entry)

    @property
    def fired(self) -> bool:
        return self.entry.times_fired > 0 or self.entry.status == Status.FIRED

    @property
    def status(self) -> Badge:
        """Its status in its tone; a job that has ended warms up no more: it was too short."""
        status = self.entry.status
        if status != Status.ERROR and self.fired:
            ongoing = status == Status.FIRED if self.finding is None else self.finding.ongoing
            return ("fired", "bad") if ongoing or self.final else ("fired, over", "warn")
        if self.final and status == Status.WARMING_UP:
            return "too short", "idle"
        return STATUSES.get(status, (shown_name(status.lower(), 24), "idle"))

    @property
    def severity(self) -> Badge | None:
        severity = self.entry.severity if self.finding is None else self.finding.severity
        return None if severity is None else severity_badge(severity)

    @property
    def parameters(self) -> list[tuple[str, str, bool]]:
        entry = self.entry
        shown = [
            (name, _setting(entry.rule, name, value), name in entry.changed)
            for name, value in entry.parameters.items()
            if value is not None and (name not in UNSHOWN or name in entry.changed)
        ]
        return sorted(shown, key=lambda item: not item[2])

    @property
    def measured(self) -> float | None:
        """The value of the episodes furthest from the threshold; without any what it measured last."""
        episodes = [] if self.finding is None else self.finding.episodes
        measured = [each.measured for each in episodes if each.measured is not None]
        threshold = self.entry.threshold or 0.0
        return max(measured, key=lambda value: abs(value - threshold), default=self.entry.measured)

    @property
    def has_section(self) -> bool:
        return bool(self.blocks) or self.fired

    @property
    def title(self) -> str:
        return spec_of(self.entry.rule).title or self.entry.rule

    @property
    def is_open(self) -> bool:
        """Whether its section is shown without a click: what fired, and what only informs."""
        return self.fired or spec_of(self.entry.rule).informs_only or self.entry.status == Status.ERROR

    @property
    def applies(self) -> bool:
        return self.fired or self.entry.status not in NOT_JUDGING

    @property
    def reason(self) -> str:
        return self.entry.reason if self.finding is None else self.finding.reason

    @property
    def advice(self) -> str | None:
        """What to do, or to know; None where the reason says all."""
        advice = self.entry.recommendation if self.finding is None else self.finding.advice or self.entry.recommendation
        return None if advice == self.reason else advice

    @property
    def advice_title(self) -> str:
        return "What to do" if self.fired else "Good to know"

    @property
    def episodes(self) -> int:
        if self.finding is None or not self.finding.episodes:
            return self.entry.times_fired
        return len(self.finding.episodes) + self.finding.earlier_episodes

    @property
    def threshold_unit(self) -> str | None:
        """The unit as it stands at the threshold, below what was measured: a long one is not written twice."""
        unit = self.entry.unit
        return unit if unit is not None and len(unit) <= SHORT_UNIT else None


def severity_badge(severity: str) -> Badge:
    return severity, SEVERITIES.get(severity, "idle")


def shown_rules(report: Report) -> list[ShownRule]:
    """Return the rules in the report's order; one whose name is anybody's has its number as its anchor."""
    findings = {finding.rule: finding for finding in report.findings}
    shared = shared_loss(report)
    return [
        ShownRule(
            entry=entry,
            finding=findings.get(entry.rule),
            anchor=f"rule-{entry.rule if entry.rule in _OWN else place + 1}",
            shared=shared.get(entry.rule),
            final=report.final,
        )
        for place, entry in enumerate(report.rules)
    ]


def _setting(rule: str, name: str, value: Parameter) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    written = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    known = spec_of(rule).parameters.get(name)
    return written if known is None else f"{written} {known.unit}".strip()


def shared_loss(report: Report) -> dict[str, str]:
    """Say for each finding that shares its loss with others how that is counted in the verdict."""
    alt: dict[str, str] = {}
    for finding in report.findings:
        if finding.explained_by is None or finding.wasted_share is None:
            continue
        reasons = [*finding.reasons] or [finding.explained_by]
        alt[finding.rule] = f"as the loss of {listed(reasons)}, which {'is' if len(reasons) == 1 else 'are'} its cause"
        for cause in reasons:
            alt.setdefault(cause, f"with what it explains of {finding.rule}: one loss, seen from two sides")
    return alt


@cache
def writer_of(place: str) -> Writer:
    """Return what writes a section, from its place in a rule's spec: ``module:function``."""
    module, _, function = place.partition(":")
    write: Writer = getattr(import_module(module), function)
    return write


def _blocks(entry: RuleEntry) -> list[Block]:
    """Details of an unknown shape are listed as they are; a node without any is passed over."""
    entry = replace(entry, details={name: held for name, held in entry.details.items() if held != {}})
    place = spec_of(entry.rule).section if entry.rule in _OWN else None
    if place is None:
        return listed_details(entry.details)
    try:
        shown = writer_of(place)(entry)
        if not entry.nodes_left_out:
            return shown
        more = counted(entry.nodes_left_out, "node")
        return [*shown, Note(f"In profiler-reports/{entry.rule}.json only: {more} more.")]
    except (msgspec.MsgspecError, ValueError, ArithmeticError):
        return listed_details(entry.details)


FACTS_AT_MOST = 48
DEPTH_AT_MOST = 8


def listed_details(details: object) -> list[Block]:
    """Return the first values of the details under their paths; nothing when there are none."""
    facts: list[tuple[str, Cell]] = []
    for path, value in _leaves(details, ()):
        if len(facts) == FACTS_AT_MOST:
            return [Facts(facts), Note("More is in report.json.")]
        facts.append((" / ".join(path) or "value", value))
    return [Facts(facts)] if facts else []


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping) and len(path) < DEPTH_AT_MOST:
        for key, each in value.items():
            yield from _leaves(each, (*path, shown_name(str(key), 40)))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield path, f"{len(value):,} values"
    else:
        yield path, _written(value)


def _written(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return shown_name(str(value), 160)
