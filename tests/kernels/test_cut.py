"""Files that end early: no finding of theirs is sure, and their figures are those of steps that are whole."""

import gzip

import pytest

from tests.support.kernel_traces import BF16_GEMM, TraceWriter, judged, real_profile, real_text
from trainguard.core.records import Status
from trainguard.kernels.captures.capture import is_judged, notes_of, rule_verdicts
from trainguard.kernels.document import KernelProfiles, RankProfile, encode_profiles
from trainguard.kernels.listing import listed, read_document
from trainguard.kernels.rules.registry import KERNEL_RULES
from trainguard.kernels.verdict import CaptureVerdict
from trainguard.report.html.kernels.verdict import shown_findings, shown_verdict


def part(name: str, share: float) -> RankProfile:
    text = real_text(name)
    return judged(text[: int(share * len(text))])


def busy(rank: RankProfile) -> float:
    return rank.busy_ns / rank.window_ns


def verdict(ranks: list[RankProfile]) -> CaptureVerdict:
    """What the stack says about traces; the rest of the verdict does not matter."""
    return CaptureVerdict(
        capture="c", version="1", run="r", folder="f", at=1.8e9, traces=len(ranks),
        judged=sum(is_judged(rank) for rank in ranks), unread=0, unread_why={}, world_size=None,
        steps=max(len(rank.steps) for rank in ranks), gpus=[], busy_share=None, step_ns=None,
        rules=rule_verdicts(ranks, None), notes=notes_of(ranks, None), cut=sum(not is_judged(rank) for rank in ranks),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "share", "steps"),
    [
        ("v100_rank1of2_diff_test", 0.5, None),
        ("v100_rank1of2_diff_test", 0.9, 2),
        ("resnet50_workers0", 0.8, 2),
        ("resnet50_workers0", 0.9, 4),
    ],
)
def test_a_real_trace_that_is_cut_is_judged_in_part(name: str, share: float, steps: int | None) -> None:
    """V100: 96.3 % busy, its rows lie stream by stream. ResNet: 56.6 % busy, all in the order of time."""
    rank, whole = part(name, share), real_profile(name)
    assert {finding.confidence for finding in rank.findings} == {"low"}
    assert (rank.quality.is_whole, rank.quality.damaged) == (steps is not None, ["the text ends within the events (1)"])
    if steps is not None:
        assert (len(rank.steps), rank.quality.steps_lost) == (steps, 6 - steps)
        assert busy(rank) == pytest.approx(busy(whole), abs=0.02)
    results = [rule.judge(verdict([rank])) for rule in KERNEL_RULES if not rule.spec.informs_only]
    assert {result.status for result in results} == {Status.WARMING_UP}
    document = KernelProfiles(source="here", ranks=[rank], unread={})
    line = listed(read_document(encode_profiles(document)), place="x", document="x", page=None, changed_s=1.8e9)
    assert (line.status, line.why) == ("judged in part", "1 trace is cut off")
    said = shown_verdict(document, shown_findings([rank], [rank], None))[1]
    assert "1 trace is cut off, so this is judged in part." in said


def made(steps: int = 6) -> bytes:
    """Steps of one kernel, each launched in its step: host rows first, as PyTorch writes them."""
    trace = TraceWriter()
    for step in range(steps):
        trace.step(step, 1_000.0 * step, 1_000.0)
        trace.kernel(BF16_GEMM, 1_000.0 * step + 20, 970, launch=1_000.0 * step + 5)
    trace.events.sort(key=lambda event: event["cat"] == "kernel")
    return trace.text()


def test_a_step_is_judged_when_all_that_it_launched_is_there() -> None:
    text = made()
    rows = [place for place in range(len(text)) if text.startswith(b'{"ph": "X", "cat": "kernel"', place)]
    rank = judged(text[: rows[4] + 30])
    assert [step.number for step in rank.steps] == [0, 1, 2]
    assert busy(rank) == pytest.approx(0.97)
    assert rank.quality.missing == ["3 steps are not judged, as the file does not hold all of the GPU's work"]
    (quality,) = (finding for finding in rank.findings if finding.id == "kernels/TraceQuality")
    assert quality.recommendation == "Have the profiler end before the job does, and copy the whole file."


def test_a_gzip_stream_that_ends_early_is_a_cut_file_too() -> None:
    rank = judged(gzip.compress(made(400))[:-500])
    assert {finding.confidence for finding in rank.findings} == {"low"}
    assert rank.quality.counts["truncated_gzip"] == 1


def test_a_whole_rank_beside_a_cut_one_is_judged() -> None:
    """The rule that is silent says how many ranks it knows."""
    whole, cut = judged(made()), judged(made()[:-600])
    (rule,) = (rule for rule in KERNEL_RULES if rule.name.endswith("GpuBusyLow"))
    result = rule.judge(verdict([whole, cut]))
    assert result.status is Status.OK
    assert result.reason == (
        "It does not hold on 1 rank of the newest capture. It is judged in part: 1 trace ends early."
    )


def test_advice_fits_what_is_missing() -> None:
    trace = TraceWriter(rank=None)
    trace.kernel(BF16_GEMM, 100, 900, launch=10)
    (quality,) = (each for each in judged(trace.text()).findings if each.id == "kernels/TraceQuality")
    assert quality.recommendation.startswith("Call profiler.step() after each step. Start torch.distributed before")
    assert "with_stack" not in quality.recommendation
