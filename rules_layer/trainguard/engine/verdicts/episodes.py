"""A rule's firing history on one node: when a condition that holds is a new fire, and the episodes in which it held.

A rule's result says whether its condition holds now. An episode begins at the first evaluation at which it does and
ends after three clean windows; only the beginning is a fire. ``alerted`` remembers the job's episode number that the
fire was enqueued for, so that a node enqueues one fire an episode of the job, however often its own condition flaps;
``alerted_severity`` how grave that fire was.

Who reads a finding wants to know when it was: an episode runs from the onset, as the data show it, to the last
evaluation at which the condition held. The newest episodes are kept, those before them are counted.
"""

import hashlib
import math
from collections.abc import Sequence
from enum import Enum

import msgspec

from trainguard.engine.verdicts.words import kept_words, past_words
from trainguard.finding import MOST_EPISODES, Episode, Fact
from trainguard.rules.rule_result import IdleNode, RuleResult

MINUTE_S = 60.0
MOST_GPUS = 16
"""So many GPUs of an episode are named."""

TEXT_LENGTH = 600
"""So much of what was said in an episode is kept."""


class Liveness(Enum):
    """How an episode stands when nodes fall silent; see `liveness`.

    ``KNOWN``: it is open or over, as it says. ``STALE``: it was open when the last of its nodes fell silent.
    ``ANEW``: it is open only where it began after all the others had fallen silent.
    """

    KNOWN = "known"
    STALE = "unheard"
    ANEW = "anew"


class StoredEpisode(msgspec.Struct, array_like=True):
    """One episode as it is stored; times are event time in epoch seconds.

    ``start`` is the onset, ``held_at`` the last evaluation at which the condition held. ``ended_at`` is when the rule
    says that it was over, although its finding stands. ``idle_node`` is as in the newest result; of the newest episode,
    of the longest and of the longest of an idle node ``kind`` and ``facts`` are kept, of a rule that gives none its
    ``reason`` and ``advice``.
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
        """When it was over, as far as that is known."""
        return self.held_at if self.ended_at is None else self.ended_at

    def take_in(self, rule: str, result: RuleResult, *, not_before: float) -> None:
        """Take in a result at which the condition holds; the episode began no earlier than ``not_before``."""
        if result.onset is not None and math.isfinite(result.onset):
            self.start = max(min(result.onset, self.start), not_before)
        over = result.until is not None and math.isfinite(result.until) and result.until >= self.start
        self.ended_at = result.until if over else None
        self.idle_node = result.idle_node
        reason, advice = kept_words(rule, result.kind, *result.kept_texts, longest=TEXT_LENGTH)
        self.reason, self.advice = reason, advice or ""
        self.kind, self.facts = result.kind, result.facts
        if _is_worse(result, self.measured):
            self.measured = result.measured
        new = [gpu for gpu in result.gpus if gpu not in self.gpus]
        self.gpus = sorted([*self.gpus, *new], key=lambda gpu: (len(gpu), gpu))[:MOST_GPUS]


def _is_worse(result: RuleResult, measured: float | None) -> bool:
    """Whether a result's measure is further from its threshold than ``measured``."""
    if result.measured is None or measured is None:
        return result.measured is not None
    threshold = result.threshold or 0.0
    return abs(result.measured - threshold) > abs(measured - threshold)


class FiringHistory(msgspec.Struct, omit_defaults=True):
    """One rule's firing history on one node; times are event time in epoch seconds.

    ``violations`` counts the event minutes at whose evaluation the condition held, ``judged`` those at which the rule
    could tell whether it does. ``episodes`` are the newest ones, oldest first; ``times_fired`` counts all.
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
        """How many episodes there were before the oldest that is kept."""
        return max(self.times_fired - len(self.episodes), 0)

    def shown_episodes(self, rule: str) -> tuple[Episode, ...]:
        """Return the episodes as people read them: the last one goes on while it is open and its condition holds."""
        last = len(self.episodes) - 1
        holds = self.is_open and self.clean_since is None
        return tuple(
            _shown(rule, each, goes_on=holds and place == last and each.ended_at is None)
            for place, each in enumerate(self.episodes)
        )

    def update(self, *, holds: bool, watermark_s: float, clear_after_s: float, judged: bool = True) -> bool:
        """Take in one evaluation at watermark ``watermark_s``; True when it begins an episode.

        ``judged`` says whether the rule could tell: while it warms up, the condition neither holds nor not.
        """
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
        self._begin(watermark_s)
        return True

    def note(self, rule: str, result: RuleResult, *, watermark_s: float) -> None:
        """Take a result at which the condition holds, at event time ``watermark_s``, into the open episode."""
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

    def _begin(self, start: float) -> None:
        self.episodes.append(StoredEpisode(start, start))
        del self.episodes[:-MOST_EPISODES]

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
