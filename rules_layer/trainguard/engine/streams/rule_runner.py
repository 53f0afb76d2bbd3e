"""Runs rules side by side: each has a slot with its state, its episode and what was last shown of it.

A rule that raises is set to ERROR in its own slot and not run again on this stream; the others go on.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import msgspec

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.last_finding import LastSeen
from trainguard.engine.streams.sandbox import admitted
from trainguard.engine.verdicts.episodes import Episode
from trainguard.engine.verdicts.severity import score_of, severity_of
from trainguard.engine.verdicts.verdict import JUDGED, Fire, Reach, Verdict
from trainguard.errors import RuleConfigError, RuleFailedError, RuleLoadError
from trainguard.records import Status
from trainguard.rules.extension import check_clear_after, is_custom, packed_state
from trainguard.rules.protocol import Rule
from trainguard.rules.rule_result import Judgement
from trainguard.telemetry.unpack import UNREADABLE

SHOW_EVERY_S = 300.0
FAULT_LENGTH = 500

GONE = Judgement(Status.DISABLED, "The deployed version has no rule of this name any more; what it found is over.")

R = TypeVar("R", bound=Rule[Any])
Observe = Callable[[R, Any, Any], None]
Judge = Callable[[R, Any, Any], Judgement]


class RuleSlot(msgspec.Struct):
    """What is stored of one rule on one stream.

    ``data`` is the rule's own state, encoded apart so that a rule which this version does not know keeps it.
    ``shown`` and ``shown_at`` are the status and watermark at which its row was last due. ``began_at`` and ``through``
    are the watermarks of the first and the last evaluation; ``seen`` is what the rule said when it last held. ``anew``
    says why its state was given up once, if it was.
    """

    data: bytes = b""
    episode: Episode = msgspec.field(default_factory=Episode)
    fault: str | None = None
    shown: str | None = None
    shown_at: float | None = None
    began_at: float | None = None
    through: float = 0.0
    seen: LastSeen | None = None
    anew: str | None = None

    def note(self, judgement: Judgement, through: float) -> None:
        """Take note of an evaluation at watermark ``through``, and of what was said if the condition holds.

        A watermark of 0 says that nothing was read yet: with it no rule begins to be judged.
        """
        if not self.began_at:
            self.began_at = through
        self.through = through
        if judgement.status is Status.FIRED:
            self.seen = LastSeen.of(judgement, at=through, began_at=self.began_at)


class RuleSlots(Generic[R]):
    """The slots of one stream's rules, decoded."""

    def __init__(self, rules: Sequence[R], stored: dict[str, RuleSlot], plan: RulePlan) -> None:
        self._rules = rules
        self._slots = stored
        self._plan = plan
        self._states: dict[str, Any] = {}
        self._latest: dict[str, tuple[Judgement, float]] = {}
        self._latest_closed = False
        self.due: set[str] = set()
        self.raised: list[str] = []
        for rule in rules:
            slot = stored.setdefault(rule.name, RuleSlot())
            state_type = getattr(rule, "state_type", None)
            if state_type is None:
                continue
            try:
                stored_state = msgspec.msgpack.decode(slot.data, type=state_type) if slot.data else state_type()
            except UNREADABLE as fault:
                # What an episode has alerted is no part of the rule's own state, and stays.
                stored_state, slot.data = state_type(), b""
                slot.anew = f"Its stored state was of another version ({fault}), so that it began anew."
            self._states[rule.name] = stored_state

    def run(
        self, observe: Observe[R] | None, judge: Judge[R], *, through: float, interval_s: float, closed: bool = False
    ) -> list[Fire]:
        """Show each rule something new, then let it judge; return the fires that began.

        ``closed`` says that it is judged as a stream that has ended.
        """
        fires: list[Fire] = []
        self._latest_closed = closed
        for rule in self._rules:
            slot = self._slots[rule.name]
            judgement, clear_after_s = self._step(rule, slot, observe, judge, interval_s)
            self._latest[rule.name] = judgement, clear_after_s
            if judgement.status is not Status.ERROR:
                holds = judgement.status is Status.FIRED
                slot.note(judgement, through)
                judged = judgement.status in JUDGED
                slot.episode.update(holds=holds, through=through, clear_after_s=clear_after_s, judged=judged)
                if holds and slot.episode.alerted < self._plan.episode_of(rule.name):
                    fires.append(self._fire(Verdict(rule.name, judgement, slot.episode), through))
            self._show(rule.name, slot, judgement, through)
        return fires

    def _fire(self, verdict: Verdict, through: float) -> Fire:
        """Return the fire that begins, and take note of it in the episode."""
        affected, episode = verdict.affected_share, verdict.episode
        score = score_of(wasted_share=verdict.judgement.wasted_share, affected_share=affected, reach=Reach(1, 1, None))
        episode.alerted = self._plan.episode_of(verdict.rule)
        episode.alerted_severity = severity_of(score).value
        return Fire(verdict.rule, verdict.judgement, through, affected)

    def _step(
        self, rule: R, slot: RuleSlot, observe: Observe[R] | None, judge: Judge[R], interval_s: float
    ) -> tuple[Judgement, float]:
        """Return the rule's judgement, and after how many clean seconds an episode of it is over."""
        refused = self._refused(rule, slot)
        if refused is not None:
            return refused, 0.0
        parameters = self._plan.parameters_of(rule.name)
        state = self._states.get(rule.name)
        custom = is_custom(rule)
        try:
            if observe is not None:
                observe(rule, state, parameters)
                if custom and state is not None:
                    slot.data = packed_state(rule.name, state)
            judgement, clear_after_s = judge(rule, state, parameters), rule.clear_after_s(parameters, interval_s)
            if custom:
                return admitted(rule.name, judgement), check_clear_after(rule.name, clear_after_s)
            return judgement, clear_after_s
        except Exception as fault:
            if isinstance(fault, RuleConfigError) and not isinstance(fault, RuleLoadError):
                return Judgement(Status.ERROR, str(fault)), 0.0
            return self.fail(rule, fault), 0.0
        except SystemExit as fault:
            return self.fail(rule, fault), 0.0

    def fail(self, rule: R, fault: BaseException) -> Judgement:
        """Set a rule to ERROR on this stream; of one that is not ours, nothing of its state is kept."""
        slot = self._slots[rule.name]
        if slot.fault is None:
            slot.fault = f"{type(fault).__name__}: {fault}"[:FAULT_LENGTH]
            self.raised.append(f"{rule.name}: {slot.fault}")
        if is_custom(rule):
            self._states.pop(rule.name, None)
            slot.data = b""
        return Judgement(Status.ERROR, f"The rule failed: {slot.fault}.")

    def _refused(self, rule: R, slot: RuleSlot) -> Judgement | None:
        config_fault = self._plan.faults.get(rule.name)
        if config_fault is not None:
            return Judgement(Status.ERROR, str(config_fault))
        if slot.fault is not None:
            return Judgement(Status.ERROR, f"The rule failed: {slot.fault}.")
        return None

    def _show(self, rule: str, slot: RuleSlot, judgement: Judgement, through: float) -> None:
        changed = slot.shown != judgement.status.value
        if changed or slot.shown_at is None or through - slot.shown_at >= SHOW_EVERY_S:
            slot.shown, slot.shown_at = judgement.status.value, through
            self.due.add(rule)

    def verdicts(
        self, judge: Judge[R], *, interval_s: float, closed: bool = False, of: Collection[str] | None = None
    ) -> list[Verdict]:
        """Judge the rules' states as they are, without moving an episode; ``of`` names the rules, None means all.

        What was judged in the last run, and is asked for in the same way, is not judged again.
        """
        if closed is not self._latest_closed:
            self.forget()
        verdicts = []
        for rule in self._rules:
            if of is None or rule.name in of:
                slot = self._slots[rule.name]
                judged = self._latest.get(rule.name)
                judgement, clear_after_s = judged or self._step(rule, slot, None, judge, interval_s)
                if slot.seen is not None and judgement.status not in {Status.FIRED, Status.ERROR}:
                    judgement = slot.seen.told_with(judgement, slot.through)
                if slot.anew is not None:
                    judgement = replace(judgement, reason=f"{judgement.reason} {slot.anew}")
                verdicts.append(Verdict(rule.name, judgement, slot.episode, clear_after_s))
        return verdicts

    def forget(self) -> None:
        """Let the next verdicts be judged anew: what rules are shown has changed."""
        self._latest.clear()

    def state_of(self, rule: str) -> Any:
        """Return a rule's state; RuleFailedError when it failed on this stream."""
        fault = self._slots[rule].fault
        if fault is not None:
            raise RuleFailedError(rule, fault)
        return self._states[rule]

    def store(self) -> None:
        """Encode the rules' states back into their slots; of a rule that is not ours, as it was last observed."""
        for rule in self._rules:
            if rule.name in self._states and not is_custom(rule):
                self._slots[rule.name].data = msgspec.msgpack.encode(self._states[rule.name])


def gone_rules(stored: Sequence[Mapping[str, RuleSlot]], plan: RulePlan) -> list[Verdict]:
    """Return a last verdict of each rule that is stored and that the deployed version does not have."""
    known = {*plan.rules, *plan.disabled, *plan.faults}
    gone = sorted({name for slots in stored for name in slots} - known)
    verdicts = []
    for name in gone:
        episodes = [slots[name].episode for slots in stored if name in slots]
        fired_at = [each.fired_at for each in episodes if each.fired_at is not None]
        ended = Episode(times_fired=max(each.times_fired for each in episodes), fired_at=max(fired_at, default=None))
        verdicts.append(Verdict(name, GONE, ended))
    return verdicts
