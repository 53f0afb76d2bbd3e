"""A rule's firing history on one node: when a condition that holds is a new fire, and its episodes.

An episode begins at the first evaluation at which the condition holds and ends after three clean windows; only the
beginning is a fire. ``alerted`` remembers the job's episode number of that fire, so that a node enqueues one fire an
episode of the job, however often its own condition flaps. For readers an episode runs from the onset, as the data show
it, to the last evaluation at which the condition held.
"""

import hashlib
import math
from collections.abc import Sequence
from enum import Enum

import msgspec

from trainguard.core.finding import MOST_EPISODES, NAMED_NODES, Episode, Fact, clock_times
from trainguard.core.records import Status
from trainguard.core.timestamps import iso_time
from trainguard.core.units import listed, show_duration, show_percent
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import FactSheet, IdleNode, RuleResult, Words

NODES_FIRED, NODES = "nodes_fired", "nodes_judged"
SILENT = "silent"
POINTS_SEEN, POINTS_JUDGED = "points_seen_on_nodes", "points_judged_on_nodes"
SHARE_OF_POINTS = "share_of_points_on_nodes"
WAITING, WAITING_NODE = "nodes_without_verdict", "node_without_verdict"


def past_words(rule: str, kind: str, facts: tuple[Fact, ...], *, reason: str, advice: str | None) -> Words:
    """Return the words about a past finding; a custom rule has written ``reason`` and ``advice`` itself."""
    text = spec_of(rule).text
    if text is None or not kind:
        return Words(reason, advice)
    try:
        return text(FactSheet(Status.FIRED, kind, facts, past=True))
    except (LookupError, TypeError, ValueError):
        # Stored facts may be of another version of the rule; the job's other rules go on.
        return Words(f"{rule} found {kind.replace('_', ' ')}, as an earlier version of it says.")


def kept_words(rule: str, result: RuleResult, *, longest: int) -> tuple[str, str | None]:
    """Return the words to store beside a finding's facts: nothing, where these make them again."""
    if result.kind and spec_of(rule).text is not None:
        return "", None
    reason, advice = result.kept_texts
    return reason[:longest], None if advice is None else advice[:longest]


def over_nodes(reason: str, facts: Sequence[Fact], worst: str, waiting: Sequence[str] = ()) -> str:
    """Return the words about several nodes from the ``worst`` node's ``reason`` and counts of nodes and points."""
    numbers = {fact.name: float(fact.value) for fact in facts}
    nodes, fired = numbers.get(NODES, 1.0), numbers.get(NODES_FIRED, 0.0)
    if fired:
        reason = f"{fired:.0f} of {nodes:.0f} nodes fire; worst {worst}: {reason}"
    judged = numbers.get(POINTS_JUDGED)
    if judged:
        seen = numbers[POINTS_SEEN]
        share = show_percent(100.0 * numbers[SHARE_OF_POINTS])
        reason += f" Over the judged nodes: {seen:,.0f} of {judged:,.0f} points ({share})."
    if waiting:
        reason += f" {len(waiting)} of {nodes:.0f} nodes without a verdict: {listed(waiting, NAMED_NODES)}."
    return reason


def since_silent(reason: str, silent: Fact) -> str:
    """Return what was found on a node that has fallen silent, and for how long it has been."""
    return f"{reason} The node has written nothing for the last {show_duration(float(silent.value))}."


def never_judged(reason: str, *, read: bool) -> str:
    """Return why a rule that waited until the end does not apply; ``read`` says whether any object could be read."""
    if not read:
        return "Ended without a profile: no object of it could be read."
    first, second = reason[:1], reason[1:2]
    # A name such as GPU keeps its capitals.
    begin = first.lower() if second.islower() else first
    return f"Ended without what the rule needs: {begin}{reason[1:]}"


def once_found(found: str, now: str, *, held: tuple[float, float], at: float | None) -> str:
    """Return what was found in ``held`` and what holds ``at``, epoch seconds; None where the stream ended."""
    since, until = held
    then = "At the end" if at is None else f"By {clock_times(iso_time(at), iso_time(at))}"
    return f"{clock_times(iso_time(since), iso_time(until))}: {found} {then}: {now}"


MINUTE_S = 60.0
MOST_GPUS = 16

TEXT_LENGTH = 600


class Liveness(Enum):
    """How an episode stands when nodes fall silent: ``STALE``, or ``RESTARTED`` where it began after that."""

    KNOWN = "known"
    STALE = "unheard"
    RESTARTED = "anew"


class StoredEpisode(msgspec.Struct, array_like=True):
    """One episode as it is stored; times are event time in epoch seconds.

    ``start`` is the onset, ``held_at`` the last evaluation at which the condition held, ``ended_at`` when the rule says
    that it was over, although its finding stands. ``idle_node`` is as in the newest result. Words and facts are kept of
    the newest, the longest and the longest idle episode.
    """

    start: float
    held_at: float
    measured: float | None = None
    gpus: list[str] = msgspec.field(default_factory=list)
    ended_at: float | None = None
    idle_node: IdleNode | None = None
    reason: str = ""
    advice: str = ""
    kind: str = ""
    facts: tuple[Fact, ...] = ()

    @property
    def until(self) -> float:
        return self.held_at if self.ended_at is None else self.ended_at

    def take_in(self, rule: str, result: RuleResult, *, not_before: float) -> None:
        """Add a result at which the condition holds; the episode began no earlier than ``not_before``."""
        if result.onset is not None and math.isfinite(result.onset):
            self.start = max(min(result.onset, self.start), not_before)
        over = result.until is not None and math.isfinite(result.until) and result.until >= self.start
        self.ended_at = result.until if over else None
        self.idle_node = result.idle_node
        reason, advice = kept_words(rule, result, longest=TEXT_LENGTH)
        self.reason, self.advice = reason, advice or ""
        self.kind, self.facts = result.kind, result.facts
        threshold = result.threshold or 0.0
        if result.measured is not None and (
            self.measured is None or abs(result.measured - threshold) > abs(self.measured - threshold)
        ):
            self.measured = result.measured
        new = [gpu for gpu in result.gpus if gpu not in self.gpus]
        self.gpus = sorted([*self.gpus, *new], key=lambda gpu: (len(gpu), gpu))[:MOST_GPUS]


class FiringHistory(msgspec.Struct, omit_defaults=True):
    """One rule's firing history on one node; times are event time in epoch seconds.

    ``violations`` counts the event minutes at whose evaluation the condition held, ``judged`` those at which the rule
    could tell. ``episodes`` are the newest ones, oldest first; ``times_fired`` counts all.
    """

    is_open: bool = False
    violations: int = 0
    times_fired: int = 0
    alerted: int = -1
    fired_at: float | None = None
    clean_since: float | None = None
    last_violation_minute: int | None = None
    judged: int = 0
    last_judged_minute: int | None = None
    alerted_severity: str | None = None
    episodes: list[StoredEpisode] = msgspec.field(default_factory=list)

    @property
    def affected_share(self) -> float | None:
        """Share, 0 to 1, of the judged evaluations at which the condition held; None while nothing was judged."""
        return self.violations / self.judged if self.judged else None

    @property
    def earlier_episodes(self) -> int:
        return max(self.times_fired - len(self.episodes), 0)

    def shown_episodes(self, rule: str) -> tuple[Episode, ...]:
        """Return the episodes for people: the last one goes on while it is open and its condition holds."""
        last = len(self.episodes) - 1
        holds = self.is_open and self.clean_since is None
        return tuple(
            _shown(rule, each, goes_on=holds and place == last and each.ended_at is None)
            for place, each in enumerate(self.episodes)
        )

    def update(self, *, holds: bool, watermark_s: float, clear_after_s: float, judged: bool = True) -> bool:
        """Add an evaluation at ``watermark_s``; True when it begins an episode. Not ``judged``: it could not tell."""
        minute = int(watermark_s // MINUTE_S)
        if judged and minute != self.last_judged_minute:
            self.judged += 1
            self.last_judged_minute = minute
        if not holds:
            self._clean(watermark_s, clear_after_s)
            return False
        if minute != self.last_violation_minute:
            self.violations += 1
            self.last_violation_minute = minute
        self.clean_since = None
        if self.is_open:
            return False
        self.is_open = True
        self.times_fired += 1
        self.fired_at = watermark_s
        self.episodes.append(StoredEpisode(watermark_s, watermark_s))
        del self.episodes[:-MOST_EPISODES]
        return True

    def note(self, rule: str, result: RuleResult, *, watermark_s: float) -> None:
        """Add a result at which the condition holds, at event time ``watermark_s``, to the open episode."""
        newest = self.episodes[-1]
        newest.held_at = max(newest.held_at, watermark_s)
        before = self.episodes[-2].held_at if len(self.episodes) > 1 else -math.inf
        newest.take_in(rule, result, not_before=before)
        longest = _longest(self.episodes)
        # A node that did nothing at all has lost more than one that was low for as long.
        idlest = _longest([each for each in self.episodes if each.idle_node is not None] or [longest])
        for each in self.episodes:
            if all(each is not kept for kept in (newest, longest, idlest)):
                each.reason = each.advice = each.kind = ""
                each.facts = ()

    def end(self, rule: str) -> None:
        """Keep of the newest episode what stays true: its condition holds no more, and the job goes on."""
        if self.episodes and (over := spec_of(rule).over) is not None:
            newest = self.episodes[-1]
            newest.kind, newest.facts = over(newest.kind, newest.facts)

    def _clean(self, watermark_s: float, clear_after_s: float) -> None:
        if not self.is_open:
            return
        if self.clean_since is None:
            self.clean_since = watermark_s
        if watermark_s - self.clean_since >= clear_after_s:
            self.is_open = False
            self.clean_since = None


def _longest(episodes: Sequence[StoredEpisode]) -> StoredEpisode:
    return max(episodes, key=lambda each: each.until - each.start)


def _shown(rule: str, each: StoredEpisode, *, goes_on: bool) -> Episode:
    words = past_words(rule, each.kind, each.facts, reason=each.reason, advice=each.advice)
    return Episode(
        start=each.start,
        end=None if goes_on else each.until,
        gpus=tuple(each.gpus),
        measured=each.measured,
        idle_node=each.idle_node,
        reason=words.reason,
        advice=words.advice or "",
        kind=each.kind,
        facts=each.facts,
    )


def fire_id(job_arn: str, rule: str, episode: int) -> str:
    """Return the name of a fire: the same for every node and every repeat of one episode of a job's rule."""
    return hashlib.sha256(f"{job_arn}\n{rule}\n{episode}".encode()).hexdigest()[:20]
