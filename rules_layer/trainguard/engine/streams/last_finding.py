"""What a rule said when its condition last held, for the time after: a finding that is over still needs its sentence.

The judgement of now says that nothing is wrong now. Whoever reads that a rule has fired wants to know what was found
and what to do about it.
"""

from dataclasses import replace

import msgspec

from trainguard.engine.verdicts.words import kept_words, once_found, past_words
from trainguard.finding import Fact
from trainguard.rules.rule_result import IdleNode, RuleResult

TEXT_LENGTH = 1_000
FIRST_MINUTE_S = 60.0
"""What lies between a stream's first sample and its first evaluation, about."""


class LastFinding(msgspec.Struct, array_like=True):
    """The judgement at the last evaluation at which the condition held, ``at`` epoch seconds of event time.

    ``since_s`` is how long the stream had been judged by then, from its first evaluation on; ``until`` is when the
    condition was over as the rule said, epoch seconds.
    """

    at: float
    since_s: float
    kind: str
    facts: tuple[Fact, ...]
    reason: str
    advice: str | None
    worst: str | None
    affected_share: float | None
    confidence: float | None
    idle_node: IdleNode | None
    score: float | None = None
    until: float | None = None

    @classmethod
    def of(cls, rule: str, result: RuleResult, *, at: float, began_at: float) -> "LastFinding":
        """Keep what matters of a judgement that holds: its facts, and the words of a rule that gives none."""
        reason, advice = kept_words(rule, result.kind, *result.kept_texts, longest=TEXT_LENGTH)
        return cls(
            at=at,
            since_s=at - began_at,
            kind=result.kind,
            facts=result.facts,
            reason=reason,
            advice=advice,
            worst=result.worst,
            affected_share=result.affected_share,
            confidence=result.confidence,
            idle_node=result.idle_node,
            score=result.score,
            until=result.until,
        )

    def with_result(
        self, rule: str, now: RuleResult, watermark_s: float, *, start: float | None = None, closed: bool = False
    ) -> RuleResult:
        """Return the judgement of now, at the watermark ``watermark_s``, with what was found before it.

        ``start`` is when the condition began, epoch seconds; ``closed`` says that the stream has ended, so that there
        is no now. The share is of the time judged: what was seen by then is a smaller share of the time until now.
        """
        until = self.at if self.until is None else self.until
        since = until if start is None else min(start, until)
        elapsed_s = max(watermark_s - self.at, 0.0)
        fading = (self.since_s + FIRST_MINUTE_S) / (self.since_s + FIRST_MINUTE_S + elapsed_s)
        affected = [share for share in (now.affected_share, _faded(self.affected_share, fading)) if share is not None]
        found = past_words(rule, self.kind, self.facts, reason=self.reason, advice=self.advice)
        return replace(
            now,
            reason=once_found(found.reason, now.reason, held=(since, until), at=None if closed else watermark_s),
            advice=found.advice,
            found=found,
            kind=self.kind,
            facts=self.facts,
            facts_now=now.facts,
            worst=self.worst,
            affected_share=max(affected, default=None),
            confidence=self.confidence,
            idle_node=self.idle_node,
            score=self.score,
        )


def _faded(share: float | None, fading: float) -> float | None:
    return None if share is None else share * fading
