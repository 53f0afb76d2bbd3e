"""What the rules say about the planted traces, held against the labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tests.support.kernel_traces import read
from tests.verdicts.kernels.faults import FAULTS, STRENGTHS, Fault, damaged, faulty
from tests.verdicts.kernels.healthy import healthy
from tests.verdicts.kernels.machine import Job, traces
from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.join import across_ranks
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.rules.registry import SPECS


@dataclass(frozen=True)
class Judged:
    """A training and the findings that are sure and do not only inform; ``fault`` is None where none is planted."""

    kind: str
    strength: str
    fault: Fault | None
    found: Sequence[KernelFinding]

    @property
    def rule_fires(self) -> bool:
        return self.fault is not None and any(_bare(each) in self.fault.rules for each in self.found)

    @property
    def named(self) -> bool:
        """Whether a right rule fires whose facts or evidence name what the label wants."""
        fault = self.fault
        return fault is not None and any(
            _bare(each) in fault.rules and re.search(fault.names, said(each), re.IGNORECASE) is not None
            for each in self.found
        )

    @property
    def rules(self) -> str:
        return ", ".join(dict.fromkeys(_bare(each) for each in self.found)) or "nothing"


def _bare(finding: KernelFinding) -> str:
    return finding.id.removeprefix("kernels/")


def said(finding: KernelFinding) -> str:
    """Return all that facts and evidence name."""
    facts = [f"{fact.name} {fact.value} {fact.device or ''}" for fact in finding.facts]
    return "\n".join([*facts, *(each.what for each in finding.evidence)])


def findings(job: Job) -> list[KernelFinding]:
    """Return the sure findings on all ranks, and across them."""
    profiles = [rank_profile(read(text, f"rank{at}.json")) for at, text in enumerate(traces(job))]
    across = across_ranks(profiles)
    found = [each for profile in profiles for each in profile.findings] + (across.findings if across else [])
    return [each for each in found if each.confidence == "normal" and not SPECS[each.id].informs_only]


@cache
def judged_faults() -> Sequence[Judged]:
    """Judge each kind at each strength."""
    return [
        Judged(kind, strength, fault, findings(faulty(fault, share, 10 * at + place)))
        for at, (kind, fault) in enumerate(FAULTS.items())
        for place, (strength, share) in enumerate(STRENGTHS.items())
    ]


@cache
def judged_healthy() -> Sequence[Judged]:
    """Judge the trainings without a fault, and those in damaged files."""
    return [Judged(name, "", None, findings(job)) for name, job in (*healthy(), *damaged().items())]


def named_share(found: Sequence[Judged]) -> float:
    return sum(each.named for each in found) / len(found)


def alarms(found: Sequence[Judged]) -> list[str]:
    """Return what is healthy and has a sure finding."""
    return [f"{each.kind}: {each.rules}" for each in found if each.found]


def table() -> str:
    """Return the table by kind and strength, and both goals."""
    found = judged_faults()
    lines = [f"{'fault':42}" + "".join(f"{each:>8}" for each in STRENGTHS)]
    for kind in FAULTS:
        mine = [each for each in found if each.kind == kind]
        marks = "".join(f"{'named' if each.named else 'rule' if each.rule_fires else '-':>8}" for each in mine)
        wrong = "; ".join(f"{each.strength}: {each.rules}" for each in mine if not each.named)
        lines.append(f"{kind:42}{marks}" + (f"   {wrong}" if wrong else ""))
    for strength in STRENGTHS:
        share = named_share([each for each in found if each.strength == strength])
        lines.append(f"{strength}: {share:.1%} named with operator")
    wrong_healthy = alarms(judged_healthy())
    lines.append(f"{len(found)} of {len(FAULTS)} kinds: {named_share(found):.1%} named with operator")
    lines.append(f"{len(judged_healthy())} healthy or damaged: {len(wrong_healthy)} with a sure finding")
    return "\n".join([*lines, *(f"  {each}" for each in wrong_healthy)]) + "\n"
