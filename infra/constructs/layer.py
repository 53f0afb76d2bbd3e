"""The Lambda layer with the rules and their dependencies."""

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.bundling import layer_folder
from infra.overlay import Overlay
from infra.places import PROJECT_ROOT
from infra.rules_package import read_rules_package
from trainguard.core.errors import PriceTableError
from trainguard.pricing.table import read_prices


def architecture(overlay: Overlay) -> lambda_.Architecture:
    return lambda_.Architecture.ARM_64 if overlay.architecture == "arm64" else lambda_.Architecture.X86_64


def runtime(overlay: Overlay) -> lambda_.Runtime:
    return lambda_.Runtime(f"python{overlay.python_version}", lambda_.RuntimeFamily.PYTHON)


class RulesLayer(lambda_.LayerVersion):
    """The package `trainguard`, numpy, msgspec and Powertools, as one layer that every function shares.

    Raises RulesPackageError for ``rules_package``, and PriceTableError for the file ``prices``.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        overlay: Overlay,
        rules_package: str | None = None,
        prices: str | None = None,
    ) -> None:
        package = None if rules_package is None else read_rules_package(rules_package)
        table = None if prices is None else _price_table(prices)
        super().__init__(
            scope,
            construct_id,
            code=lambda_.Code.from_asset(str(layer_folder(overlay, rules_package=package, prices=table))),
            compatible_architectures=[architecture(overlay)],
            compatible_runtimes=[runtime(overlay)],
            description="TrainGuard's rules and their dependencies",
        )


def _price_table(place: str) -> bytes:
    """Return the file of a price table, relative to the project unless it is absolute; raises PriceTableError."""
    file = (PROJECT_ROOT / place).resolve()
    try:
        body = file.read_bytes()
    except OSError as fault:
        raise PriceTableError(str(file), fault.strerror or str(fault)) from fault
    read_prices(str(file), body)
    return body
