"""Whether a rule is near a change, so that each minute of its stream counts and none may wait for the next one."""

from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.records import Status
from trainguard.rules.rule_result import RuleResult

CLOSE_SHARE = 0.1
"""A measure is close to its threshold when it differs by less than this share of it, on whichever side."""


def is_near(result: RuleResult, history: FiringHistory) -> bool:
    """Whether the rule may fire, or its episode may end, within minutes.

    An episode may end once its condition has stopped to hold. A rule may fire where it says so itself, or measures what
    is close to its threshold.
    """
    if history.is_open:
        return history.clean_since is not None
    return result.status in {Status.OK, Status.WARMING_UP} and (result.near or _is_close(result))


def _is_close(result: RuleResult) -> bool:
    if result.measured is None or not result.threshold:
        return False
    return abs(result.measured - result.threshold) < CLOSE_SHARE * abs(result.threshold)
