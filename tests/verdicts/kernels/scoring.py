"""What the rules say about the planted traces, held against the labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.verdicts.kernels.faults import FAULTS, STRENGTHS, Fault, damaged, faulty
from tests.verdicts.kernels.forms import FORMS
from tests.verdicts.kernels.forms import STRENGTHS as FEWER
from tests.verdicts.kernels.healthy import healthy
from tests.verdicts.kernels.held_out import HELD_OUT, held_out
from tests.verdicts.kernels.held_out_models import TRAININGS
from tests.verdicts.kernels.machine import Job, Recording, recordings
from trainguard.core.errors import KernelTraceError
from trainguard.kernels.columns import Trace
from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.join import across_ranks
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.kineto import read_trace
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


# The form of the whole set; see `FORMS` for others.
PYTORCH = "PyTorch"

SECOND = "second set"


def findings(job: Job, form: str = PYTORCH) -> list[KernelFinding]:
    """Return the sure findings on all ranks, and across them."""
    with TemporaryDirectory() as folder:
        profiles = [rank_profile(_read(each, form, Path(folder))) for each in recordings(job)]
    across = across_ranks(profiles)
    found = [each for profile in profiles for each in profile.findings] + (across.findings if across else [])
    return [each for each in found if each.confidence == "normal" and not SPECS[each.id].informs_only]


def _read(recording: Recording, form: str, folder: Path) -> Trace:
    if form not in FORMS:
        return read_trace(f"rank{recording.rank}.json", BytesIO(recording.in_pytorch()))
    return FORMS[form].read(recording, folder)


@cache
def judged_faults(form: str = PYTORCH) -> Sequence[Judged]:
    """Judge each kind at each strength, in other forms at fewer."""
    if form == SECOND:
        return [
            Judged(kind, strength, fault, findings(held_out(fault, share, 1_000 + 10 * at + place)))
            for at, (kind, fault) in enumerate(HELD_OUT.items())
            for place, (strength, share) in enumerate(STRENGTHS.items())
        ]
    faults, strengths = (FAULTS, [*STRENGTHS]) if form == PYTORCH else (FORMS[form].faults(), FEWER)
    return [
        Judged(kind, strength, fault, findings(faulty(fault, STRENGTHS[strength], 10 * at + place), form))
        for at, (kind, fault) in enumerate(faults.items())
        for place, strength in enumerate(strengths)
    ]


@cache
def judged_healthy(form: str = PYTORCH) -> Sequence[Judged]:
    """Judge the trainings without a fault, and those in damaged files; in other forms those on its GPUs."""
    if form == SECOND:
        return [Judged(name, "", None, findings(each.job(7))) for name, each in TRAININGS.items()]
    jobs = dict((*healthy(), *damaged().items()))
    if form != PYTORCH:
        jobs = {name: job for name, job in jobs.items() if job.gpu.is_amd is FORMS[form].is_amd}
    return [Judged(name, "", None, _unless_unread(job, form)) for name, job in jobs.items()]


def _unless_unread(job: Job, form: str) -> list[KernelFinding]:
    """Return the findings; none where the file is so damaged that it is refused."""
    try:
        return findings(job, form)
    except KernelTraceError:
        return []


def named_share(found: Sequence[Judged]) -> float:
    return sum(each.named for each in found) / len(found)


def alarms(found: Sequence[Judged]) -> list[str]:
    """Return what is healthy and has a sure finding."""
    return [f"{each.kind}: {each.rules}" for each in found if each.found]


def table(form: str = PYTORCH) -> str:
    """Return the table of a form by kind and strength, and both goals."""
    found = judged_faults(form)
    strengths = [*dict.fromkeys(each.strength for each in found)]
    kinds = [*dict.fromkeys(each.kind for each in found)]
    lines = [f"{form:42}" + "".join(f"{each:>8}" for each in strengths)]
    for kind in kinds:
        mine = [each for each in found if each.kind == kind]
        marks = "".join(f"{'named' if each.named else 'rule' if each.rule_fires else '-':>8}" for each in mine)
        wrong = "; ".join(f"{each.strength}: {each.rules}" for each in mine if not each.named)
        lines.append(f"{kind:42}{marks}" + (f"   {wrong}" if wrong else ""))
    for strength in strengths:
        share = named_share([each for each in found if each.strength == strength])
        lines.append(f"{strength}: {share:.1%} named with operator")
    wrong_healthy = alarms(judged_healthy(form))
    lines.append(f"{len(found)} of {len(kinds)} kinds: {named_share(found):.1%} named with operator")
    lines.append(f"{len(judged_healthy(form))} healthy or damaged: {len(wrong_healthy)} with a sure finding")
    return "\n".join([*lines, *(f"  {each}" for each in wrong_healthy)]) + "\n"
