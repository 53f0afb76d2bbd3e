"""Sentences about a job that stands still, from the facts of a verdict."""

import msgspec

from trainguard.core.finding import Status
from trainguard.hangs.files import known_hang
from trainguard.hangs.verdict import HangVerdict
from trainguard.rules.hung_job.text import facts_of, what_to_do, who
from trainguard.rules.rule_result import FactSheet

_MOST_NAMED = 8


def with_words(verdict: HangVerdict) -> HangVerdict:
    sheet = FactSheet(Status.FIRED, "", facts_of(known_hang(verdict), {}))
    reason = who(sheet)
    return msgspec.structs.replace(verdict, reason=f"{reason[:1].upper()}{reason[1:]}.", advice=what_to_do(sheet))


def said_ranks(ranks: list[int]) -> str:
    """Return ranks in words: few are named, of many the first and how many more there are."""
    named = ", ".join(map(str, ranks[:_MOST_NAMED]))
    more = f" and {len(ranks) - _MOST_NAMED:,} more" if len(ranks) > _MOST_NAMED else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {named}{more}"
