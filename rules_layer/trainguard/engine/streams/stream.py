"""A unit's stream in hand: its state, and the rules that judge it."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, Generic, Self, TypeVar

import msgspec

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.rule_runner import Evaluate, Observe, RuleRunner, StoredRule
from trainguard.engine.verdicts.verdict import Fire, Verdict
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import PaidTime


class StreamState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is stored of every stream; ``watermark_s`` in epoch seconds."""

    watermark_s: float | None = msgspec.field(default=None, name="through")
    last_fault: str | None = None
    stored_rules: dict[str, StoredRule] = msgspec.field(default_factory=dict, name="slots")


State = TypeVar("State", bound=StreamState)


class Stream(ABC, Generic[State]):
    """Works on a state; `store` writes it back."""

    def __init__(self, node: str, state: State, plan: RulePlan) -> None:
        self.node = node
        self.state = state
        self._plan = plan
        self._rules = self._runner()

    def _runner(self) -> RuleRunner[Any]:
        return RuleRunner(self.rules_of(self._plan), self.state.stored_rules, self._plan)

    @staticmethod
    @abstractmethod
    def rules_of(plan: RulePlan) -> Sequence[Any]:
        """Return the rules that judge each such stream by itself."""

    @abstractmethod
    def _judge(self, *, closed: bool) -> Evaluate[Any]:
        """Return what judges a rule's state as it is now."""

    def _run(self, observe: Observe[Any] | None, *, closed: bool = False) -> list[Fire]:
        """Show each rule something new, and let it judge; before the first watermark nothing is judged."""
        if self.state.watermark_s is None:
            return []
        return self._rules.run(
            observe,
            self._judge(closed=closed),
            watermark_s=self.state.watermark_s,
            interval_s=self.interval_s,
            closed=closed,
        )

    @property
    def interval_s(self) -> float:
        return self._plan.interval_s

    @property
    def due(self) -> set[str]:
        """Rules whose row changed, or is as old as `publish_every_s` allows."""
        return self._rules.due

    @property
    def raised(self) -> list[str]:
        return self._rules.raised

    def finish(self) -> list[Fire]:
        """Judge as a stream that has ended."""
        return self._run(None, closed=True)

    def finished(self) -> Self:
        """Return a copy to finish: the stored state goes on if a late object arrives after the end."""
        self.store()
        return type(self)(self.node, copy.deepcopy(self.state), self._plan)

    def verdicts(self, *, closed: bool, of: Collection[str] | None = None) -> list[Verdict]:
        """Judge the state for the rules that ``of`` names; None means all."""
        return self._rules.verdicts(self._judge(closed=closed), interval_s=self.interval_s, closed=closed, of=of)

    def ledger(self, paid_time: PaidTime) -> Ledger | None:
        """Return where the paid time of the unit's GPUs went; None where the stream holds no samples of GPUs."""
        del paid_time
        return None

    def state_of(self, rule: str) -> Any:
        """Return a rule's state; RuleFailedError when it failed here, KeyError when it does not run."""
        return self._rules.state_of(rule)

    def store(self) -> State:
        self._rules.store()
        return self.state

    def degrade(self) -> str | None:
        """Make the state smaller at a named cost; None when nothing is left to give up."""
        return None


AnyStream = Stream[Any]
