"""What is said of a rule that says nothing of itself: one of a deployment's own, or one that is not known here."""

import inspect
from typing import Any

from trainguard.rules.protocol import FrameworkRule, JoinedRule, Rule, SystemRule
from trainguard.rules.spec import FRAMEWORK, SYSTEM, RuleSpec

_FIRES = "fires when "
_OWN_CONDITION = "its own condition holds"


def spec_of_rule(rule: Rule[Any]) -> RuleSpec:
    """Return a rule's own spec, or one that is derived from its kind and the first sentence of its class."""
    given = getattr(rule, "spec", None)
    if isinstance(given, RuleSpec) and given.name == rule.name:
        return given
    looks_at, inputs = "the job", frozenset[Any]()
    if isinstance(rule, SystemRule):
        looks_at, inputs = "each node", SYSTEM
    elif isinstance(rule, FrameworkRule | JoinedRule):
        looks_at, inputs = "each node's framework events", FRAMEWORK
    condition = _condition(type(rule).__doc__)
    return RuleSpec(
        name=rule.name,
        looks_at=looks_at,
        fires_when=condition,
        # Braces would stand for parameters.
        condition=condition.replace("{", "{{").replace("}", "}}"),
        inputs=inputs,
    )


def spec_of_unknown(name: str) -> RuleSpec:
    """Return the spec of a rule of which only the name is known."""
    return RuleSpec(name=name, looks_at="", fires_when=_OWN_CONDITION, condition=_OWN_CONDITION)


def _condition(docstring: str | None) -> str:
    """Return when a rule fires, by the first sentence of its class: ``Fires when …``."""
    sentence = " ".join(inspect.cleandoc(docstring or "").partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    if sentence.lower().startswith(_FIRES):
        return sentence[len(_FIRES) :]
    return f"{_OWN_CONDITION} ({sentence})" if sentence else _OWN_CONDITION
