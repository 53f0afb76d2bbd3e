"""The stream of a job's captures: verdicts on them, in order of time, to the state of rules."""

import copy
from collections.abc import Collection
from typing import Any

import msgspec

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.rule_runner import RuleRunner, StoredRule
from trainguard.engine.verdicts.verdict import Fire, Verdict
from trainguard.kernels.captures.keys import KERNELS
from trainguard.kernels.captures.verdict import CaptureVerdict, shorter
from trainguard.pricing.cost import Account
from trainguard.rules.kernels.capture_rule import CaptureRule, CaptureRuleParameters
from trainguard.rules.rule_result import RuleResult


class CaptureRun(msgspec.Struct):
    """An execution that judges a capture; ``asked_at`` is when it was asked for, epoch seconds on S3's clock."""

    name: str
    capture: str
    version: str
    folder: str
    attempt: int
    asked_at: float


class CaptureState(msgspec.Struct, kw_only=True):
    """What is stored of a job's captures.

    Attributes
    ----------
    watermark_s : float or None
        When the last trace of the newest judged capture was written, epoch seconds.
    folders : list of str
        Where traces were met, the newest last.
    versions : dict of str to str
        The captures that need no execution any more, and the version of each that was judged.
    run : CaptureRun or None
        The execution that the stream waits for.
    verdict : CaptureVerdict or None
        The newest one that judged anything; the newest one where none did.
    captures : int
        Verdicts that were read.
    asked : int
        Executions that were asked for.
    """

    watermark_s: float | None = None
    last_fault: str | None = None
    stored_rules: dict[str, StoredRule] = msgspec.field(default_factory=dict)
    folders: list[str] = msgspec.field(default_factory=list)
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    run: CaptureRun | None = None
    verdict: CaptureVerdict | None = None
    captures: int = 0
    asked: int = 0


class CaptureStream:
    """Works on a CaptureState; ``store`` writes it back."""

    def __init__(self, unit: str, state: CaptureState, plan: RulePlan) -> None:
        self.unit = unit
        self.state = state
        self._plan = plan
        rules = [rule for rule in plan.rules_of(KERNELS) if isinstance(rule, CaptureRule)]
        self._rules: RuleRunner[CaptureRule] = RuleRunner(rules, state.stored_rules, plan)

    def apply(self, verdict: CaptureVerdict) -> list[Fire]:
        """Take in a verdict that is not older than the last one; return the fires that it began.

        One that judged nothing takes no other's place: it neither fires a rule nor ends an episode.
        """
        state = self.state
        state.captures += 1
        if state.verdict is not None and state.verdict.judged and not verdict.judged:
            return []
        state.verdict = verdict
        state.watermark_s = max(verdict.at, state.watermark_s or 0.0)
        return self._run(state.watermark_s)

    def finish(self) -> list[Fire]:
        """Judge as a stream that has ended, which is no other judgement for rules over captures."""
        watermark_s = self.state.watermark_s
        return [] if watermark_s is None else self._run(watermark_s)

    def finished(self) -> "CaptureStream":
        """Return a copy to finish: the stored state goes on if a late trace arrives after the end."""
        return CaptureStream(self.unit, copy.deepcopy(self.state), self._plan)

    def ledger(self, account: Account) -> None:
        """Return nothing: the stream holds no samples of GPUs."""
        del account

    def verdicts(self, *, closed: bool, of: Collection[str] | None = None) -> list[Verdict]:
        """Judge the state as it is, for the rules that ``of`` names; None means all."""
        return self._rules.verdicts(self._judge, interval_s=self._plan.interval_s, closed=closed, of=of)

    def store(self) -> CaptureState:
        """Return the state: rules over captures have none of their own."""
        return self.state

    def degrade(self) -> str | None:
        """Give up evidence, then the last rules, to keep the item small; None when nothing is left to give up."""
        if self.state.verdict is None or not self.state.verdict.rules:
            return None
        self.state.verdict = shorter(self.state.verdict)
        return "degraded_verdict"

    @property
    def due(self) -> set[str]:
        """Rules whose row changed or is five minutes old."""
        return self._rules.due

    @property
    def raised(self) -> list[str]:
        """What rules raised since the stream was opened."""
        return self._rules.raised

    def _run(self, watermark_s: float) -> list[Fire]:
        return self._rules.run(None, self._judge, watermark_s=watermark_s, interval_s=self._plan.interval_s)

    def _judge(self, rule: CaptureRule, state: Any, parameters: CaptureRuleParameters) -> RuleResult:
        del state, parameters
        return rule.judge(self.state.verdict)
