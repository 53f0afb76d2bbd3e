"""The last word of a rule on a stream, or a job, that has ended."""

from dataclasses import replace

from trainguard.engine.verdicts.verdict import Verdict
from trainguard.engine.verdicts.words import never_judged
from trainguard.records import Status


def final(verdict: Verdict, watermark_s: float | None) -> Verdict:
    """Return the last word of a rule on a stream, or a job, that has ended at watermark ``watermark_s``.

    An open episode ends when its condition was last seen to hold. A rule that waits for data when there will be none
    any more does not apply; the sentence says whether anything was written at all.
    """
    result = verdict.result
    if result.status is not Status.WAITING_FOR_DATA:
        return _closed(verdict)
    reason = never_judged(result.reason, read=watermark_s is not None)
    return replace(verdict, result=replace(result, status=Status.NOT_APPLICABLE, reason=reason))


def _closed(verdict: Verdict) -> Verdict:
    held_until = verdict.history.episodes[-1].held_at if verdict.history.episodes else verdict.watermark_s
    episodes = [each if each.end is not None else replace(each, end=held_until) for each in verdict.episodes]
    return replace(verdict, merged=tuple(episodes), merged_earlier=verdict.earlier_episodes, ended=True)
