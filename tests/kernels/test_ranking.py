"""The order of findings: causes before symptoms, by what they win alone, the same wherever they are shown."""

from pathlib import Path

from tests.support.kernel_faults import LOADER, STEP, steps
from tests.support.kernel_traces import BF16_GEMM, TraceWriter, judged
from trainguard.core.finding import Severity
from trainguard.kernels.captures.capture import rule_verdicts
from trainguard.kernels.document import KernelProfiles, encode_profiles
from trainguard.kernels.listing import listed, read_document
from trainguard.kernels.ranking import is_symptom, place_of
from trainguard.report.html.kernels.verdict import shown_findings, shown_verdict
from trainguard.rules.family_rules import KERNELS


def ordered(*found: tuple[str, bool, float, Severity]) -> list[str]:
    keys = {rule: place_of(rule, sure=sure, gain_share=gain, severity=level) for rule, sure, gain, level in found}
    return sorted(keys, key=lambda rule: keys[rule])


def test_a_symptom_stands_behind_each_sure_cause_that_wins() -> None:
    assert ordered(
        ("kernels/TraceQuality", True, 0.0, Severity.LOW),
        ("kernels/GpuBusyLow", True, 0.5, Severity.HIGH),
        ("kernels/GpuMemoryFull", True, 0.0, Severity.HIGH),
        ("kernels/LaunchBound", False, 0.9, Severity.MEDIUM),
        ("kernels/PageableCopy", True, 0.01, Severity.LOW),
        ("kernels/SyncStall", True, 0.09, Severity.MEDIUM),
    ) == [
        *("kernels/SyncStall", "kernels/PageableCopy", "kernels/GpuBusyLow", "kernels/GpuMemoryFull"),
        *("kernels/LaunchBound", "kernels/TraceQuality"),
    ]


def test_two_rules_find_symptoms_and_two_inform() -> None:
    named = [rule.removeprefix("kernels/") for rule in KERNELS.names]
    last = {rule: place_of(rule, sure=True, gain_share=0.0, severity=None)[0] for rule in (*named, "Unknown")}
    assert [rule for rule in named if is_symptom(rule)] == ["GpuBusyLow", "GpuGap"]
    assert [rule for rule, informs in last.items() if informs] == ["QueueFull", "TraceQuality"]
    assert is_symptom("kernels/GpuGap")
    assert not is_symptom("kernels/Unknown")


def starved(made: TraceWriter, start: float) -> None:
    """The host waits half of the step for data, and launches the rest slowly."""
    made.event("user_annotation", LOADER, start, STEP / 2)
    for place in range(100):
        begin = start + STEP / 2 + STEP / 200 * place
        made.kernel(BF16_GEMM, begin + 6, STEP / 200 * 0.3, launch=begin, call=5)


def test_the_order_is_the_same_everywhere(tmp_path: Path) -> None:
    """As of starved in a recording of an H200: the wait for data first, then launches, then that the GPU is idle."""
    rank = judged(steps(starved).text())
    document = KernelProfiles(source="here", ranks=[rank], unread={})
    line = listed(read_document(encode_profiles(document)), place="x", document="x", page=None, changed_s=1.8e9)
    names = [finding.id.removeprefix("kernels/") for finding in rank.findings]
    assert names[:2] == ["LoaderBound", "LaunchBound"]
    assert [each.rule.removeprefix("kernels/") for each in rule_verdicts([rank], None)] == names
    shown = shown_findings([rank], [rank])
    assert [each["rule"] for each in shown] == names
    assert line.findings == [name for name in names if name != "TraceQuality"]
    assert "LoaderBound: " in shown_verdict(document, shown)[1].split(". ")[2]
    assert sum(finding.gain.share for finding in rank.findings) <= 1.0
