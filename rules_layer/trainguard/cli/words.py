"""What a rule and its parameters mean, also where no page says so: of rules of a deployment's own."""

import inspect

from trainguard.rules.glossary import RULES, SCAN_INTERVAL, ParameterWords, RuleWords
from trainguard.rules.protocol import FrameworkRule, JoinedRule, SystemRule
from trainguard.rules.registry import ALL_RULES

_FIRES = "fires when "
_OWN_CONDITION = "its own condition holds"
_UNSAID = ParameterWords("", "")


def words_of(rule: str) -> RuleWords:
    """Return the words for a rule: of the glossary, of the rule itself, or none that say much where it is not known."""
    if rule in RULES:
        return RULES[rule]
    known = next((each for each in ALL_RULES if each.name == rule), None)
    if known is None:
        return RuleWords(looks_at="", fires_when=_OWN_CONDITION, condition=_OWN_CONDITION)
    if isinstance(known, SystemRule):
        looks_at = "each node"
    else:
        looks_at = "each node's framework events" if isinstance(known, FrameworkRule | JoinedRule) else "the job"
    condition = _condition(type(known).__doc__)
    # Braces would stand for parameters.
    return RuleWords(looks_at, fires_when=condition, condition=condition.replace("{", "{{").replace("}", "}}"))


def words_of_parameter(rule: str, parameter: str) -> ParameterWords:
    """Return what a parameter means; empty words where nobody says so."""
    if parameter == "scan_interval_us":
        return SCAN_INTERVAL
    return words_of(rule).parameters.get(parameter, _UNSAID)


def _condition(docstring: str | None) -> str:
    """Return when a rule fires, by the first sentence of its class: ``Fires when …``."""
    sentence = " ".join(inspect.cleandoc(docstring or "").partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    if sentence.lower().startswith(_FIRES):
        return sentence[len(_FIRES) :]
    return f"{_OWN_CONDITION} ({sentence})" if sentence else _OWN_CONDITION
