"""What names of scalars mean on a job: the documented patterns, or those of its settings."""

from trainguard.engine.plan import RulePlan
from trainguard.rules.training.names import SETTINGS
from trainguard.rules.training.scalar_patterns import ScalarNamesParameters
from trainguard.tensors.scalars.names import ScalarNames


def scalar_names(plan: RulePlan) -> ScalarNames:
    """Return the meanings of names; the documented ones where a pattern of the settings cannot be used."""
    parameters = plan.parameters.get(SETTINGS[0])
    return ScalarNames(parameters.replaced() if isinstance(parameters, ScalarNamesParameters) else {})
