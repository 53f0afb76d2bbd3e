"""Makes a command of a function: its parameters are the options, its docstring is the help.

The function returns a `CommandResult`, or the exit code where it has printed by itself. A parameter whose type is a
dataclass, such as `Where`, stands for its fields. Every command also gets ``--json``, and ``--fail-on-fire`` where it
has it.
"""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from trainguard.cli.options import AsJson, FailOnFire, OwnRule, OwnRules, Where

if TYPE_CHECKING:
    from trainguard.cli.output.result import CommandResult


class _Plain:
    """Of texts, paths and options that are not given: they need no pydantic.

    Typer asks it to convert every option, even one that is not given, and importing it takes as long as numpy.
    """

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        for each in self.get_params(ctx):
            each.process_value = partial(_converted, each, each.process_value)
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]  # the command's or the group's
        return rest


class PlainCommand(_Plain, TyperCommand): ...


class PlainGroup(_Plain, TyperGroup): ...


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


_AS_JSON, _FAIL_ON_FIRE = "as_json", "fail_on_fire"
_RULE_OPTIONS = {"own_rule": OwnRule, "rules_package": OwnRules}

Result: TypeAlias = "CommandResult"
Function = Callable[..., "CommandResult | int"]


def command(
    *, fails_on_fire: bool = False, loads_rules: Sequence[str] = ()
) -> Callable[[Function], Callable[..., None]]:
    """Return a decorator for a command's function; a parameter of the name of an added option gets its value.

    ``loads_rules`` names options of custom rules, ``own_rule`` or ``rules_package``: these are known before it runs.
    """

    def made(function: Function) -> Callable[..., None]:
        own = inspect.signature(function).parameters
        groups: dict[str, Any] = {each.name: each.annotation for each in own.values() if is_dataclass(each.annotation)}

        @functools.wraps(function)
        def run(**given: Any) -> None:
            asked = {_AS_JSON: given.pop(_AS_JSON), _FAIL_ON_FIRE: given.pop(_FAIL_ON_FIRE, False)}
            rules = {name: given.pop(name) for name in loads_rules}
            given |= {name: value for name, value in (asked | rules).items() if name in own}
            for name, kind in groups.items():
                given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            # Output is slow to import, and `--help` must be fast.
            from trainguard.cli.output.result import print_result

            def made_here() -> "CommandResult | int":
                if any(rules.values()):
                    from trainguard.cli.services.own_rules import know

                    know(rule=rules.get("own_rule"), package=rules.get("rules_package"))
                return function(**given)

            raise typer.Exit(print_result(made_here, **asked))

        shown: list[inspect.Parameter] = []
        for each in own.values():
            if each.name in groups and each.annotation is not Where:
                shown += _options_of(groups[each.name])
            elif each.name not in {*groups, _AS_JSON, _FAIL_ON_FIRE, *loads_rules}:
                shown.append(each)
        shown += [_option(name, _RULE_OPTIONS[name], default=None) for name in loads_rules]
        shown += [_option(_FAIL_ON_FIRE, FailOnFire, default=False)] if fails_on_fire else []
        shown += _options_of(Where) if Where in groups.values() else []
        shown.append(_option(_AS_JSON, AsJson, default=False))
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = {each.name: each.annotation for each in shown}
        return run

    return made


def _option(name: str, annotation: Any, *, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _options_of(group: Any) -> list[inspect.Parameter]:
    return [_option(field.name, field.type, default=field.default) for field in fields(group)]


_BEGINNING = "Examples:"
_COMMAND_LINE = re.compile(r"`([^`]+)`")


def split_docstring(function: Callable[..., Any]) -> tuple[str, Sequence[str]]:
    """Return a command's help without its examples, and the examples; a paragraph, and an example, is one line."""
    paragraphs = [" ".join(each.split()) for each in (inspect.getdoc(function) or "").split("\n\n")]
    help_text = "\n\n".join(each for each in paragraphs if not each.startswith(_BEGINNING))
    written = (each for each in paragraphs if each.startswith(_BEGINNING))
    return help_text, [found for each in written for found in _COMMAND_LINE.findall(each)]


def complete(app: typer.Typer) -> Sequence[str]:
    """Give all commands of ``app`` what they share; return their examples.

    These move to the end of a command's help; a group's help ends in all of its own. Plain words are converted here.
    """
    shown: list[str] = []
    for command in app.registered_commands:
        command.cls = PlainCommand
        if command.callback is not None:
            command.help, examples = split_docstring(command.callback)
            command.epilog = _listed(examples)
            shown += examples
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.epilog = _listed(complete(group.typer_instance))
    return shown


def _listed(examples: Sequence[str]) -> str | None:
    lines = (each.replace("[", "\\[") for each in examples)
    return "\n  ".join([_BEGINNING, *lines]) if examples else None
