"""The references that are made of the code: the command line, rules with their parameters, settings of a deployment.

The texts are those of the commands and options themselves, in their order. Nothing of a terminal is in them, neither
width nor colour, so the page is the same wherever it is made.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import typer
from typer.core import TyperCommand, TyperGroup

from docs.site.documents import field_lines
from infra.config import DeploymentConfig
from trainguard.cli.commands.params.shown import parameters_result, rules_result
from trainguard.cli.main import app
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services.effective_parameters import SCAN_INTERVAL_US, value_text
from trainguard.kernels.rules.registry import KERNEL_RULES
from trainguard.rules.family_rules import bare
from trainguard.rules.registry import SPECS
from trainguard.rules.training.registry import TRAINING_RULES
from trainguard.rules.training.step_words import StepText

PAGE = "reference/cli.md"
KERNELS_PAGE = "reference/kernels.md"
RULES_PAGE = "reference/rules.md"
SETTINGS_PAGE = "reference/settings.md"
"""Their places in the site's sources, in which no file of them lies."""

_PROGRAM = "trainguard"
_HEAD = """\
# Command line reference

Every command with its arguments and options, as its `--help` shows them; [the command line](../cli.md) says what they
are for.
"""


def reference() -> str:
    """Return the page."""
    whole = typer.main.get_command(app)
    if not isinstance(whole, TyperGroup):
        raise TypeError(f"the command line is a {type(whole).__name__}, expected a group of commands")
    context = typer.Context(whole, info_name=_PROGRAM)
    sections = [_section(_PROGRAM, whole, context), *_sections(whole, context)]
    return "\n".join([_HEAD, *sections]).rstrip() + "\n"


def kernel_rules() -> str:
    """Return the page of the rules over kernel traces."""
    rows = [f"| `{rule.name}` | {_plain(rule.spec.fires_when)} |" for rule in KERNEL_RULES]
    head = "# Rules of kernel profiles\n\n[Kernel profiles](../kernels.md) says how their findings are ranked."
    return "\n".join([head, "", "| rule | fires when |", "|---|---|", *rows]) + "\n"


def rules() -> str:
    """Return the page of each rule's parameters, and of what a rule of training needs to be recorded."""
    sections = [_parameters(name, f"rules/{name}.md", "") for name in SPECS]
    for rule in TRAINING_RULES:
        needs = rule.text.needs if isinstance(rule.text, StepText) else ""
        sections.append(_parameters(rule.name, f"rules/training/{bare(rule.name)}.md", needs))
    head = "# Reference of rules"
    how = "`trainguard params RULE` shows them; [rules](../rules/README.md) says how they are set."
    return "\n\n".join([head, how, _lines(), *sections]) + "\n"


def _document(result: CommandResult) -> Any:
    """Return what ``--json`` prints, as plain values."""
    return msgspec.to_builtins(result.document)


def _lines() -> str:
    named = _document(rules_result(None))["rules"]
    rows = [(each["rule"], each["looks_at"], each["fires_when"]) for each in named if each["family"] != "kernels"]
    cells = [" | ".join((f"[{bare(rule)}](#{bare(rule).lower()})", *map(_cell, said))) for rule, *said in rows]
    return "\n".join(["| rule | looks at | fires when |", "|---|---|---|", *(f"| {row} |" for row in cells)])


def _parameters(rule: str, page: str, needs: str) -> str:
    lines = [f"## {bare(rule)}", "", f"{_cell(needs)} [When it fires](../{page}).".strip(), ""]
    rows = [
        (
            f"`{each['name']}`",
            _default(each["documented"]),
            *(_cell(each[key]) for key in ("unit", "accepts", "meaning")),
        )
        for each in _document(parameters_result(rule, None, None))["parameters"]
        if each["name"] != SCAN_INTERVAL_US
    ]
    if rows:
        lines += ["| parameter | default | unit | accepts | meaning |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines).rstrip()


def _default(value: str | float | bool | None) -> str:
    if isinstance(value, bool | None):
        return value_text(value)
    return f"<code>{_cell(value)}</code>" if isinstance(value, str) else f"{value:.7g}"


def _cell(text: str) -> str:
    return _plain(text).replace("|", "&#124;").replace("*", "&#42;")


def settings() -> str:
    """Return the page of the settings of a deployment, as the docstring of their class describes them."""
    attributes = inspect.cleandoc(DeploymentConfig.__doc__ or "").partition("----------\n")[2]
    defaults = {field.name: _shown(field.default) for field in dataclasses.fields(DeploymentConfig)}
    rows = []
    for listed, text in re.findall(r"^(\w.*?) : .*\n((?:    .*\n?)+)", attributes, re.MULTILINE):
        names, meaning = listed.split(", "), " ".join(text.replace("``", "`").split())
        shown = ", ".join(f"`{name}`" for name in names)
        rows.append(f"| {shown} | {', '.join(defaults[name] for name in names)} | {_plain(meaning)} |")
    head = "# Settings of a deployment\n\n[Deployment](../deployment.md) says how they are given."
    return "\n".join([head, "", "| name | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _shown(default: object) -> str:
    if default is None or default == ():
        return "none"
    return f"`{str(default).lower()}`" if isinstance(default, bool) else f"`{default}`"


def _sections(group: TyperGroup, above: typer.Context) -> Iterator[str]:
    """Yield a section for each command of a group, and below a group for each of its own."""
    for name, command in group.commands.items():
        if not isinstance(command, TyperCommand | TyperGroup):
            raise TypeError(f"{name} is a {type(command).__name__}, expected a command or a group")
        context = typer.Context(command, info_name=name, parent=above)
        yield _section(context.command_path.removeprefix(f"{_PROGRAM} "), command, context)
        if isinstance(command, TyperGroup):
            yield from _sections(command, context)


def _section(title: str, command: TyperCommand | TyperGroup, context: typer.Context) -> str:
    # Brackets stand around what may be left out; braces around the rest would say nothing more.
    usage = [piece.replace("{", "").replace("}", "") for piece in command.collect_usage_pieces(context)]
    lines = [f"## {title}", "", _plain(command.help or ""), ""]
    lines += ["```text", " ".join([context.command_path, *usage]), "```", ""]
    listed = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and (parameter.name != "help" or context.parent is None):
            name, meaning = record
            shown = parameter.metavar or name if parameter.param_type_name == "argument" else name
            listed.append(f"- `{shown}`: {_plain(' '.join(meaning.split()))}")
    lines += [*listed, ""] if listed else []
    heading, *examples = (command.epilog or "").split("\n")
    if examples and not isinstance(command, TyperGroup):
        lines += [heading, "", "```console", *(f"$ {each.strip()}" for each in examples), "```", ""]
    for fields in field_lines(title):
        lines += [fields, ""]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Return text in which Markdown sees no HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;")
