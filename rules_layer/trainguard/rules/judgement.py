"""Former place and name of `rule_result.RuleResult`: custom rules import them from here."""

from trainguard.rules.rule_result import IdleNode
from trainguard.rules.rule_result import RuleResult as Judgement

__all__ = ["IdleNode", "Judgement"]
