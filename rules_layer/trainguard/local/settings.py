"""Rule settings from a document of parameters, checked against the installed rules."""

from collections.abc import Mapping

from trainguard.errors import ParameterFileError
from trainguard.families.installed import FAMILIES
from trainguard.records import JobRecord
from trainguard.rules.defaults import Defaults
from trainguard.rules.parameters import read_parameter_file
from trainguard.rules.training.names import NAMES as TRAINING_NAMES


def rule_settings(name: str, body: bytes, defaults: Defaults = "documented") -> Mapping[str, str]:
    """Return the rule settings of a document of JSON.

    A rule of training that cannot take its settings is in error alone, as in the deployed stack and in the managed
    service; the others are evaluated.

    Parameters
    ----------
    name : str
        What the document is called in a message.
    body : bytes
    defaults : {"documented", "shipped"}

    Raises
    ------
    ParameterFileError, RuleConfigError
        When the document cannot be used, or a rule that is none of training cannot take one of its settings.
    """
    settings = read_parameter_file(name, body)
    alone = JobRecord(job="", arn="", bucket="", prefix="", rule_settings=settings)
    faults = FAMILIES.plan(alone, defaults=defaults).faults
    if refused := [str(fault) for rule, fault in faults.items() if rule not in TRAINING_NAMES]:
        raise ParameterFileError(name, "; ".join(refused))
    return settings
