"""What rules over profiles and over tensors share: their fields in CreateTrainingJob, and parameters as text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainguard.core.errors import LaunchConfigError, RuleConfigError

DEFAULT_IMAGE = "DEFAULT_RULE_EVALUATOR_IMAGE"

Value = float | int | str | bool | None


def written(rule: str, name: str, value: object) -> str:
    """Return a parameter's value as a setting says it; raises RuleConfigError for what is no value."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, int | float | str):
        return str(value)
    raise RuleConfigError(rule, name, value, "a number, a text, True, False or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredRule:
    """A rule as CreateTrainingJob has it."""

    name: str
    image_uri: str
    instance_type: str | None = None
    container_local_output_path: str | None = None
    s3_output_path: str | None = None
    volume_size_in_gb: int | None = None
    rule_parameters: Mapping[str, Value] = field(default_factory=dict)

    def request(self, texts: Mapping[str, str]) -> dict[str, Any]:
        optional = {
            "InstanceType": self.instance_type,
            "VolumeSizeInGB": self.volume_size_in_gb,
            "LocalPath": self.container_local_output_path,
            "S3OutputPath": self.s3_output_path,
            "RuleParameters": texts,
        }
        named = {"RuleConfigurationName": self.name, "RuleEvaluatorImage": self.image_uri}
        return named | {name: value for name, value in optional.items() if value}


def container_code(where: str, source: str | None, rule_to_invoke: str | None) -> dict[str, Value]:
    """Return the parameters of a container's code; raises LaunchConfigError for one of the two alone."""
    if bool(source) != bool(rule_to_invoke):
        pair = f"source={source!r}, rule_to_invoke={rule_to_invoke!r}"
        raise LaunchConfigError(where, "source", pair, "both of them, or neither")
    return {"source_s3_uri": source, "rule_to_invoke": rule_to_invoke} if source else {}
