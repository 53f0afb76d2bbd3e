"""The rules on the page: a line each, and a section for each that has something to show."""

from collections.abc import Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

import msgspec
from msgspec.structs import replace

from trainguard.core.records import Status
from trainguard.core.units import counted, listed
from trainguard.render.blocks import Block, Cell, Facts, Note
from trainguard.render.numbers import NOTHING, number, shown_name
from trainguard.render.rule_entry import Parameter, RuleEntry
from trainguard.report.document import FindingEntry, Report
from trainguard.report.html.page import Badge
from trainguard.rules.parameters import UNSHOWN
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import OWN_NAMES, spec_of

_OWN = frozenset({*OWN_NAMES, PROFILER_REPORT})


STATUSES: Mapping[str, Badge] = {
    Status.FIRED: ("fired", "bad"),
    Status.ERROR: ("error", "bad"),
    Status.OK: ("ok", "ok"),
    Status.WARMING_UP: ("warming up", "idle"),
    Status.WAITING_FOR_DATA: ("no data yet", "idle"),
    Status.NOT_APPLICABLE: ("not applicable", "idle"),
    Status.DISABLED: ("disabled", "idle"),
}
NOT_JUDGING = frozenset({Status.NOT_APPLICABLE, Status.DISABLED})
SHORT_UNIT = 6


# A rule as templates read it.
#
# ``entry`` and ``finding`` are the report's; ``anchor`` is where its section is, else its line. ``fired`` is whether it
# has fired, be it over by now; ``has_section`` whether there is more of it than a line, ``is_open`` whether that is
# shown without a click, and ``applies`` whether the rule could find something in this job.
ShownRule = Mapping[str, Any]


def shown_rules(report: Report) -> list[ShownRule]:
    """Return the rules in the report's order; one whose name is anybody's has its number as its anchor."""
    findings = {finding.rule: finding for finding in report.findings}
    shared = shared_loss(report)
    return [
        {
            "anchor": f"rule-{entry.rule if entry.rule in _OWN else place + 1}",
            # How a loss that it shares with others is counted.
            "shared": shared.get(entry.rule),
            **_shown(entry, findings.get(entry.rule), final=report.final),
        }
        for place, entry in enumerate(report.rules)
    ]


def _shown(entry: RuleEntry, finding: FindingEntry | None, *, final: bool) -> dict[str, Any]:
    spec, blocks = spec_of(entry.rule), _blocks(entry)
    fired = entry.times_fired > 0 or entry.status == Status.FIRED
    severity = entry.severity if finding is None else finding.severity
    reason = entry.reason if finding is None else finding.reason
    advice = entry.recommendation if finding is None else finding.advice or entry.recommendation
    episodes = [] if finding is None else finding.episodes
    measured = [each.measured for each in episodes if each.measured is not None]
    threshold = entry.threshold or 0.0
    return {
        "entry": entry,
        "finding": finding,
        "blocks": blocks,
        "fired": fired,
        "status": _status(entry, finding, fired=fired, final=final),
        "severity": severity,
        "parameters": _parameters(entry),
        # The value of the episodes furthest from the threshold; without any what it measured last.
        "measured": max(measured, key=lambda value: abs(value - threshold), default=entry.measured),
        "has_section": bool(blocks) or fired,
        "title": spec.title or entry.rule,
        "is_open": fired or spec.informs_only or entry.status == Status.ERROR,
        "applies": fired or entry.status not in NOT_JUDGING,
        "reason": reason,
        "advice": None if advice == reason else advice,
        "advice_title": "What to do" if fired else "Good to know",
        "episodes": entry.times_fired if finding is None or not episodes else len(episodes) + finding.earlier_episodes,
        # A long unit is not written twice.
        "threshold_unit": entry.unit if entry.unit is not None and len(entry.unit) <= SHORT_UNIT else None,
    }


def _status(entry: RuleEntry, finding: FindingEntry | None, *, fired: bool, final: bool) -> Badge:
    """Return the status in its tone; a job that has ended warms up no more: it was too short."""
    if entry.status != Status.ERROR and fired:
        ongoing = entry.status == Status.FIRED if finding is None else finding.ongoing
        return ("fired", "bad") if ongoing or final else ("fired, over", "warn")
    if final and entry.status == Status.WARMING_UP:
        return "too short", "idle"
    return STATUSES.get(entry.status, (shown_name(entry.status.lower(), 24), "idle"))


def _parameters(entry: RuleEntry) -> list[tuple[str, str, bool]]:
    """Return name and value of each parameter, and whether it is changed; changed ones come first."""
    shown = [
        (name, _setting(entry.rule, name, value), name in entry.changed)
        for name, value in entry.parameters.items()
        if value is not None and (name not in UNSHOWN or name in entry.changed)
    ]
    return sorted(shown, key=lambda item: not item[2])


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


def _blocks(entry: RuleEntry) -> list[Block]:
    """Details of an unknown shape are listed as they are; a node without any is passed over."""
    entry = replace(entry, details={name: held for name, held in entry.details.items() if held != {}})
    place = spec_of(entry.rule).section if entry.rule in _OWN else None
    if place is None:
        return listed_details(entry.details)
    try:
        shown: list[Block] = resolve_name(place)(entry)
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
