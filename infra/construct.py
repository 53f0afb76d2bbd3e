"""TrainGuard in the CDK application of others; the wheel has it as `trainguard_cdk`."""

from typing import Any

from aws_cdk import Environment, IStackSynthesizer, Token
from constructs import Construct

from infra import overlay
from infra.config import DeploymentConfig
from infra.stack import TrainGuardStack

__all__ = ["TrainGuard"]


class TrainGuard(TrainGuardStack):
    """A stack of its own, beside those of the application.

    ``settings`` are those of the context, by name, as values of Python; the stack's name is ``construct_id`` unless
    given. A text, or each of a list, may be a reference, such as ``bucket.bucket_name``. Raises DeploymentConfigError
    for all faults at once, BundlingError or BytecodeError where the functions' layer cannot be built.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        env: Environment | None = None,
        synthesizer: IStackSynthesizer | None = None,
        **settings: Any,
    ) -> None:
        chosen = {"stack_name": construct_id, **settings}
        config = DeploymentConfig.from_values(chosen, _references(settings))
        super().__init__(
            scope,
            construct_id,
            config=config,
            overlay=overlay.chosen(config),
            stack_name=config.stack_name,
            env=env,
            synthesizer=synthesizer,
        )


def _references(settings: dict[str, Any]) -> frozenset[str]:
    """Return the names of settings that CloudFormation resolves."""
    listed = {name: value if isinstance(value, list | tuple) else [value] for name, value in settings.items()}
    return frozenset(name for name, parts in listed.items() if any(Token.is_unresolved(part) for part in parts))
