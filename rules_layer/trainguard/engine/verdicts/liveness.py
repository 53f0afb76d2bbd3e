"""Liveness of a job's finding when nodes fall silent: silence says nothing about the finding.

A node has fallen silent when the furthest stream of its kind is three windows of the rule, and at least a quarter of an
hour, ahead of it. It may be gone for good. It may wait for an upload, for the end of a long step, or for its turn. The
finding of the whole job, its alerted episode ``n``, has one of these states:

========== ============================================ ===============================================================
state      the nodes whose episode is open              what follows
========== ============================================ ===============================================================
OPEN       at least one still writes                    a graver severity sends an escalation
STALE      all of them have fallen silent               no notification; the number stays
ANEW       those that write began after the others      the number is raised: their next evaluation is fire ``n + 1``
           had fallen silent
OVER       none                                         an all-clear is sent; the number is raised
========== ============================================ ===============================================================

* STALE sends no notification and does not raise the number. A node that comes back with its condition goes on in the
  episode that it has alerted, and is no second fire.
* Within one episode a second node's fire sends no alert. Without ANEW, a node that is gone for good would hold the
  episode open for ever. So a node whose condition began after all open nodes had fallen silent, by its own time,
  raises the number: its next evaluation at which the condition holds is a fire with an alert.
* A silent node that comes back after that joins the newer episode. Where that is over, too, it is a new fire, as the
  last notification was an all-clear.

The state follows from episodes and watermarks alone; nothing of it is stored. A tick that comes late sees the same.
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from trainguard.engine.verdicts.episodes import Liveness
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.engine.verdicts.words import SILENT, since_silent
from trainguard.finding import Fact
from trainguard.records import JOB_NODE, Status

VANISHED_S = 900.0
"""A node that is less far behind the others has not fallen silent, whatever the rule's windows."""


def with_liveness(verdict: Verdict, watermark_s: float | None, ahead: float | None) -> Verdict:
    """Return a node's verdict as it counts for the job, with its watermark.

    The open episode of a node that has fallen silent does not count as open, nor that of a rule that has failed.

    Parameters
    ----------
    verdict : Verdict
        As the node's stream says.
    watermark_s, ahead : float or None
        Watermarks of this stream and of the furthest of its kind, epoch seconds.
    """
    verdict = replace(verdict, watermark_s=watermark_s)
    silent_s = (ahead or 0.0) - (watermark_s or 0.0)
    failed = verdict.result.status is Status.ERROR
    if not verdict.history.is_open or not (failed or silent_s >= _silent_after_s(verdict)):
        return verdict
    history = msgspec.structs.replace(verdict.history, is_open=False)
    if failed:
        return replace(verdict, history=history)
    fact = Fact(name=SILENT, value=silent_s, unit="s", start=watermark_s, end=ahead)
    facts = (*verdict.result.facts, fact)
    result = replace(verdict.result, status=Status.OK, reason=since_silent(verdict.result.reason, fact), facts=facts)
    return replace(verdict, result=result, history=history, liveness=Liveness.STALE)


def liveness_of(parts: Mapping[str, Verdict]) -> Liveness:
    """Return how the job's newest alerted episode stands, from its verdicts by node."""
    latest = max(part.history.alerted for part in parts.values())
    stale = [part for part in parts.values() if part.liveness is Liveness.STALE and part.history.alerted == latest]
    if not stale:
        return Liveness.KNOWN
    began = [part.history.fired_at or 0.0 for part in parts.values() if part.history.is_open]
    if not began:
        return Liveness.STALE
    silent_since = max((part.watermark_s or 0.0) + _silent_after_s(part) for part in stale)
    return Liveness.ANEW if min(began) >= silent_since else Liveness.KNOWN


def ends_episode(verdict: Verdict) -> bool:
    """Whether the job's episode ends with this verdict, so that the next fire is one of its own."""
    if verdict.liveness is Liveness.KNOWN:
        return not verdict.history.is_open
    return verdict.liveness is Liveness.ANEW


def known_until(parts: Mapping[str, Verdict]) -> float | None:
    """Return up to when the job's verdict is known, epoch seconds; None while there is no watermark.

    A finding: up to the newest watermark among the nodes that it is open on, however far others have come. That there
    is none: up to the watermark of the last of the nodes that are heard of.
    """
    fired = [part.watermark_s for part in parts.values() if part.history.is_open and part.watermark_s is not None]
    if fired:
        return max(fired)
    marks = {
        name: part.watermark_s for name, part in parts.items() if name != JOB_NODE and part.watermark_s is not None
    }
    ahead = max(marks.values(), default=0.0)
    heard = [mark for name, mark in marks.items() if ahead - mark < _silent_after_s(parts[name])]
    whole = parts.get(JOB_NODE)
    return min(heard, default=None if whole is None else whole.watermark_s)


def _silent_after_s(verdict: Verdict) -> float:
    return max(verdict.clear_after_s, VANISHED_S)
