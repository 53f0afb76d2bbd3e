"""A profiler rule of a training job, as the SageMaker Python SDK has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainguard.config.container import DEFAULT_IMAGE, ConfiguredRule, Value, container_code
from trainguard.config.rule_configs import RuleConfig
from trainguard.core.errors import LaunchConfigError
from trainguard.rules.profiler_report import PROFILER_REPORT

_WHERE = "ProfilerRule"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerRule(ConfiguredRule):
    """A rule: one of TrainGuard's by `sagemaker`, or a container by `custom`, whose ``config`` is None."""

    config: RuleConfig | None = None

    @classmethod
    def sagemaker(
        cls,
        base_config: RuleConfig,
        name: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
    ) -> "ProfilerRule":
        """Return one of the twelve rules; raises LaunchConfigError when ``base_config`` is none of `rule_configs`."""
        if not isinstance(base_config, RuleConfig):
            expected = f"an object of trainguard.config.rule_configs, such as {PROFILER_REPORT}()"
            raise LaunchConfigError(f"{_WHERE}.sagemaker", "base_config", base_config, expected)
        return cls(
            name=name or base_config.rule_name,
            image_uri=DEFAULT_IMAGE,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            rule_parameters=base_config.rule_parameters,
            config=base_config,
        )

    @classmethod
    def custom(  # noqa: PLR0913, PLR0917 -- the parameters that launch code passes
        cls,
        name: str,
        image_uri: str,
        instance_type: str,
        volume_size_in_gb: int,
        source: str | None = None,
        rule_to_invoke: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        rule_parameters: Mapping[str, Value] | None = None,
    ) -> "ProfilerRule":
        """Return a rule in a container; raises LaunchConfigError for one of ``source`` and ``rule_to_invoke`` alone."""
        code = container_code(f"{_WHERE}.custom", source, rule_to_invoke)
        return cls(
            name=name,
            image_uri=image_uri,
            instance_type=instance_type,
            volume_size_in_gb=volume_size_in_gb,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            rule_parameters=code | dict(rule_parameters or {}),
        )

    def to_profiler_rule_config_dict(self) -> dict[str, Any]:
        """Return an entry of ``ProfilerRuleConfigurations`` of CreateTrainingJob."""
        return self.request({name: str(value) for name, value in self.rule_parameters.items()})
