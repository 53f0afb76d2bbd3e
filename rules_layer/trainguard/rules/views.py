"""Former place of `rule_inputs`: rules of one's own import it from here."""

from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeFacts, NodeMinute, NodeView

__all__ = ["FrameworkView", "JobView", "NodeFacts", "NodeMinute", "NodeView"]
