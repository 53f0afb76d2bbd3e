"""Rules over kernel profiles; in a job one fires where it holds on a rank with normal confidence."""

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from trainguard.core.finding import MOST_FACTS, Fact, Severity, Status
from trainguard.core.units import show_number
from trainguard.kernels.entries import Evidence, Gain, KernelFinding
from trainguard.kernels.rules.finding import FAMILY, FEW_STEPS, JudgedRank
from trainguard.kernels.rules.text import SHARE, SNAPSHOTS, UNREAD_SNAPSHOTS, CaptureKind, Saying, silence, text, words
from trainguard.kernels.times.gpu_times import GpuPart, TraceGpuTime
from trainguard.kernels.times.intervals import Spans
from trainguard.kernels.verdict import CaptureVerdict, RuleVerdict, SnapshotVerdict
from trainguard.ledger.bucket import Bucket
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import Rule, RuleParameters
from trainguard.rules.rule_result import FactSheet, Measure, RuleResult, Words
from trainguard.rules.spec import RuleSpec, Symptom

Share = Annotated[float, "share"]
Nanoseconds = Annotated[int, "ns"]
# Types of thresholds with their units; a number is how many, or how many times as much.
Number = Annotated[float, "number"]


def shown_thresholds(rule: type) -> dict[str, str]:
    """Return the thresholds of a rule's class as people read them, by name: ``70 %``, ``10 us``, ``1,024``."""
    units = {name: getattr(kind, "__metadata__", ()) for name, kind in get_annotations(rule).items()}
    return {name: _shown(getattr(rule, name), unit[0]) for name, unit in units.items() if unit}


def _shown(value: Any, unit: str) -> str:
    if unit == "share":
        return f"{show_number(100 * value)} %"
    if unit == "ns":
        return f"{show_number(value / 1e6)} ms" if value >= 1_000_000 else f"{show_number(value / 1e3)} us"
    return show_number(value)


MILLISECONDS, MICROSECONDS = "ms", "us"


def portion(name: str, value: float, threshold: float | None = None, device: str | None = None) -> Fact:
    return Fact(name=name, value=round(value, 4), unit=SHARE, threshold=threshold, device=device)


def milliseconds(name: str, value_ns: float, threshold_ns: float | None = None) -> Fact:
    threshold = None if threshold_ns is None else round(threshold_ns / 1e6, 3)
    return Fact(name=name, value=round(value_ns / 1e6, 3), unit=MILLISECONDS, threshold=threshold)


# Facts of a capture; the last one, the most that can be won, is there where a rule fires.
FRAMEWORK, TRACES, GAIN_SHARE = "framework", "traces", "gain_share"

NAMED = 2
# Facts of where it is: how many ranks are affected, of how many, and the worst.
_FIRST = 3

_NO_GAIN = Gain(ns_per_step=0, share=0.0)
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
    change, changes: What its finding asks to change: any kind, and by kind where it asks something else.
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
    change: ClassVar[ChangeCode] = ChangeCode.NOTHING
    changes: ClassVar[Mapping[str, ChangeCode]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if cls.title:
            if not cls.says:
                kind = re.sub(r"(?<=.)(?=[A-Z])", "_", cls.__name__).lower()
                cls.says = (Saying(kind, cls.summary, cls.advice, cls.clause),)
            cls.spec = _spec_of(cls)
        super().__init_subclass__(**kwargs)

    @classmethod
    def saying(cls, kind: str) -> Saying:
        """Return the rule's words on a kind of finding; KeyError of a kind that this version does not have."""
        return {each.kind: each for each in cls.says}[kind]

    @classmethod
    def say(cls, sheet: FactSheet) -> Words:
        return silence(sheet) if sheet.kind in set(CaptureKind) else text(cls.saying(sheet.kind), sheet)

    @classmethod
    def words(cls, kind: str, facts: Sequence[Fact]) -> tuple[str, str]:
        """Return a finding's words, and its advice."""
        return words(cls.saying(kind), facts)

    def found(
        self,
        facts: Sequence[Fact],
        *,
        severity: Severity,
        evidence: Sequence[Evidence | str] = (),
        gain: Gain = _NO_GAIN,
        kind: str = "",
        measured: str = "",
        confidence: Literal["normal", "low"] = "normal",
    ) -> KernelFinding:
        """Return a finding in words; ``measured`` is the fact that the rule is judged by, the first where empty.

        Evidence that is a text takes no time.
        """
        kind = kind or self.says[0].kind
        judged_by = next(fact for fact in facts if fact.name == measured or not measured)
        summary, recommendation = self.words(kind, facts)
        return KernelFinding(
            id=self.name,
            severity=severity,
            value=float(judged_by.value),
            threshold=float(judged_by.threshold or 0.0),
            summary=summary,
            evidence=[Evidence(what=each, duration_ns=0) if isinstance(each, str) else each for each in evidence],
            gain=gain,
            recommendation=recommendation,
            kind=kind,
            facts=[*facts],
            confidence=confidence,
        )

    # The first capture without the condition ends an episode.
    clear_s = 0.0

    def judge(self, verdict: CaptureVerdict | None) -> RuleResult:
        if verdict is None or not verdict.has_traces:
            return RuleResult.of(silence, Status.WAITING_FOR_DATA, CaptureKind.NO_CAPTURE)
        found = verdict.of(self.name)
        return _silent(verdict) if found is None else self.said(found, verdict, of_traces(verdict))

    def said(self, found: RuleVerdict, verdict: CaptureVerdict, files: "TraceFiles") -> RuleResult:
        """Return the result of what was found in some files of a capture."""
        if self.spec.informs_only:
            facts = (*found.facts, *files.facts)
            return RuleResult.of(self.text, Status.OK, found.kind, facts, data_points=files.count)
        if not found.sure:
            unsure = Fact(name="unsure_ranks", value=found.unsure)
            kept = bounded(found.facts, (unsure, *files.facts))
            return RuleResult.of(self.text, Status.WARMING_UP, found.kind, kept, data_points=files.count)
        won = (
            Fact(name=GAIN_SHARE, value=round(found.gain_share, 4), unit="share"),
            Fact(name="gain_per_step", value=found.gain_ns_per_step, unit="ns"),
        )
        evidence = [
            Fact(name="evidence", value=each.duration_ns, unit="ns", series=each.what) for each in found.evidence
        ]
        where = _where(found, files)
        # What no more fits is left out from the end: what a rule says and where stands first, and its largest evidence.
        every = (*found.facts, *won, *where[:_FIRST], *evidence[:1], *where[_FIRST:], *files.facts, *evidence[1:])
        return RuleResult.of(
            self.text,
            Status.FIRED,
            found.kind,
            every[:MOST_FACTS],
            measured=found.value,
            threshold=found.threshold,
            worst=found.ranks[0] if found.ranks else None,
            data_points=files.count,
            score=score_of(found),
            details={
                "capture": verdict.capture,
                "ranks": found.sure,
                "evidence": [msgspec.to_builtins(each) for each in found.evidence],
                "gain_ns_per_step": found.gain_ns_per_step,
                "gain_share": found.gain_share,
                "facts_left_out": max(len(every) - MOST_FACTS, 0),
            },
        )


@dataclass(frozen=True, slots=True)
class TraceFiles:
    """Traces of a capture, or snapshots: how many there are, how many could be read, and facts of them.

    ``are_all`` says that one file is of all there is, so that its rank goes without saying.
    """

    count: int
    read: int
    facts: Sequence[Fact]
    are_all: bool


def of_traces(verdict: CaptureVerdict) -> TraceFiles:
    return TraceFiles(verdict.traces, verdict.traces - verdict.unread, _of_capture(verdict), are_all=True)


def of_snapshots(snapshots: SnapshotVerdict) -> TraceFiles:
    facts = [Fact(name=SNAPSHOTS, value=snapshots.files)]
    return TraceFiles(snapshots.files, snapshots.files - snapshots.unread, facts, are_all=False)


def unread_snapshots(snapshots: SnapshotVerdict) -> list[Fact]:
    if not snapshots.unread:
        return []
    name, why = next(iter(snapshots.unread_why.items()), ("", "the reason is unknown"))
    return [
        Fact(name=UNREAD_SNAPSHOTS, value=snapshots.unread),
        Fact(name="unread_snapshot", value=name),
        Fact(name="unread_why", value=why),
    ]


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
        text=rule.say,
        claims={"": rule.claims} if rule.claims else {},
        changes={"": rule.change, **rule.changes},
    )


def bounded(facts: Sequence[Fact], others: Sequence[Fact]) -> tuple[Fact, ...]:
    return (*facts, *others)[:MOST_FACTS]


def unjudged(verdict: CaptureVerdict) -> str:
    return _unjudged(verdict).reason


def _silent(verdict: CaptureVerdict) -> RuleResult:
    if not verdict.judged:
        return _unjudged(verdict)
    judged = Fact(name="ranks_judged", value=verdict.judged)
    facts = (judged, *_of_capture(verdict))
    return RuleResult.of(silence, Status.OK, CaptureKind.HOLDS_NOT, facts, data_points=verdict.traces)


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
    return RuleResult.of(silence, Status.WARMING_UP, kind, tuple(facts), data_points=verdict.traces)


def _of_capture(verdict: CaptureVerdict) -> list[Fact]:
    facts = [Fact(name=TRACES, value=verdict.traces)]
    facts += [Fact(name=FRAMEWORK, value=verdict.framework)] if verdict.framework else []
    parts = (("cut_traces", verdict.cut), ("lost_traces", verdict.lost))
    return facts + [Fact(name=name, value=traces) for name, traces in parts if traces]


def _where(found: RuleVerdict, files: TraceFiles) -> list[Fact]:
    if (files.are_all and files.read < 2) or not found.ranks:
        return []
    counts = [Fact(name="ranks_affected", value=found.sure), Fact(name="ranks_read", value=files.read)]
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
    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        """Return what is found on a rank; its gain is the most that can be won if it is the only finding."""

    def stretches(self, judged: JudgedRank, gpu: TraceGpuTime) -> Spans:
        """Return when the time of one of the rank's GPUs is what the rule fires for."""
        del judged
        found: Spans = getattr(gpu, self.takes) if self.takes else Spans(gpu.busy.start[:0], gpu.busy.end[:0])
        return found

    def beyond(self, judged: JudgedRank, taken: Spans) -> float:
        """Return how many more nanoseconds the rule fires for than what the rules took together."""
        del judged, taken
        return 0.0
