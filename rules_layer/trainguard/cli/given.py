"""Files that a person gives on the command line: parameters of rules, and prices."""

from collections.abc import Mapping
from pathlib import Path

from trainguard.cli.files import read_body
from trainguard.engine.plan import plan_rules
from trainguard.errors import ParameterFileError, PriceTableError
from trainguard.pricing.table import PriceTable, read_prices
from trainguard.records import JobRecord
from trainguard.rules.defaults import Defaults
from trainguard.rules.parameters import read_parameter_file


def settings_from(file: Path | None, defaults: Defaults = "documented") -> Mapping[str, str]:
    """Return the rule settings of a parameter file, which may be none.

    Raises
    ------
    ParameterFileError, RuleConfigError
        When the file cannot be used, or a rule cannot take one of its settings.
    """
    if file is None:
        return {}
    settings = read_parameter_file(str(file), read_body(file))
    alone = JobRecord(job="", arn="", bucket="", prefix="", rule_settings=settings)
    if faults := plan_rules(alone, defaults=defaults).faults:
        raise ParameterFileError(str(file), "; ".join(str(fault) for fault in faults.values()))
    return settings


def prices_from(file: Path | None) -> PriceTable | None:
    """Return the price table of a file, which may be none; raises PriceTableError."""
    if file is None:
        return None
    try:
        body = file.read_bytes()
    except OSError as fault:
        raise PriceTableError(str(file), fault.strerror or str(fault)) from fault
    return read_prices(str(file), body)
