"""What a late rank explains of the others' communication: they wait for it in their collectives."""

from collections.abc import Sequence

from msgspec.structs import replace

from trainguard.kernels.findings.finding import FAMILY, Gain, KernelFinding
from trainguard.kernels.ranks.entries import AcrossRanks

LATE_RANK = FAMILY + "LateRank"
EXPOSED = FAMILY + "ExposedCommunication"


def beside_late_rank(findings: Sequence[KernelFinding], across: AcrossRanks | None) -> list[KernelFinding]:
    """Return a rank's findings; exposed communication without the wait that a late rank explains."""
    found = [] if across is None else across.findings
    late = next((each.gain for each in found if each.id == LATE_RANK and each.confidence == "normal"), None)
    if late is None:
        return list(findings)
    return [_without(each, late) if each.id == EXPOSED else each for each in findings]


def _without(finding: KernelFinding, late: Gain) -> KernelFinding:
    gain = finding.gain
    left = Gain(
        ns_per_step=max(gain.ns_per_step - late.ns_per_step, 0), share=round(max(gain.share - late.share, 0.0), 4)
    )
    return replace(finding, gain=left)
