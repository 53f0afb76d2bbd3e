"""The Lambda layer with the rules and their dependencies."""

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.bundling import layer_folder
from infra.overlay import Overlay
from infra.rules_package import read_rules_package


def architecture(overlay: Overlay) -> lambda_.Architecture:
    """Return Lambda's architecture of the overlay."""
    return lambda_.Architecture.ARM_64 if overlay.architecture == "arm64" else lambda_.Architecture.X86_64


def runtime(overlay: Overlay) -> lambda_.Runtime:
    """Return Lambda's Python runtime of the overlay."""
    return lambda_.Runtime(f"python{overlay.python_version}", lambda_.RuntimeFamily.PYTHON)


class RulesLayer(lambda_.LayerVersion):
    """The package `trainguard`, numpy, msgspec and Powertools, as one layer that every function shares.

    Raises RulesPackageError when the deployment's own rules, at ``rules_package``, cannot be deployed.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, overlay: Overlay, rules_package: str | None = None
    ) -> None:
        package = None if rules_package is None else read_rules_package(rules_package)
        super().__init__(
            scope,
            construct_id,
            code=lambda_.Code.from_asset(str(layer_folder(overlay, rules_package=package))),
            compatible_architectures=[architecture(overlay)],
            compatible_runtimes=[runtime(overlay)],
            description="TrainGuard's rules and their dependencies",
        )
