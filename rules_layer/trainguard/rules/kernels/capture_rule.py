"""What a rule over kernel profiles is in a job: it judges the newest capture by the verdict on it.

The conditions and thresholds are those of `trainguard.kernels.findings` and `trainguard.kernels.ranks`, which see the
traces. A rule fires where its condition holds on a rank with normal confidence.
"""

from dataclasses import replace

from trainguard.finding import Severity
from trainguard.kernels.captures.verdict import CaptureVerdict, RuleVerdict
from trainguard.records import Status
from trainguard.rules.protocol import Rule, RuleParameters
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import counted

FRAMEWORK, TRACES, GAIN_SHARE = "framework", "traces", "gain_share"
"""Facts of a capture in the rows of its rules; the last one, the most that can be won, in those that fire."""

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
            return RuleResult(Status.WAITING_FOR_DATA, "No capture was judged yet.")
        result = self._judged(verdict)
        about: dict[str, float | int | str | None] = {TRACES: verdict.traces}
        if verdict.framework:
            about[FRAMEWORK] = verdict.framework
        found = verdict.of(self.name) if result.status is Status.FIRED else None
        return replace(result, about=about if found is None else {**about, GAIN_SHARE: round(found.gain_share, 4)})

    def _judged(self, verdict: CaptureVerdict) -> RuleResult:
        found = verdict.of(self.name)
        if found is None:
            return self._silent(verdict)
        if self.spec.informs_only:
            return RuleResult(Status.OK, found.summary, data_points=verdict.traces)
        if not found.sure:
            many = counted(found.unsure, "rank")
            why = "files that are cut off, too few steps" if verdict.cut else "too few steps"
            reason = f"On {many} with low confidence, from {why} or only the first or last one: {found.summary}"
            return RuleResult(Status.WARMING_UP, reason, data_points=verdict.traces)
        return RuleResult(
            Status.FIRED,
            _where(found, verdict) + found.summary,
            measured=found.value,
            threshold=found.threshold,
            worst=found.ranks[0] if found.ranks else None,
            data_points=verdict.traces,
            advice=found.recommendation + _explained(found),
            score=score_of(found),
            details={"capture": verdict.capture, "ranks": found.sure, **_proofs(found)},
        )

    def _silent(self, verdict: CaptureVerdict) -> RuleResult:
        if not verdict.judged:
            return RuleResult(Status.WARMING_UP, unjudged(verdict), data_points=verdict.traces)
        many = counted(verdict.judged, "rank")
        cut = f" {_cut(verdict)}" if verdict.cut else ""
        reason = f"It does not hold on {many} of the newest capture.{cut}"
        return RuleResult(Status.OK, reason, data_points=verdict.traces)


def unjudged(verdict: CaptureVerdict) -> str:
    """Say why a capture could not be judged."""
    if verdict.traces and verdict.unread == verdict.traces:
        name, why = next(iter(verdict.unread_why.items()), ("", "nobody knows why"))
        return f"None of {counted(verdict.traces, 'trace')} of the newest capture could be read; {name}: {why}."
    if verdict.cut:
        return f"The newest capture has no whole trace. {_cut(verdict)} Copy whole files."
    return (
        f"The newest capture has no trace with a GPU's work in 3 steps or more ({counted(verdict.traces, 'trace')}, "
        f"{counted(verdict.steps, 'step')}). Profile 3 to 10 steps."
    )


def _cut(verdict: CaptureVerdict) -> str:
    """Say that a capture is judged in part."""
    files = "1 trace ends" if verdict.cut == 1 else f"{verdict.cut:,} traces end"
    return f"It is judged in part: {files} early."


def score_of(found: RuleVerdict) -> float:
    """Return a score from 0 to 100 within the severity's level, which grows with what can be won."""
    least, most = _SCORES.get(found.severity, _CRITICAL)
    return least + (most - least) * min(max(found.gain_share, 0.0), 1.0)


def _where(found: RuleVerdict, verdict: CaptureVerdict) -> str:
    if verdict.traces - verdict.unread < 2 or not found.ranks:
        return ""
    if found.sure == 1:
        return f"On {found.ranks[0]}: "
    named = ", ".join(found.ranks[:3]) + (", …" if found.sure > 3 else "")
    return f"On {found.sure:,} of {verdict.traces - verdict.unread:,} ranks ({named}), at worst: "


def _explained(found: RuleVerdict) -> str:
    if found.gain_ns_per_step <= 0:
        return ""
    won = f"{100 * found.gain_share:.1f} % of the time, {found.gain_ns_per_step / 1e6:,.3f} ms a step"
    return f" It explains {won}."


def _proofs(found: RuleVerdict) -> dict[str, object]:
    return {
        "evidence": [
            {"what": each.what, "duration_ns": each.duration_ns, "count": each.count, "step": each.step}
            for each in found.evidence
        ],
        "gain_ns_per_step": found.gain_ns_per_step,
        "gain_share": found.gain_share,
    }
