"""All that is checked of a job's report."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.claims.claim import Claim, Unknown, Untrue
from tests.claims.context import Raw
from tests.claims.facts import fact_claims
from tests.claims.ledger import ledger_claims
from tests.claims.sentences import finding_claims
from tests.claims.times import episode_claims
from tests.claims.verdict import verdict_claims


@dataclass
class Checked:
    """What came of a job, or of several: how many claims, which are untrue, which nothing checks, or bounds alone."""

    jobs: int = 0
    claims: int = 0
    untrue: list[tuple[str, Untrue]] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Checked") -> None:
        """Add other jobs."""
        self.jobs += other.jobs
        self.claims += other.claims
        self.untrue += other.untrue
        self.unknown += other.unknown


def checked(name: str, raw: Raw, report: dict[str, Any]) -> Checked:
    """Hold what ``report.json`` says about a job against its raw samples and events."""
    return counted(name, _claims(raw, report))


def wrong_facts(raw: Raw, report: dict[str, Any], rule: str) -> list[str]:
    """Return what is untrue of the facts of a rule's findings; the rest of the report is not held again."""
    parameters: dict[str, Any] = next((entry["parameters"] for entry in report["rules"] if entry["rule"] == rule), {})
    findings = [each for each in report["findings"] if each["rule"] == rule]
    claims = (claim for each in findings for claim in fact_claims(raw, each, parameters))
    return [str(claim) for claim in claims if isinstance(claim, Untrue)]


def counted(name: str, claims: Iterable[Claim | None]) -> Checked:
    """Count what came of the claims about a job."""
    found = Checked(jobs=1)
    for claim in claims:
        found.claims += 1
        if isinstance(claim, Untrue):
            found.untrue.append((name, claim))
        elif isinstance(claim, Unknown):
            found.unknown[str(claim)] += 1
    return found


def _claims(raw: Raw, report: dict[str, Any]) -> Iterator[Claim | None]:
    job = raw.job
    parameters = {entry["rule"]: entry["parameters"] for entry in report["rules"]}
    yield from ledger_claims(job, report)
    for finding in report["findings"]:
        yield from episode_claims(job, finding)
        yield from fact_claims(raw, finding, parameters.get(finding["rule"], {}))
        yield from finding_claims(finding, raw)
    yield from verdict_claims(job, report)


def together(parts: Iterable[Checked]) -> Checked:
    """Return what came of several jobs."""
    whole = Checked()
    for part in parts:
        whole.add(part)
    return whole


def table(found: Checked, most: int = 60) -> str:
    """Return jobs, claims, what is unknown and what is untrue as text."""
    number = sum(found.unknown.values())
    kinds = Counter(_kind(claim) for _, claim in found.untrue)
    lines = [
        f"{found.jobs} jobs, {found.claims:,} claims checked, {number} unknown, {len(found.untrue)} untrue",
        *(f"unknown {number:5} {name}" for name, number in found.unknown.most_common(most)),
        *(f"untrue  {number:5} {kind}" for kind, number in kinds.most_common(most)),
        *_examples(found, most),
    ]
    return "\n".join(lines)


def _kind(claim: Untrue) -> str:
    """Return what several untrue claims have in common: the number in a sentence is none of it."""
    name = re.sub(r"[-\d.,:]+", "#", claim.claim.partition(" = ")[0].partition("(")[0])
    return f"{claim.where}: {name}"


def _examples(found: Checked, most: int) -> list[str]:
    """Return two untrue claims of each kind."""
    shown: Counter[str] = Counter()
    lines = []
    for name, claim in found.untrue:
        shown[_kind(claim)] += 1
        if shown[_kind(claim)] <= 2:
            lines.append(f"  {name}: {claim}")
    return lines[:most]
