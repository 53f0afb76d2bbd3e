"""The sections of a page: every rule that has something to show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import msgspec
from msgspec.structs import replace

from trainguard.records import Status
from trainguard.report.document import FindingEntry, Report, RuleEntry
from trainguard.report.html.blocks import Block, Note
from trainguard.report.html.sections import fallback
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import OWN_NAMES, spec_of
from trainguard.rules.units import counted, listed

Writer = Callable[[RuleEntry], list[Block]]
_OWN = frozenset({*OWN_NAMES, PROFILER_REPORT})


@dataclass(frozen=True, slots=True)
class Section:
    """A rule's section; ``is_open`` tells whether it is shown without a click.

    ``shared`` says how the verdict counts what the finding has in common with others.
    """

    entry: RuleEntry
    finding: FindingEntry | None
    title: str
    anchor: str
    blocks: Sequence[Block]
    shared: str | None = None

    @property
    def fired(self) -> bool:
        """Whether the rule has fired, be it over by now."""
        return has_fired(self.entry)

    @property
    def is_open(self) -> bool:
        """Whether the section is shown without a click: what fired, and what only informs."""
        return self.fired or spec_of(self.entry.rule).informs_only or self.entry.status == Status.ERROR


def has_fired(entry: RuleEntry) -> bool:
    """Whether a rule has fired, be it over by now."""
    return entry.times_fired > 0 or entry.status == Status.FIRED


def sections_of(report: Report) -> list[Section]:
    """Return the sections in the report's order of rules; a rule that has nothing to show has none."""
    findings = {finding.rule: finding for finding in report.findings}
    shared = shared_loss(report)
    sections = []
    for number, entry in enumerate(report.rules):
        blocks = _blocks(entry)
        if blocks or has_fired(entry):
            title = spec_of(entry.rule).title or entry.rule
            anchor, finding = anchor_of(entry.rule, number), findings.get(entry.rule)
            sections.append(Section(entry, finding, title, anchor, blocks, shared.get(entry.rule)))
    return sections


def shared_loss(report: Report) -> dict[str, str]:
    """Say of each finding that shares its loss with others how that is counted in the verdict."""
    said: dict[str, str] = {}
    for finding in report.findings:
        if finding.explained_by is None or finding.wasted_share is None:
            continue
        reasons = [*finding.reasons] or [finding.explained_by]
        said[finding.rule] = f"as the loss of {listed(reasons)}, which {'is' if len(reasons) == 1 else 'are'} its cause"
        for cause in reasons:
            said.setdefault(cause, f"with what it explains of {finding.rule}: one loss, seen from two sides")
    return said


def anchor_of(rule: str, number: int) -> str:
    """Return where a rule is on the page: by its name, or by its number where the name is anybody's."""
    return f"rule-{rule}" if rule in _OWN else f"rule-{number + 1}"


@cache
def writer_of(place: str) -> Writer:
    """Return what writes a section, from its place in a rule's spec: ``module:function``."""
    module, _, function = place.partition(":")
    write: Writer = getattr(import_module(module), function)
    return write


def _blocks(entry: RuleEntry) -> list[Block]:
    """Return what a section shows; details of a shape that it does not know are listed as they are.

    A node of which a rule has nothing to tell is passed over.
    """
    entry = replace(entry, details={name: held for name, held in entry.details.items() if held != {}})
    place = spec_of(entry.rule).section if entry.rule in _OWN else None
    if place is None:
        return fallback.blocks(entry.details)
    try:
        shown = writer_of(place)(entry)
        return shown if not entry.nodes_left_out else [*shown, _left_out(entry)]
    except (msgspec.MsgspecError, ValueError, ArithmeticError):
        return fallback.blocks(entry.details)


def _left_out(entry: RuleEntry) -> Note:
    more = counted(entry.nodes_left_out, "node")
    return Note(f"In profiler-reports/{entry.rule}.json only: {more} more.")
