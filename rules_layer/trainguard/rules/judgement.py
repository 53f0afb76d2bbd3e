"""Former place of `rule_result`: rules of one's own import it from here."""

from trainguard.rules.rule_result import IdleNode, Judgement

__all__ = ["IdleNode", "Judgement"]
