"""Commands and groups that convert plain words by themselves.

typer asks pydantic to convert every option, even one that is not given, and importing pydantic takes as long as numpy.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption


class PlainCommand(TyperCommand):
    """A command whose texts, paths and options that are not given need no pydantic."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _convert(self.get_params(ctx))
        return super().parse_args(ctx, args)


class PlainGroup(TyperGroup):
    """The same of a group's own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _convert(self.get_params(ctx))
        return super().parse_args(ctx, args)


def _convert(parameters: Iterable[Any]) -> None:
    for each in parameters:
        each.process_value = partial(_converted, each, each.process_value)


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
