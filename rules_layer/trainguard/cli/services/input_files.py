"""Files that a person gives on the command line: parameters of rules, and prices."""

from collections.abc import Mapping
from pathlib import Path

from trainguard.cli.services.names import similar
from trainguard.cli.services.own_rules import rule_at
from trainguard.core.errors import ParameterFileError, PriceTableError
from trainguard.local.settings import GivenSettings, read_given, rule_settings
from trainguard.pricing.table import PriceTable, packaged_prices, read_prices
from trainguard.rules.extension import AnyRule
from trainguard.rules.parameters import Defaults, parameters_of, read_parameter_file
from trainguard.rules.protocol import RuleParameters


def settings_from(file: Path | None, defaults: Defaults = "documented") -> Mapping[str, str]:
    """Return the rule settings of a parameter file, if any; raises ParameterFileError, RuleConfigError."""
    if file is None:
        return {}
    return rule_settings(str(file), read_given(file, ParameterFileError), defaults)


def rule_from(place: str, file: Path | None) -> tuple[AnyRule, RuleParameters]:
    """Return the rule at ``module:Class`` with a file's parameters; raises RuleLoadError, ParameterFileError."""
    rule = rule_at(place)
    settings: Mapping[str, str] = {}
    if file is not None:
        settings = read_parameter_file(str(file), read_given(file, ParameterFileError), others=[rule.name])
    return rule, parameters_of(rule.name, rule.parameters_type, settings)


def given_settings(
    params: Path | None,
    prices: Path | None,
    instance_type: str | None,
    *,
    framework_expected: bool = False,
    defaults: Defaults = "documented",
) -> GivenSettings:
    """Return the settings for jobs that are judged here; raises as `settings_from` and `prices_from` do."""
    return GivenSettings(
        rule_settings=settings_from(params, defaults),
        instance_type=instance_type,
        framework_expected=framework_expected,
        prices=prices_from(prices),
    )


def unpriced(instance_type: str | None, table: PriceTable | None) -> list[str]:
    """Return a note, with the nearest type, where the table has no price of an instance type that a person gave."""
    known = table or packaged_prices()
    if instance_type is None or known.hourly(instance_type) is not None:
        return []
    near = similar(instance_type, (name for name, row in known.instances.items() if row.per_hour is not None))
    perhaps = f" Perhaps you mean {near[0]}." if near else ""
    return [f"No price of {instance_type} is known, so findings have no cost.{perhaps}"]


def prices_from(file: Path | None) -> PriceTable | None:
    return None if file is None else read_prices(str(file), read_given(file, PriceTableError))
