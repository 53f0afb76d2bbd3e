"""Examples in a command's docstring, shown as a list at the end of its help, next to where the next command is typed.

The paragraph that begins with ``Examples:`` holds command lines between backticks::

    Examples: `trainguard jobs --fired`, `trainguard jobs --active --json`
"""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import typer

_BEGINNING = "Examples:"
_COMMAND_LINE = re.compile(r"`([^`]+)`")


def split_docstring(function: Callable[..., Any]) -> tuple[str, Sequence[str]]:
    """Return a command's help without its examples, and the examples; a paragraph, and an example, is one line."""
    paragraphs = [" ".join(each.split()) for each in (inspect.getdoc(function) or "").split("\n\n")]
    help_text = "\n\n".join(each for each in paragraphs if not each.startswith(_BEGINNING))
    written = (each for each in paragraphs if each.startswith(_BEGINNING))
    return help_text, [found for each in written for found in _COMMAND_LINE.findall(each)]


def list_examples(app: typer.Typer) -> Sequence[str]:
    """Move the examples of all commands of ``app`` to the end of their help; a group's help ends in all of its own."""
    shown: list[str] = []
    for command in app.registered_commands:
        if command.callback is not None:
            command.help, examples = split_docstring(command.callback)
            command.epilog = _listed(examples)
            shown += examples
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.epilog = _listed(list_examples(group.typer_instance))
    return shown


def _listed(examples: Sequence[str]) -> str | None:
    """Return the examples a line each, in the markup that typer reads."""
    lines = (each.replace("[", "\\[") for each in examples)
    return "\n  ".join([_BEGINNING, *lines]) if examples else None
