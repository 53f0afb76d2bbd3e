"""Settings of the names of scalars: ``ScalarNames_losses`` and the like, each a regular expression in place of ours."""

from collections.abc import Mapping
from typing import ClassVar

from trainguard.errors import RuleConfigError
from trainguard.rules.protocol import RuleParameters
from trainguard.tensors.name_patterns import NamePatternError, name_pattern

_MEANINGS = ("losses", "metrics", "learning_rate", "gradient_norm", "evaluation", "ignored")


class ScalarNamesParameters(RuleParameters, frozen=True, kw_only=True):
    """A regular expression for each meaning of a name, searched in it; None leaves the documented one."""

    rule_name: ClassVar[str] = "ScalarNames"

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
        given = {meaning: getattr(self, meaning) for meaning in _MEANINGS}
        return {meaning: text for meaning, text in given.items() if text is not None}
