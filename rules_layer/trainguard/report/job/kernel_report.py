"""The kernel part of a report, from the state of the job's captures."""

from trainguard.core.units import counted, listed
from trainguard.engine.kernels.session import CaptureStreams
from trainguard.kernels.captures.keys import DOCUMENT, KERNELS, PAGE
from trainguard.kernels.captures.verdict import CaptureVerdict
from trainguard.kernels.rules.registry import SPECS
from trainguard.kernels.rules.rule import unjudged
from trainguard.kernels.words import explained
from trainguard.report.document import KernelReport
from trainguard.report.evaluated_job import EvaluatedJob

_NAMED = 3
_CAUSES = 2


def kernel_report(judged: EvaluatedJob) -> KernelReport | None:
    """Return what a report shows of the newest capture; None before the first verdict."""
    family = judged.streams.families.get(KERNELS)
    stream = family.stream if isinstance(family, CaptureStreams) else None
    if stream is None or stream.state.verdict is None:
        return None
    return KernelReport(
        verdict=stream.state.verdict,
        sentence=sentence_of(stream.state.verdict),
        page=PAGE,
        document=DOCUMENT,
        captures=stream.state.captures,
        waits=any(record.pending for record in judged.streams.records.values() if record.key.family == KERNELS),
    )


def sentence_of(verdict: CaptureVerdict) -> str:
    """Return how a capture is in at most three sentences."""
    if not verdict.judged:
        return unjudged(verdict)
    busy = "" if verdict.busy_share is None else f" were busy {100.0 * verdict.busy_share:.1f} % of the window"
    text = [f"The GPUs of {counted(verdict.traces - verdict.unread, 'trace')}{busy}."]
    sure = [each for each in verdict.rules if each.sure and not SPECS[each.rule].informs_only]
    if not sure:
        return f"{text[0]} No rule fired."
    named = [each.rule.rpartition("/")[2] for each in sure]
    text.append(f"{counted(len(sure), 'rule')} fired: {listed(named, _NAMED)}.")
    text += [explained(each.rule, each.gain_ns_per_step, each.gain_share) for each in sure[:_CAUSES]]
    return " ".join(sentence for sentence in text if sentence)
