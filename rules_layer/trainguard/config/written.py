"""Values of parameters as settings and tags have them: text."""

from trainguard.core.errors import RuleConfigError

Value = float | int | str | bool | None


def written(rule: str, name: str, value: object) -> str:
    """Return a parameter's value as a setting says it; raises RuleConfigError for what is no value."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, int | float | str):
        return str(value)
    raise RuleConfigError(rule, name, value, "a number, a text, True, False or None")
