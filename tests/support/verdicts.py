"""Verdicts made by hand, as rules would give them."""

from typing import Any

from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Reach, Verdict
from trainguard.records import Status
from trainguard.rules.rule_result import RuleResult


def fired(rule: str, *, wasted: float | None = None, nodes: tuple[int, int] = (1, 1), **said: Any) -> Verdict:
    """Return the verdict of a rule that fires on so many of a job's nodes, each losing ``wasted`` of its time."""
    result = RuleResult(Status.FIRED, f"{rule} fired.", wasted_share=wasted, **said)
    episode = FiringHistory(is_open=True, violations=3, judged=4, times_fired=1, fired_at=60.0)
    affected, of = nodes
    return Verdict(rule, result, episode, reach=Reach(affected, of, None if wasted is None else wasted * affected))


def over(rule: str, *, wasted: float | None = None) -> Verdict:
    """Return the verdict of a rule that has fired and whose episode has ended."""
    result = RuleResult(Status.OK, f"{rule} is fine again.", wasted_share=wasted)
    return Verdict(rule, result, FiringHistory(violations=1, judged=4, times_fired=1, fired_at=60.0))


def quiet(rule: str, status: Status = Status.OK) -> Verdict:
    """Return the verdict of a rule that has never fired."""
    return Verdict(rule, RuleResult(status, f"{rule} is quiet."), FiringHistory())
