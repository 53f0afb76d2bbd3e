"""Rule settings from a document of parameters, checked against the installed rules."""

from collections.abc import Mapping

from trainguard.errors import ParameterFileError
from trainguard.families.installed import FAMILIES
from trainguard.records import JobRecord
from trainguard.rules.defaults import Defaults
from trainguard.rules.parameters import read_parameter_file


def rule_settings(name: str, body: bytes, defaults: Defaults = "documented") -> Mapping[str, str]:
    """Return the rule settings of a document of JSON.

    Parameters
    ----------
    name : str
        What the document is called in a message.
    body : bytes
    defaults : {"documented", "shipped"}

    Raises
    ------
    ParameterFileError, RuleConfigError
        When the document cannot be used, or a rule cannot take one of its settings.
    """
    settings = read_parameter_file(name, body)
    alone = JobRecord(job="", arn="", bucket="", prefix="", rule_settings=settings)
    if faults := FAMILIES.plan(alone, defaults=defaults).faults:
        raise ParameterFileError(name, "; ".join(str(fault) for fault in faults.values()))
    return settings
