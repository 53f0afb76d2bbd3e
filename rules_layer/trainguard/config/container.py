"""What rules over profiles and over tensors share of CreateTrainingJob."""

from collections.abc import Mapping
from typing import Any

from trainguard.config.written import Value
from trainguard.core.errors import LaunchConfigError


def container_code(where: str, source: str | None, rule_to_invoke: str | None) -> dict[str, Value]:
    """Return the parameters of a container's code; raises LaunchConfigError for one of the two alone."""
    if bool(source) != bool(rule_to_invoke):
        pair = f"source={source!r}, rule_to_invoke={rule_to_invoke!r}"
        raise LaunchConfigError(where, "source", pair, "both of them, or neither")
    return {"source_s3_uri": source, "rule_to_invoke": rule_to_invoke} if source else {}


def rule_request(name: str, image_uri: str, optional: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule configuration of CreateTrainingJob, without what is not set."""
    named = {"RuleConfigurationName": name, "RuleEvaluatorImage": image_uri}
    return named | {field: value for field, value in optional.items() if value}
