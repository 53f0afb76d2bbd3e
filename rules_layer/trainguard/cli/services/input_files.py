"""Files that a person gives on the command line: parameters of rules, and prices."""

from collections.abc import Mapping
from pathlib import Path

from trainguard.cli.output.files import read_body
from trainguard.cli.services.own_rules import rule_at
from trainguard.errors import PriceTableError
from trainguard.local.settings import rule_settings
from trainguard.pricing.table import PriceTable, read_prices
from trainguard.rules.defaults import Defaults
from trainguard.rules.extension import AnyRule
from trainguard.rules.parameters import parameters_of, read_parameter_file
from trainguard.rules.protocol import RuleParameters


def settings_from(file: Path | None, defaults: Defaults = "documented") -> Mapping[str, str]:
    """Return the rule settings of a parameter file, which may be none.

    Raises
    ------
    ParameterFileError, RuleConfigError
        When the file cannot be used, or a rule cannot take one of its settings.
    """
    if file is None:
        return {}
    return rule_settings(str(file), read_body(file), defaults)


def rule_from(place: str, file: Path | None) -> tuple[AnyRule, RuleParameters]:
    """Return the rule at ``module:Class``, found from the working folder too, and what a parameter file says of it.

    Raises
    ------
    RuleLoadError, ParameterFileError, RuleConfigError
        When there is no such rule, it breaks the protocol, or the file or a setting of the rule cannot be used.
    """
    rule = rule_at(place)
    settings = {} if file is None else read_parameter_file(str(file), read_body(file), others=[rule.name])
    return rule, parameters_of(rule.name, rule.parameters_type, settings)


def prices_from(file: Path | None) -> PriceTable | None:
    """Return the price table of a file, which may be none; raises PriceTableError."""
    if file is None:
        return None
    try:
        body = file.read_bytes()
    except OSError as fault:
        raise PriceTableError(str(file), fault.strerror or str(fault)) from fault
    return read_prices(str(file), body)
