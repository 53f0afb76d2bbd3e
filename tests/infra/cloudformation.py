"""What CloudFormation makes of a template with parameters: conditions decided, references to parameters replaced."""

import json
from collections.abc import Mapping
from typing import Any

# In place of ``AWS::NoValue``.
GONE = object()


class Resolver:
    """Reads a template as CloudFormation does for a stack of a name with parameters, given as text."""

    def __init__(self, document: Mapping[str, Any], given: Mapping[str, str], *, stack_name: str) -> None:
        self._values: dict[str, Any] = {"AWS::StackName": stack_name, "AWS::NoValue": GONE}
        self._document = document
        for name, declared in document.get("Parameters", {}).items():
            text = str(given[name] if name in given else declared["Default"])
            self._values[name] = text
        self._conditions: dict[str, bool] = {}
        for name, expression in document.get("Conditions", {}).items():
            self._conditions[name] = self._decide(expression)

    def resources(self) -> dict[str, Any]:
        """Return the resources that there are, by their logical ids."""
        return {
            name: self.value({key: part for key, part in body.items() if key != "Condition"})
            for name, body in self._document["Resources"].items()
            if "Condition" not in body or self._conditions[body["Condition"]]
        }

    def outputs(self) -> dict[str, Any]:
        """Return the values of the outputs."""
        outputs = self._document["Outputs"].items()
        return {
            name: self.value(each["Value"])
            for name, each in outputs
            if self._conditions.get(each.get("Condition"), True)
        }

    def refusals(self) -> list[str]:
        """Return what the rules say about the parameters, as CloudFormation does before it begins."""
        return [
            assertion["AssertDescription"]
            for rule in self._document.get("Rules", {}).values()
            if self._decide(rule["RuleCondition"])
            for assertion in rule["Assertions"]
            if not self._decide(assertion["Assert"])
        ]

    def value(self, value: Any) -> Any:
        """Return a part of the template; what only a deployed stack knows stands as text such as ``{Topic.Arn}``."""
        if isinstance(value, list):
            return [part for part in map(self.value, value) if part is not GONE]
        if not isinstance(value, dict):
            return str(value)
        if len(value) == 1:
            ((name, argument),) = value.items()
            if name == "Ref":
                return self._values.get(argument, "{" + argument + "}")
            if name.startswith("Fn::"):
                return self._call(name, argument)
        parts = {name: self.value(part) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part is not GONE}

    def _call(self, name: str, argument: Any) -> Any:
        if name == "Fn::If":
            condition, holds, fails = argument
            return self.value(holds if self._conditions[condition] else fails)
        parts = self.value(argument)
        if name == "Fn::Join":
            separator, texts = parts
            return separator.join(texts)
        if name == "Fn::Split" and "{" not in parts[1]:
            separator, text = parts
            return text.split(separator)
        if name == "Fn::Select" and isinstance(parts[1], list):
            return parts[1][int(parts[0])]
        return "{" + name + json.dumps(parts) + "}"

    def _decide(self, expression: Mapping[str, Any]) -> bool:
        ((name, argument),) = expression.items()
        if name == "Fn::Not":
            return not self._decide(argument[0])
        if name == "Condition":
            return self._conditions[argument]
        if name == "Fn::And":
            return all(map(self._decide, argument))
        if name == "Fn::Or":
            return any(map(self._decide, argument))
        if name == "Fn::Equals":
            left, right = argument
            return bool(self.value(left) == self.value(right))
        raise AssertionError(f"{name} is no function of conditions that is used here")
