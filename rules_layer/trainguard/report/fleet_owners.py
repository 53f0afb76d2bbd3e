"""What jobs ran and lost by their owners: users, teams and projects, in all and by the week in which jobs began."""

from collections import defaultdict
from collections.abc import Sequence

from trainguard.report.fleet_document import FleetOwner, OwnerWeek
from trainguard.report.fleet_facts import JobFacts
from trainguard.report.fleet_sums import began_in, hours_of, money_of, wasted_share_of, with_findings
from trainguard.settings.owners import OWNER_KINDS

OWNERS_SHOWN = 30
"""Of each kind."""

WEEKS_SHOWN = 8


def owners_by_kind(facts: Sequence[JobFacts]) -> dict[str, list[FleetOwner]]:
    """Return the owners by their kind, those that lost most first; a kind that no job names is missing.

    Jobs without an owner of a kind that others have are one entry without a name, the last of its kind.
    """
    found = {}
    for kind in OWNER_KINDS:
        groups: defaultdict[str | None, list[JobFacts]] = defaultdict(list)
        for each in facts:
            groups[each.job.owners.get(kind)].append(each)
        unnamed = groups.pop(None, [])
        if groups:
            named = sorted(groups, key=lambda name: _waste(name, groups[name]))
            found[kind] = [_owner(kind, name, groups[name]) for name in named]
            found[kind] += [_owner(kind, None, unnamed)] if unnamed else []
    return found


def shown_owners(by_kind: dict[str, list[FleetOwner]]) -> list[FleetOwner]:
    """Return the owners that the document lists; the entry without a name is one of them."""
    shown: list[FleetOwner] = []
    for owners in by_kind.values():
        named = [each for each in owners if each.name is not None]
        shown += named[:OWNERS_SHOWN] + owners[len(named) :]
    return shown


def owner_notes(by_kind: dict[str, list[FleetOwner]], currency: str) -> list[str]:
    """Say what was left out."""
    notes = []
    for kind, owners in by_kind.items():
        rest = [each for each in owners if each.name is not None][OWNERS_SHOWN:]
        if rest:
            lost = money_of(each.lost for each in rest)
            money = "" if lost is None else f" They lost {currency} {lost:,.2f}."
            notes.append(f"{len(rest):,} more {kind}s that lost less than those shown are not listed.{money}")
    return notes


def _waste(name: str | None, facts: Sequence[JobFacts]) -> tuple[float, float, str]:
    lost = sum(each.lost or 0.0 for each in facts)
    return -lost, -sum(each.wasted_hours or 0.0 for each in facts), name or ""


def _owner(kind: str, name: str | None, facts: Sequence[JobFacts]) -> FleetOwner:
    return FleetOwner(
        kind=kind,
        name=name,
        jobs=len(facts),
        with_findings=with_findings(facts),
        instance_hours=hours_of(facts),
        wasted_share=wasted_share_of(facts),
        spent=money_of(each.spent for each in facts),
        lost=money_of(each.lost for each in facts),
        weeks=_weeks(facts),
    )


def _weeks(facts: Sequence[JobFacts]) -> list[OwnerWeek]:
    weeks: defaultdict[str, list[JobFacts]] = defaultdict(list)
    for each in facts:
        monday = began_in(each)
        if monday is not None:
            weeks[monday.date().isoformat()].append(each)
    return [
        OwnerWeek(
            monday=monday,
            jobs=len(weeks[monday]),
            with_findings=with_findings(weeks[monday]),
            spent=money_of(each.spent for each in weeks[monday]),
            lost=money_of(each.lost for each in weeks[monday]),
        )
        for monday in sorted(weeks)[-WEEKS_SHOWN:]
    ]
