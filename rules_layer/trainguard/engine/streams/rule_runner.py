"""Run a stream's rules in isolation: one that raises is set to ERROR, and the others go on."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from trainguard.core.errors import PortUnavailableError, RuleConfigError, RuleFailedError, RuleLoadError, error_text
from trainguard.core.records import Status
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.sandbox import sandboxed
from trainguard.engine.verdicts.episodes import FiringHistory, StoredEpisode, once_found, past_words
from trainguard.engine.verdicts.findings import claims_of, loss_from, score_of_verdict, severity_of
from trainguard.engine.verdicts.verdict import JUDGED, Fire, RuleOutcome
from trainguard.formats.profile.system import DECODE_ERRORS
from trainguard.ledger.job import Ledger
from trainguard.rules.protocol import Rule, check_clear_after, is_custom, packed_state
from trainguard.rules.rule_inputs import LateView
from trainguard.rules.rule_result import RuleResult

# A measure is close to its threshold when it differs by less than this share of it, on whichever side.
CLOSE_SHARE = 0.1


def is_near_threshold(result: RuleResult, history: FiringHistory) -> bool:
    """Whether the rule may fire, or its episode may end, within minutes: it says so, or its measure is close."""
    if history.is_open:
        return history.clean_since is not None
    return result.status in {Status.OK, Status.WARMING_UP} and (result.near_threshold or _is_close(result))


def _is_close(result: RuleResult) -> bool:
    if result.measured is None or not result.threshold:
        return False
    return abs(result.measured - result.threshold) < CLOSE_SHARE * abs(result.threshold)


# What lies between a stream's first sample and its first evaluation, about.
FIRST_MINUTE_S = 60.0


class LastFinding(msgspec.Struct, array_like=True):
    """The last judgement whose condition held; ``at`` in epoch seconds, ``since_s`` for how long it had been judged."""

    at: float
    since_s: float
    worst: str | None
    affected_share: float | None
    confidence: float | None
    score: float | None = None

    @classmethod
    def of(cls, result: RuleResult, *, at: float, began_at: float) -> "LastFinding":
        return cls(at, at - began_at, result.worst, result.affected_share, result.confidence, result.score)

    def with_result(
        self, rule: str, now: RuleResult, watermark_s: float, episode: StoredEpisode, *, closed: bool = False
    ) -> RuleResult:
        """Return the judgement of now (``closed``: none) with what was found in ``episode`` before it."""
        fading = (self.since_s + FIRST_MINUTE_S) / (self.since_s + FIRST_MINUTE_S + max(watermark_s - self.at, 0.0))
        before = None if self.affected_share is None else self.affected_share * fading
        affected = [share for share in (now.affected_share, before) if share is not None]
        found = past_words(rule, episode.kind, episode.facts, reason=episode.reason, advice=episode.advice or None)
        held = (min(episode.start, episode.until), episode.until)
        return replace(
            now,
            reason=once_found(found.reason, now.reason, held=held, at=None if closed else watermark_s),
            advice=found.advice,
            found=found,
            kind=episode.kind,
            facts=episode.facts,
            worst=self.worst,
            affected_share=max(affected, default=None),
            confidence=self.confidence,
            idle_node=episode.idle_node,
            score=self.score,
        )


PUBLISH_EVERY_S, PUBLISH_FIRED_EVERY_S = 900.0, 300.0
# A row that does not change is written this often: a finding's cost grows, a stop asks how new its row is, patience
# counts. A rule that found nothing has new numbers alone, which take three write units.
PUBLISH_OK_EVERY_S, PUBLISH_INAPPLICABLE_EVERY_S = 1_800.0, 3_600.0

_EVERY_S = {
    Status.FIRED: PUBLISH_FIRED_EVERY_S,
    Status.OK: PUBLISH_OK_EVERY_S,
    Status.NOT_APPLICABLE: PUBLISH_INAPPLICABLE_EVERY_S,
}

FAULT_LENGTH = 500

GONE = RuleResult(Status.DISABLED, "The deployed version has no rule of this name any more; what it found is over.")

R = TypeVar("R", bound=Rule[Any])
T = TypeVar("T")
Observe = Callable[[R, Any, Any], None]
Evaluate = Callable[[R, Any, Any], RuleResult]


def shown(rule: Rule[Any], value: T) -> T:
    """Return what a rule is shown: for a custom one, a copy whose arrays cannot be written to."""
    return _read_only(value) if is_custom(rule) else value


def _read_only(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, LateView):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        named = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        return replace(value, **{name: _read_only(each) for name, each in named.items()})
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_read_only(each) for each in value)
    if type(value) is dict:
        return {name: _read_only(each) for name, each in value.items()}
    return value


def publish_every_s(status: Status) -> float:
    """Return how often a row that does not change is written, seconds."""
    return _EVERY_S.get(status, PUBLISH_EVERY_S)


class StoredRule(msgspec.Struct, omit_defaults=True):
    """What is stored of one rule on one stream.

    ``data`` is the rule's own state, encoded apart so that a rule which this version does not know keeps it.
    ``published`` and ``published_at`` are of the row that was last due. ``began_at`` and ``watermark_s`` are the
    watermarks of the first and the last evaluation.
    """

    data: bytes = b""
    history: FiringHistory = msgspec.field(default_factory=FiringHistory, name="episode")
    fault: str | None = None
    published: str | None = msgspec.field(default=None, name="shown")
    published_at: float | None = msgspec.field(default=None, name="shown_at")
    began_at: float | None = None
    watermark_s: float = msgspec.field(default=0.0, name="through")
    last_finding: LastFinding | None = msgspec.field(default=None, name="last")
    reset_reason: str | None = msgspec.field(default=None, name="anew")

    def note(self, result: RuleResult, watermark_s: float) -> None:
        """Record an evaluation; with the watermark 0, when nothing was read yet, no rule begins to be judged."""
        if not self.began_at:
            self.began_at = watermark_s
        self.watermark_s = watermark_s
        if result.status is Status.FIRED:
            self.last_finding = LastFinding.of(result, at=watermark_s, began_at=self.began_at)


class RuleRunner(Generic[R]):
    """The slots of one stream's rules, decoded."""

    def __init__(self, rules: Sequence[R], stored: dict[str, StoredRule], plan: RulePlan) -> None:
        self._rules = rules
        self._stored = stored
        self._plan = plan
        self._states: dict[str, Any] = {}
        self._latest: dict[str, tuple[RuleResult, float]] = {}
        self._latest_closed: bool | None = None
        self._released = False
        self.due: set[str] = set()
        self.near_threshold: set[str] = set()
        self.is_warming_up = False
        self.raised: list[str] = []
        for rule in rules:
            entry = stored.setdefault(rule.name, StoredRule())
            state_type = getattr(rule, "state_type", None)
            if state_type is None:
                continue
            try:
                stored_state = msgspec.msgpack.decode(entry.data, type=state_type) if entry.data else state_type()
            except DECODE_ERRORS as fault:
                # Alerts of an episode are no part of the rule's own state, and stay.
                stored_state, entry.data = state_type(), b""
                entry.reset_reason = f"Its stored state was of another version ({fault}): the rule started again."
                self.due.add(rule.name)
            self._states[rule.name] = stored_state

    def run(
        self,
        observe: Observe[R] | None,
        judge: Evaluate[R],
        *,
        watermark_s: float,
        interval_s: float,
        closed: bool = False,
        ledger: Callable[[], Ledger | None] = lambda: None,
    ) -> list[Fire]:
        """Show each rule something new, then let it judge; return its fires. Only a fire calls ``ledger``."""
        self._check_held()
        fires: list[Fire] = []
        self.near_threshold.clear()
        self.is_warming_up = False
        self._latest_closed = closed
        for rule in self._rules:
            entry = self._stored[rule.name]
            result, clear_after_s = self._step(rule, entry, observe, judge, interval_s)
            self._latest[rule.name] = result, clear_after_s
            if result.status is not Status.ERROR:
                holds = result.status is Status.FIRED
                entry.note(result, watermark_s)
                judged = result.status in JUDGED
                entry.history.update(holds=holds, watermark_s=watermark_s, clear_after_s=clear_after_s, judged=judged)
                if holds:
                    entry.history.note(rule.name, result, watermark_s=watermark_s)
                else:
                    entry.history.end(rule.name)
                if holds and entry.history.alerted < self._plan.episode_of(rule.name):
                    fires.append(self._fire(RuleOutcome(rule.name, result, entry.history), watermark_s, ledger()))
            if is_near_threshold(result, entry.history):
                self.near_threshold.add(rule.name)
            self.is_warming_up |= result.status is Status.WARMING_UP and result.progress is not None
            self._note_published(rule.name, entry, result, watermark_s)
        return fires

    def _fire(self, verdict: RuleOutcome, watermark_s: float, ledger: Ledger | None) -> Fire:
        history = verdict.history
        claimed = [] if ledger is None else ledger.claim(claims_of(verdict, ledger))
        score = score_of_verdict(verdict, watermark_s, None if ledger is None else loss_from(claimed, ledger))
        history.alerted = self._plan.episode_of(verdict.rule)
        history.alerted_severity = severity_of(score).value
        result = replace(verdict.result, affected_share=verdict.affected_share)
        # The episode's history goes on while the fire waits to be sent.
        begun = RuleOutcome(verdict.rule, result, FiringHistory(is_open=True), merged=verdict.episodes[-1:])
        return Fire(begun, watermark_s, ledger)

    def _step(
        self, rule: R, entry: StoredRule, observe: Observe[R] | None, judge: Evaluate[R], interval_s: float
    ) -> tuple[RuleResult, float]:
        """Return the rule's judgement, and after how many clean seconds an episode of it is over."""
        refused = self._refused(rule, entry)
        if refused is not None:
            return refused, 0.0
        parameters = self._plan.parameters_of(rule.name)
        state = self._states.get(rule.name)
        custom = is_custom(rule)
        try:
            if observe is not None:
                observe(rule, state, parameters)
                if custom and state is not None:
                    entry.data = packed_state(rule.name, state)
            result, clear_after_s = judge(rule, state, parameters), rule.clear_after_s(parameters, interval_s)
            if custom:
                return sandboxed(rule.name, result), check_clear_after(rule.name, clear_after_s)
            return result, clear_after_s
        except PortUnavailableError:
            # A store did not answer a rule that reads tensors: the object comes again, on the stored state.
            raise
        except Exception as fault:
            if isinstance(fault, RuleConfigError) and not isinstance(fault, RuleLoadError):
                return RuleResult(Status.ERROR, str(fault)), 0.0
            return self.fail(rule, fault), 0.0
        except SystemExit as fault:
            return self.fail(rule, fault), 0.0

    def fail(self, rule: R, fault: BaseException) -> RuleResult:
        """Set a rule to ERROR on this stream; of a custom rule's state nothing is kept."""
        entry = self._stored[rule.name]
        if entry.fault is None:
            entry.fault = error_text(fault)[:FAULT_LENGTH]
            self.raised.append(f"{rule.name}: {entry.fault}")
        if is_custom(rule):
            entry.data = b""
        return RuleResult(Status.ERROR, f"The rule failed: {entry.fault}.")

    def _refused(self, rule: R, entry: StoredRule) -> RuleResult | None:
        config_fault = self._plan.faults.get(rule.name)
        if config_fault is not None:
            return RuleResult(Status.ERROR, str(config_fault))
        if entry.fault is not None:
            return RuleResult(Status.ERROR, f"The rule failed: {entry.fault}.")
        return None

    def _note_published(self, rule: str, entry: StoredRule, result: RuleResult, watermark_s: float) -> None:
        changed = entry.published != result.status.value
        every_s = publish_every_s(result.status)
        if changed or entry.published_at is None or watermark_s - entry.published_at >= every_s:
            entry.published, entry.published_at = result.status.value, watermark_s
            self.due.add(rule)

    def verdicts(
        self, judge: Evaluate[R], *, interval_s: float, closed: bool = False, of: Collection[str] | None = None
    ) -> list[RuleOutcome]:
        """Judge the rules ``of`` (None: all) without moving an episode; the last run's judgements are reused."""
        self._check_held()
        if closed is not self._latest_closed:
            self.forget()
        verdicts = []
        for rule in self._rules:
            if of is None or rule.name in of:
                entry = self._stored[rule.name]
                judged = self._latest.get(rule.name)
                result, clear_after_s = judged or self._step(rule, entry, None, judge, interval_s)
                if entry.last_finding is not None and result.status not in {Status.FIRED, Status.ERROR}:
                    for newest in entry.history.episodes[-1:]:
                        result = entry.last_finding.with_result(
                            rule.name, result, entry.watermark_s, newest, closed=closed
                        )
                if entry.reset_reason is not None:
                    result = replace(result, reason=f"{result.reason} {entry.reset_reason}")
                verdicts.append(RuleOutcome(rule.name, result, entry.history, clear_after_s))
        return verdicts

    def forget(self) -> None:
        """Let the next verdicts be judged again: what rules are shown has changed."""
        self._latest.clear()

    def release(self, keep: Collection[str] = ()) -> None:
        """Give up all rules' states but ``keep``, and their stored form: nothing more is evaluated."""
        self._released = True
        self._states = {name: state for name, state in self._states.items() if name in keep}
        self._latest.clear()
        for entry in self._stored.values():
            entry.data = b""

    def _check_held(self) -> None:
        if self._released:
            names = ", ".join(rule.name for rule in self._rules)
            raise RuntimeError(f"the states of {names} were given up, expected no further judgement of them")

    def state_of(self, rule: str) -> Any:
        """Return a rule's state; RuleFailedError when it failed on this stream."""
        fault = self._stored[rule].fault
        if fault is not None:
            raise RuleFailedError(rule, fault)
        return self._states[rule]

    def store(self) -> None:
        """Encode the rules' states back into their slots; of a custom rule, as it was last observed."""
        self._check_held()
        for rule in self._rules:
            if rule.name in self._states and not is_custom(rule):
                self._stored[rule.name].data = msgspec.msgpack.encode(self._states[rule.name])


def gone_rules(stored: Sequence[Mapping[str, StoredRule]], plan: RulePlan) -> list[RuleOutcome]:
    """Return a last verdict of each stored rule that the deployed version does not have."""
    known = {*plan.rules, *plan.disabled, *plan.unchosen, *plan.faults}
    gone = sorted({name for stored_rules in stored for name in stored_rules} - known)
    verdicts = []
    for name in gone:
        histories = [stored_rules[name].history for stored_rules in stored if name in stored_rules]
        fired_at = [each.fired_at for each in histories if each.fired_at is not None]
        ended = FiringHistory(
            times_fired=max(each.times_fired for each in histories), fired_at=max(fired_at, default=None)
        )
        verdicts.append(RuleOutcome(name, GONE, ended))
    return verdicts
