"""What a rule said when its condition last held, for the time after: a finding that is over still needs its sentence.

The judgement of now says that nothing is wrong now. Whoever reads that a rule has fired wants to know what was found,
what it cost and what to do about it.
"""

from dataclasses import replace

import msgspec

from trainguard.rules.rule_result import IdleNode, Judgement
from trainguard.rules.units import show_duration

TEXT_LENGTH = 1_000
FIRST_MINUTE_S = 60.0
"""What lies between a stream's first sample and its first evaluation, about."""


class LastSeen(msgspec.Struct, array_like=True):
    """The judgement at the last evaluation at which the condition held, ``at`` epoch seconds of event time.

    ``since_s`` is how long the stream had been judged by then, from its first evaluation on.
    """

    at: float
    since_s: float
    reason: str
    advice: str | None
    worst: str | None
    wasted_share: float | None
    affected_share: float | None
    confidence: float | None
    idle_node: IdleNode | None

    @classmethod
    def of(cls, judgement: Judgement, *, at: float, began_at: float) -> "LastSeen":
        """Keep what matters of a judgement that holds."""
        return cls(
            at=at,
            since_s=at - began_at,
            reason=judgement.reason[:TEXT_LENGTH],
            advice=None if judgement.advice is None else judgement.advice[:TEXT_LENGTH],
            worst=judgement.worst,
            wasted_share=judgement.wasted_share,
            affected_share=judgement.affected_share,
            confidence=judgement.confidence,
            idle_node=judgement.idle_node,
        )

    def told_with(self, now: Judgement, through: float) -> Judgement:
        """Return the judgement of now, at the watermark ``through``, with what was found before it.

        Shares are of the time since the start: what was lost by then is a smaller share of the time until now.
        """
        elapsed_s = max(through - self.at, 0.0)
        fading = (self.since_s + FIRST_MINUTE_S) / (self.since_s + FIRST_MINUTE_S + elapsed_s)
        affected = [share for share in (now.affected_share, _faded(self.affected_share, fading)) if share is not None]
        return replace(
            now,
            reason=f"last seen {show_duration(elapsed_s)} ago: {self.reason} Now: {now.reason}",
            advice=self.advice,
            worst=self.worst,
            wasted_share=_faded(self.wasted_share, fading),
            affected_share=max(affected, default=None),
            confidence=self.confidence,
            idle_node=self.idle_node,
        )


def _faded(share: float | None, fading: float) -> float | None:
    return None if share is None else share * fading
