"""Episodes of firing: when a condition that holds is a new fire, and when it is over.

A rule's judgement says whether its condition holds now. An episode begins at the first evaluation at which it does and
ends after three clean windows; only the beginning is a fire. ``alerted`` remembers the job's episode number that the
fire was enqueued for, so that a node enqueues one fire an episode of the job, however often its own condition flaps;
``alerted_severity`` how grave that fire was.
"""

import hashlib
from enum import Enum

import msgspec

MINUTE_S = 60.0


class Liveness(Enum):
    """How an episode stands when nodes fall silent; see `silence`.

    ``KNOWN``: it is open or over, as it says. ``STALE``: it was open when the last of its nodes fell silent.
    ``ANEW``: it is open only where it began after all the others had fallen silent.
    """

    KNOWN = "known"
    STALE = "unheard"
    ANEW = "anew"


class Episode(msgspec.Struct):
    """One rule's firing history on one node; times are event time in epoch seconds.

    ``violations`` counts the event minutes at whose evaluation the condition held, ``judged`` those at which the rule
    could tell whether it does.
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

    @property
    def affected_share(self) -> float | None:
        """Share, 0 to 1, of the judged evaluations at which the condition held; None while nothing was judged."""
        return self.violations / self.judged if self.judged else None

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
        return True

    def _clean(self, watermark_s: float, clear_after_s: float) -> None:
        if not self.is_open:
            return
        if self.clean_since is None:
            self.clean_since = watermark_s
        if watermark_s - self.clean_since >= clear_after_s:
            self.is_open = False
            self.clean_since = None


def fire_id(job_arn: str, rule: str, episode: int) -> str:
    """Return the name of a fire: the same for every node and every repeat of one episode of a job's rule."""
    return hashlib.sha256(f"{job_arn}\n{rule}\n{episode}".encode()).hexdigest()[:20]
