"""Rules over kernel profiles, and their words; in a job one fires where it holds on a rank with normal confidence."""

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal

import msgspec

from trainguard.core.finding import MOST_FACTS, Fact, Severity, Status
from trainguard.core.units import counted
from trainguard.kernels.entries import Evidence, Gain, KernelFinding
from trainguard.kernels.rules.finding import FAMILY, FEW_STEPS, Judged, percent
from trainguard.kernels.rules.thresholds import shown_thresholds
from trainguard.kernels.times.gpu_times import GpuPart, GpuTime
from trainguard.kernels.times.intervals import Spans
from trainguard.kernels.verdict import CaptureVerdict, RuleVerdict
from trainguard.ledger.bucket import Bucket
from trainguard.rules.protocol import Rule, RuleParameters
from trainguard.rules.rule_result import FactSheet, Measure, RuleResult, Words
from trainguard.rules.spec import RuleSpec, Symptom

SHARE, MILLISECONDS, MICROSECONDS = "share", "ms", "us"


class CaptureKind(StrEnum):
    """Outcomes of a rule without a finding; a finding's kind is that of a `Saying`."""

    NO_CAPTURE = "no_capture"
    HOLDS_NOT = "holds_not"
    UNREAD = "unread"
    CUT_OFF = "cut_off"
    WORK_LOST = "work_lost"
    TOO_FEW_STEPS = "too_few_steps"
    NO_MEMORY = "no_memory"


@dataclass(frozen=True, slots=True)
class Saying:
    """The words on one kind of finding, which no two rules share.

    ``summary`` is a template of facts by name, shares as percentages; in ``advice`` facts named ``remedy`` stand for
    it. ``clause`` is in the past tense, for a report's first sentence; empty of what never fires.
    """

    kind: str
    summary: str | Callable[[FactSheet], str]
    advice: str
    clause: str = ""


SAYINGS: dict[str, Saying] = {}
"""By kind: each rule adds its own when it is defined."""


def portion(name: str, value: float, threshold: float | None = None, device: str | None = None) -> Fact:
    return Fact(name=name, value=round(value, 4), unit=SHARE, threshold=threshold, device=device)


def milliseconds(name: str, value_ns: float, threshold_ns: float | None = None) -> Fact:
    threshold = None if threshold_ns is None else round(threshold_ns / 1e6, 3)
    return Fact(name=name, value=round(value_ns / 1e6, 3), unit=MILLISECONDS, threshold=threshold)


def words(kind: str, facts: Sequence[Fact]) -> tuple[str, str]:
    saying, sheet = SAYINGS[kind], FactSheet(Status.FIRED, kind, tuple(facts))
    said = saying.summary
    summary = said(sheet) if callable(said) else said.format_map(shown(sheet))
    return summary, " ".join(str(fact.value) for fact in sheet.all("remedy")) or saying.advice


def shown(sheet: FactSheet) -> Mapping[str, Any]:
    return {
        fact.name: percent(float(fact.value)) if fact.unit == SHARE else fact.value for fact in reversed(sheet.facts)
    }


def text(sheet: FactSheet) -> Words:
    if sheet.kind in set(CaptureKind):
        return Words(_SILENT[CaptureKind(sheet.kind)](sheet))
    summary, advice = words(sheet.kind, sheet.facts)
    if sheet.status is Status.OK:
        return Words(summary)
    if sheet.status is not Status.FIRED:
        return Words(_unsure(sheet) + summary)
    reason = ("In an earlier capture: " if sheet.past else "") + _on_ranks(sheet) + summary
    return Words(reason, advice + _explained(sheet), SAYINGS[sheet.kind].clause)


def _unsure(sheet: FactSheet) -> str:
    cut = "files that are cut off, " if sheet.get("cut_traces") else ""
    lost = "traces that lost work of the GPU, " if sheet.get("lost_traces") else ""
    why = f"{cut}{lost}too few steps"
    many = counted(int(sheet.number("unsure_ranks")), "rank")
    return f"On {many} with low confidence, from {why} or only the first or last one: "


def _on_ranks(sheet: FactSheet) -> str:
    affected = sheet.get("ranks_affected")
    if affected is None:
        return ""
    names = [str(fact.value) for fact in sheet.all("rank")]
    number = int(affected.value)
    if number == 1:
        return f"On {names[0]}: "
    named = ", ".join(names) + (", …" if number > len(names) else "")
    return f"On {number:,} of {int(sheet.number('ranks_read')):,} ranks ({named}), at worst: "


def _explained(sheet: FactSheet) -> str:
    gain, share = sheet.number("gain_per_step"), sheet.number("gain_share")
    if gain <= 0:
        return ""
    return f" It explains {100 * share:.1f} % of the time, {gain / 1e6:,.3f} ms a step."


def _holds_not(sheet: FactSheet) -> str:
    ranks = counted(int(sheet.number("ranks_judged")), "rank")
    return f"It does not hold on {ranks} of the newest capture.{_cut(sheet)}"


def _cut(sheet: FactSheet) -> str:
    said = [
        f"{counted(int(fact.value), 'trace')} {one if fact.value == 1 else several}"
        for name, one, several in (
            ("cut_traces", "ends early", "end early"),
            ("lost_traces", "lacks work of the GPU", "lack work of the GPU"),
        )
        if (fact := sheet.get(name)) is not None
    ]
    return f" It is judged in part: {', '.join(said)}." if said else ""


def _unread(sheet: FactSheet) -> str:
    traces = counted(int(sheet.number("traces")), "trace")
    why = f"{sheet.name('unread_trace')}: {sheet.name('unread_why')}"
    return f"None of {traces} of the newest capture could be read; {why}."


def _few(sheet: FactSheet) -> str:
    steps = sheet["steps"]
    traces = counted(int(sheet.number("traces")), "trace")
    return (
        f"The newest capture has no trace with a GPU's work in {steps.threshold:g} steps or more ({traces}, "
        f"{counted(int(steps.value), 'step')}). Profile 3 to 10 steps."
    )


def _no_memory(sheet: FactSheet) -> str:
    del sheet
    return (
        "The newest capture does not say it. Record traces with profile_memory=True; a failed allocation is in memory "
        "snapshots alone, which `trainguard kernels` reads."
    )


_SILENT = {
    CaptureKind.NO_CAPTURE: lambda _: "No capture was judged yet.",
    CaptureKind.HOLDS_NOT: _holds_not,
    CaptureKind.UNREAD: _unread,
    CaptureKind.CUT_OFF: lambda sheet: f"The newest capture has no whole trace.{_cut(sheet)} Copy whole files.",
    CaptureKind.WORK_LOST: lambda sheet: f"The newest capture has no whole trace.{_cut(sheet)} Record it again.",
    CaptureKind.TOO_FEW_STEPS: _few,
    CaptureKind.NO_MEMORY: _no_memory,
}


FRAMEWORK, TRACES, GAIN_SHARE = "framework", "traces", "gain_share"
"""Facts of a capture; the last one, the most that can be won, is there where a rule fires."""

NAMED = 2

ACROSS = "the ranks of the newest capture beside each other"

_SCORES = {Severity.LOW: (0.0, 9.9), Severity.MEDIUM: (10.0, 24.9), Severity.HIGH: (25.0, 49.9)}
_CRITICAL = (50.0, 100.0)


class KernelRule(Rule[RuleParameters]):
    """A rule over kernel profiles; its class has its thresholds, and all that is said about it, as attributes.

    A threshold is an attribute with the type `Share`, `Nanoseconds` or `Number`.

    title: Of its section in a report.
    fires_when: Its line in the documentation, a template of its thresholds by their names.
    measure: What ``KernelFinding.value`` is.
    summary, advice, clause: Its words; see `Saying`.
    says: Its kinds of findings, where it has several, or one that is not called as the rule is.
    looks_at, informs_only, symptom, explains, claims: As in `RuleSpec`. ``claims`` are the parts of the ledger that a
        finding explains: a trace divides what utilization leaves open.
    """

    title: ClassVar[str] = ""
    fires_when: ClassVar[str]
    measure: ClassVar[Measure]
    summary: ClassVar[str | Callable[[FactSheet], str]]
    advice: ClassVar[str]
    clause: ClassVar[str] = ""
    says: ClassVar[tuple[Saying, ...]] = ()
    looks_at: ClassVar[str] = "the kernel traces of the newest capture, rank by rank"
    informs_only: ClassVar[bool] = False
    symptom: ClassVar[Symptom | None] = None
    explains: ClassVar[tuple[Symptom, ...]] = ()
    claims: ClassVar[tuple[Bucket, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if cls.title:
            cls.spec = _spec_of(cls)
            if not cls.says:
                kind = re.sub(r"(?<=.)(?=[A-Z])", "_", cls.__name__).lower()
                cls.says = (Saying(kind, cls.summary, cls.advice, cls.clause),)
            SAYINGS.update({saying.kind: saying for saying in cls.says})
        super().__init_subclass__(**kwargs)

    def found(
        self,
        facts: Sequence[Fact],
        *,
        severity: Severity,
        evidence: Sequence[Evidence],
        gain: Gain,
        kind: str = "",
        measured: str = "",
        confidence: Literal["normal", "low"] = "normal",
    ) -> KernelFinding:
        """Return a finding in words; ``measured`` is the fact that the rule is judged by, the first where empty."""
        kind = kind or self.says[0].kind
        judged_by = next(fact for fact in facts if fact.name == measured or not measured)
        summary, recommendation = words(kind, facts)
        return KernelFinding(
            id=self.name,
            severity=severity,
            value=float(judged_by.value),
            threshold=float(judged_by.threshold or 0.0),
            summary=summary,
            evidence=[*evidence],
            gain=gain,
            recommendation=recommendation,
            kind=kind,
            facts=[*facts],
            confidence=confidence,
        )

    clear_s = 0.0
    """The first capture without the condition ends an episode."""

    def judge(self, verdict: CaptureVerdict | None) -> RuleResult:
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
        won = (
            Fact(name=GAIN_SHARE, value=round(found.gain_share, 4), unit="share"),
            Fact(name="gain_per_step", value=found.gain_ns_per_step, unit="ns"),
        )
        evidence = [
            Fact(name="evidence", value=each.duration_ns, unit="ns", series=each.what) for each in found.evidence
        ]
        return RuleResult.of(
            text,
            Status.FIRED,
            found.kind,
            bounded(found.facts, (*won, *_where(found, verdict), *_of_capture(verdict), *evidence)),
            measured=found.value,
            threshold=found.threshold,
            worst=found.ranks[0] if found.ranks else None,
            data_points=verdict.traces,
            score=score_of(found),
            details={
                "capture": verdict.capture,
                "ranks": found.sure,
                "evidence": [msgspec.to_builtins(each) for each in found.evidence],
                "gain_ns_per_step": found.gain_ns_per_step,
                "gain_share": found.gain_share,
            },
        )


def _spec_of(rule: type[KernelRule]) -> RuleSpec:
    fires_when = rule.fires_when.format_map(shown_thresholds(rule))
    return RuleSpec(
        name=FAMILY + rule.__name__,
        family=FAMILY.rstrip("/"),
        title=rule.title,
        looks_at=rule.looks_at,
        fires_when=fires_when,
        condition=fires_when.removeprefix("never: "),
        measures=(rule.measure,),
        counts="captures",
        informs_only=rule.informs_only,
        symptom=rule.symptom,
        explains=rule.explains,
        text=text,
        claims={"": rule.claims} if rule.claims else {},
    )


def bounded(facts: Sequence[Fact], others: Sequence[Fact]) -> tuple[Fact, ...]:
    return (*facts, *others)[:MOST_FACTS]


def without_memory(verdict: CaptureVerdict) -> RuleResult:
    """Return the result of a rule on memory for a capture whose traces do not say it."""
    facts = tuple(_of_capture(verdict))
    return RuleResult.of(text, Status.WARMING_UP, CaptureKind.NO_MEMORY, facts, data_points=verdict.traces)


def unjudged(verdict: CaptureVerdict) -> str:
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
        name, why = next(iter(verdict.unread_why.items()), ("", "the reason is unknown"))
        facts += [Fact(name="unread_trace", value=name), Fact(name="unread_why", value=why)]
    elif verdict.cut:
        kind = CaptureKind.CUT_OFF
    elif verdict.lost:
        kind = CaptureKind.WORK_LOST
    else:
        facts.append(Fact(name="steps", value=verdict.steps, threshold=FEW_STEPS))
    return RuleResult.of(text, Status.WARMING_UP, kind, tuple(facts), data_points=verdict.traces)


def _of_capture(verdict: CaptureVerdict) -> list[Fact]:
    facts = [Fact(name=TRACES, value=verdict.traces)]
    facts += [Fact(name=FRAMEWORK, value=verdict.framework)] if verdict.framework else []
    parts = (("cut_traces", verdict.cut), ("lost_traces", verdict.lost))
    return facts + [Fact(name=name, value=traces) for name, traces in parts if traces]


def _where(found: RuleVerdict, verdict: CaptureVerdict) -> list[Fact]:
    read = verdict.traces - verdict.unread
    if read < 2 or not found.ranks:
        return []
    counts = [Fact(name="ranks_affected", value=found.sure), Fact(name="ranks_read", value=read)]
    return counts + [Fact(name="rank", value=name) for name in found.ranks[:NAMED]]


def score_of(found: RuleVerdict) -> float:
    """Return a score from 0 to 100 within the severity's level, which grows with what can be won."""
    least, most = _SCORES.get(found.severity, _CRITICAL)
    return least + (most - least) * min(max(found.gain_share, 0.0), 1.0)


class RankRule(KernelRule):
    """A rule over one rank's trace.

    is_steady: Whether it has to fire without the first and the last step, too; else its confidence is low.
    counts_for: How much of the time that it explains can be won.
    takes: The time of a GPU that the rule fires for, where nothing else decides it.
    """

    is_steady: ClassVar[bool] = True
    counts_for: ClassVar[float] = 1.0
    takes: ClassVar[GpuPart | None] = None

    @abstractmethod
    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Return what is found on a rank; its gain is the most that can be won if it is the only finding."""

    def stretches(self, judged: Judged, gpu: GpuTime) -> Spans:
        """Return when the time of one of the rank's GPUs is what the rule fires for."""
        del judged
        found: Spans = getattr(gpu, self.takes) if self.takes else Spans(gpu.busy.start[:0], gpu.busy.end[:0])
        return found
