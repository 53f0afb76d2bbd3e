"""A node's framework stream: objects of all its processes to rule states and verdicts."""

import copy
from collections.abc import Collection

import msgspec

from trainguard.engine.ordering.partition_order import UNLISTED
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.rule_runner import RuleRunner, StoredRule
from trainguard.engine.streams.sandbox import shown
from trainguard.engine.verdicts.verdict import Fire, Verdict
from trainguard.families.profiler.interruptions import with_steps
from trainguard.families.profiler.kinds import framework_rules, joined_rules
from trainguard.pricing.cost import Account
from trainguard.records import Status
from trainguard.rules.protocol import AnyFrameworkRule, RuleParameters
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.rule_result import RuleResult
from trainguard.state.step_time import StepTime
from trainguard.telemetry.framework import FrameworkEvents

MICROSECONDS = 1_000_000
COLLECTED = RuleResult(Status.OK, "collected for the job's verdict")


class FrameworkState(msgspec.Struct, omit_defaults=True):
    """What is stored of a node's framework stream; ``watermark_s`` is the watermark, epoch seconds.

    ``step_runs_us`` are the newest times in which there were steps, without the silences between them. Up to
    ``listed_us`` the node's names were listed and what S3 had is applied. ``time`` is where its processes' time went.
    """

    watermark_s: float | None = msgspec.field(default=None, name="through")
    first_step_us: int | None = None
    floor_us: int = -1
    listed_us: int = UNLISTED
    step_runs_us: list[tuple[int, int]] = msgspec.field(default_factory=list)
    stored_rules: dict[str, StoredRule] = msgspec.field(default_factory=dict, name="slots")
    last_fault: str | None = None
    time: StepTime = msgspec.field(default_factory=StepTime)


class FrameworkStream:
    """Works on a FrameworkState; ``store`` writes it back."""

    def __init__(self, node: str, state: FrameworkState, plan: RulePlan) -> None:
        self.node = node
        self.state = state
        self._plan = plan
        self._rules = RuleRunner(framework_rules(plan), state.stored_rules, plan)
        self._joined = RuleRunner(joined_rules(plan), state.stored_rules, plan)

    def apply(self, events: FrameworkEvents, end_us: int) -> list[Fire]:
        """Fold in one object that holds events up to ``end_us``; return the fires that it began."""
        watermark_s = max(end_us / MICROSECONDS, self.state.watermark_s or 0.0)
        self.state.watermark_s = watermark_s
        for batch in events.steps:
            first = int(batch.starts_us.min())
            self.state.first_step_us = min(first, self.state.first_step_us or first)
        self.state.step_runs_us = with_steps(self.state.step_runs_us, events.steps)
        self.state.time.fold(events)
        self._joined.run(
            lambda rule, state, parameters: rule.observe(state, shown(rule, events), parameters),
            lambda *_: COLLECTED,
            watermark_s=watermark_s,
            interval_s=self._plan.interval_s,
        )
        return self._judge(events, watermark_s, closed=False)

    def finish(self) -> list[Fire]:
        """Judge as a stream that has ended."""
        watermark_s = self.state.watermark_s
        return [] if watermark_s is None else self._judge(None, watermark_s, closed=True)

    def finished(self) -> "FrameworkStream":
        """Return a copy to finish: the stored state goes on if a late object arrives after the end."""
        self.store()
        return FrameworkStream(self.node, copy.deepcopy(self.state), self._plan)

    def ledger(self, account: Account) -> None:
        """Return nothing: the stream holds no samples of GPUs."""
        del account

    def verdicts(self, *, closed: bool, of: Collection[str] | None = None) -> list[Verdict]:
        """Judge the state as it is, for the rules that ``of`` names; None means all."""
        view = self.view(closed=closed)
        return self._rules.verdicts(
            lambda rule, state, parameters: rule.judge(state, view, parameters),
            interval_s=self._plan.interval_s,
            closed=closed,
            of=of,
        )

    def degrade(self) -> str | None:
        """Nothing of this state can be given up: its rules bound themselves."""
        return None

    def store(self) -> FrameworkState:
        """Write everything back into the state and return it."""
        self._rules.store()
        self._joined.store()
        return self.state

    def release(self) -> None:
        """Keep what a job's verdict is made of: what joined rules have collected. Nothing more is judged or stored."""
        self._rules.release()

    @property
    def due(self) -> set[str]:
        """Rules whose row changed or is five minutes old."""
        return self._rules.due

    @property
    def raised(self) -> list[str]:
        """What rules raised since this object was made."""
        return [*self._rules.raised, *self._joined.raised]

    def state_of(self, rule: str) -> msgspec.Struct:
        """Return the state of a rule over this stream, or what a joined one has collected of it.

        Raises RuleFailedError when it failed here.
        """
        is_joined = any(each.name == rule for each in joined_rules(self._plan))
        state: msgspec.Struct = (self._joined if is_joined else self._rules).state_of(rule)
        return state

    def _judge(self, events: FrameworkEvents | None, watermark_s: float, *, closed: bool) -> list[Fire]:
        view = self.view(closed=closed)

        def observe(rule: AnyFrameworkRule, state: msgspec.Struct, parameters: RuleParameters) -> None:
            if events is not None:
                rule.observe(state, shown(rule, events), parameters)

        return self._rules.run(
            observe,
            lambda rule, state, parameters: rule.judge(state, view, parameters),
            watermark_s=watermark_s,
            interval_s=self._plan.interval_s,
            closed=closed,
        )

    def view(self, *, closed: bool) -> FrameworkView:
        """Return what rules are shown of this stream."""
        first_us = self.state.first_step_us
        first_step_at = None if first_us is None else first_us / MICROSECONDS
        return FrameworkView(
            node=self.node,
            watermark_s=self.state.watermark_s,
            closed=closed,
            first_step_at=first_step_at,
            detailed=self._plan.detailed,
        )
