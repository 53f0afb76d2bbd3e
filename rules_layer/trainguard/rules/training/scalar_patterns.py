"""Settings for the names of scalars: ``ScalarNames_losses`` and the like, each a regular expression."""

from collections.abc import Mapping
from typing import ClassVar

from trainguard.core.errors import RuleConfigError
from trainguard.formats.tensors.name_patterns import NamePatternError, name_pattern
from trainguard.rules.family_rules import SCALAR_NAMES, TRAINING, bare
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import ParameterHelp, SettingsSpec

_PATTERN = "pattern"
SPEC = SettingsSpec(
    name=SCALAR_NAMES,
    family=TRAINING,
    looks_at="names of scalars",
    fires_when="never: the settings say what names mean",
    parameters={
        "losses": ParameterHelp(_PATTERN, "names with a match are losses"),
        "metrics": ParameterHelp(_PATTERN, "names with a match are metrics"),
        "learning_rate": ParameterHelp(_PATTERN, "names with a match are the learning rate"),
        "gradient_norm": ParameterHelp(_PATTERN, "names with a match are the norm of gradients"),
        "evaluation": ParameterHelp(_PATTERN, "names with a match are of evaluation, all others of training"),
        "ignored": ParameterHelp(_PATTERN, "names with a match are not used"),
    },
)


class ScalarNamesParameters(RuleParameters, frozen=True, kw_only=True):
    """A regular expression for each meaning of a name, searched in it; None leaves the documented one."""

    rule_name: ClassVar[str] = bare(SCALAR_NAMES)

    losses: str | None = None
    metrics: str | None = None
    learning_rate: str | None = None
    gradient_norm: str | None = None
    evaluation: str | None = None
    ignored: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no regular expression, or could take too long."""
        for meaning, pattern in self.replaced().items():
            try:
                name_pattern(pattern)
            except NamePatternError as fault:
                setting = f"{self.rule_name}_{meaning}"
                raise RuleConfigError(self.rule_name, setting, pattern, f"a regular expression ({fault})") from fault

    def replaced(self) -> Mapping[str, str]:
        """Return the patterns that are given, by meaning."""
        given = {meaning: getattr(self, meaning) for meaning in SPEC.parameters}
        return {meaning: text for meaning, text in given.items() if text is not None}
