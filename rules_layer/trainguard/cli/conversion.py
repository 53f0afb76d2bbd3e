"""Commands and groups that convert plain words by themselves.

typer asks pydantic to convert every option, even one that is not given, and importing pydantic takes as long as numpy.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption


class _ConvertsPlainWords:
    get_params: Callable[[Any], list[TyperArgument | TyperOption]]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for each in self.get_params(ctx):
            each.process_value = partial(_converted, each, each.process_value)  # type: ignore[method-assign]
        return super().parse_args(ctx, args)  # type: ignore[misc,no-any-return]  # of the class beside it


class PlainCommand(_ConvertsPlainWords, TyperCommand):
    """A command whose texts, paths and options that are not given need no pydantic."""


class PlainGroup(_ConvertsPlainWords, TyperGroup):
    """The same of a group's own options."""


def _converted(parameter: TyperArgument | TyperOption, usual: Any, context: Any, value: Any) -> Any:
    """Return a parameter's value, as typer would; what is no plain word is left to ``usual``."""
    kind = parameter.type_descriptor.annotation
    source = context.get_parameter_source(parameter.name)
    is_default = source is not None and source.name == "DEFAULT" and not parameter.required
    if isinstance(value, str) and kind is Path:
        value = Path(value)
    elif type(value) is not kind and (not is_default or parameter.multiple or parameter.nargs != 1):
        return usual(context, value)
    return value if parameter.callback is None else parameter.callback(context, parameter, value)
