"""What a rule over kernel profiles is in a job: it judges the newest capture by the verdict on it.

The conditions and thresholds are those of `trainguard.kernels.findings` and `trainguard.kernels.ranks`, which see the
traces. A rule fires where its condition holds on a rank with normal confidence.
"""

from collections.abc import Sequence

import msgspec

from trainguard.finding import MOST_FACTS, Fact, Severity
from trainguard.kernels.captures.verdict import CaptureVerdict, RuleVerdict
from trainguard.kernels.findings.finding import FEW_STEPS
from trainguard.records import Status
from trainguard.rules.kernels.capture_text import CaptureKind, text
from trainguard.rules.protocol import Rule, RuleParameters
from trainguard.rules.rule_result import RuleResult

FRAMEWORK, TRACES, GAIN_SHARE = "framework", "traces", "gain_share"
"""Facts of a capture; the last one, the most that can be won, is there where a rule fires."""

NAMED = 2
"""So many ranks are named."""

_SCORES = {Severity.LOW: (0.0, 9.9), Severity.MEDIUM: (10.0, 24.9), Severity.HIGH: (25.0, 49.9)}
_CRITICAL = (50.0, 100.0)


class CaptureRuleParameters(RuleParameters, frozen=True, kw_only=True):
    """The rules have no parameters of their own."""


class CaptureRule(Rule[CaptureRuleParameters]):
    """A rule over captures: its spec is all that one differs in; one that only informs never fires."""

    parameters_type = CaptureRuleParameters

    def clear_after_s(self, parameters: CaptureRuleParameters, interval_s: float) -> float:
        """Return 0: the first capture without the condition ends an episode."""
        del parameters, interval_s
        return 0.0

    def judge(self, verdict: CaptureVerdict | None) -> RuleResult:
        """Say what the newest capture means for the rule."""
        if verdict is None:
            return RuleResult.of(text, Status.WAITING_FOR_DATA, CaptureKind.NO_CAPTURE)
        found = verdict.of(self.name)
        if found is None:
            return _silent(verdict)
        facts = (*found.facts, *_of_capture(verdict))
        if self.spec.informs_only:
            return RuleResult.of(text, Status.OK, found.kind, facts, data_points=verdict.traces)
        if not found.sure:
            unsure = Fact(name="unsure_ranks", value=found.unsure)
            kept = bounded(found.facts, (unsure, *_of_capture(verdict)))
            return RuleResult.of(text, Status.WARMING_UP, found.kind, kept, data_points=verdict.traces)
        return RuleResult.of(
            text,
            Status.FIRED,
            found.kind,
            bounded(found.facts, (*_won(found), *_where(found, verdict), *_of_capture(verdict), *_evidence(found))),
            measured=found.value,
            threshold=found.threshold,
            worst=found.ranks[0] if found.ranks else None,
            data_points=verdict.traces,
            score=score_of(found),
            details={"capture": verdict.capture, "ranks": found.sure, **_proofs(found)},
        )


def bounded(facts: Sequence[Fact], others: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return facts of a finding and others of its capture: no more than a result has."""
    return (*facts, *others)[:MOST_FACTS]


def unjudged(verdict: CaptureVerdict) -> str:
    """Say why a capture could not be judged."""
    return _unjudged(verdict).reason


def _silent(verdict: CaptureVerdict) -> RuleResult:
    if not verdict.judged:
        return _unjudged(verdict)
    judged = Fact(name="ranks_judged", value=verdict.judged)
    facts = (judged, *_of_capture(verdict))
    return RuleResult.of(text, Status.OK, CaptureKind.HOLDS_NOT, facts, data_points=verdict.traces)


def _unjudged(verdict: CaptureVerdict) -> RuleResult:
    facts = [*_of_capture(verdict)]
    kind = CaptureKind.TOO_FEW_STEPS
    if verdict.traces and verdict.unread == verdict.traces:
        kind = CaptureKind.UNREAD
        name, why = next(iter(verdict.unread_why.items()), ("", "nobody knows why"))
        facts += [Fact(name="unread_trace", value=name), Fact(name="unread_why", value=why)]
    elif verdict.cut:
        kind = CaptureKind.CUT_OFF
    else:
        facts.append(Fact(name="steps", value=verdict.steps, threshold=FEW_STEPS))
    return RuleResult.of(text, Status.WARMING_UP, kind, tuple(facts), data_points=verdict.traces)


def _of_capture(verdict: CaptureVerdict) -> list[Fact]:
    facts = [Fact(name=TRACES, value=verdict.traces)]
    facts += [Fact(name=FRAMEWORK, value=verdict.framework)] if verdict.framework else []
    return facts + ([Fact(name="cut_traces", value=verdict.cut)] if verdict.cut else [])


def _won(found: RuleVerdict) -> list[Fact]:
    share = Fact(name=GAIN_SHARE, value=round(found.gain_share, 4), unit="share")
    return [share, Fact(name="gain_per_step", value=found.gain_ns_per_step, unit="ns")]


def _where(found: RuleVerdict, verdict: CaptureVerdict) -> list[Fact]:
    """Return on which of several ranks it was found; nothing of what is found across them."""
    read = verdict.traces - verdict.unread
    if read < 2 or not found.ranks:
        return []
    counts = [Fact(name="ranks_affected", value=found.sure), Fact(name="ranks_read", value=read)]
    return counts + [Fact(name="rank", value=name) for name in found.ranks[:NAMED]]


def _evidence(found: RuleVerdict) -> list[Fact]:
    return [Fact(name="evidence", value=each.duration_ns, unit="ns", series=each.what) for each in found.evidence]


def score_of(found: RuleVerdict) -> float:
    """Return a score from 0 to 100 within the severity's level, which grows with what can be won."""
    least, most = _SCORES.get(found.severity, _CRITICAL)
    return least + (most - least) * min(max(found.gain_share, 0.0), 1.0)


def _proofs(found: RuleVerdict) -> dict[str, object]:
    return {
        "evidence": [msgspec.to_builtins(each) for each in found.evidence],
        "gain_ns_per_step": found.gain_ns_per_step,
        "gain_share": found.gain_share,
    }
