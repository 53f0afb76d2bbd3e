"""``trainguard params``: a group, so that a word for another command may stand where a rule does."""

from typing import Annotated

import typer

from trainguard.cli.command import PlainGroup, Result, command
from trainguard.cli.options import (
    DEFAULT_STACK,
    DefaultsOf,
    Stack,
    Where,
    argument,
    defaults_option,
    job_option,
    rule_names,
)

_SHOW = "show"


class _ShowsByDefault(PlainGroup):
    """A group in which ``show`` may be left out: what is no command's name is a rule, or an option of it."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # click's own
        asks_help = len(args) == 1 and args[0] in ctx.help_option_names
        if not asks_help and (not args or args[0] not in self.commands):
            args = [_SHOW, *args]
        return super().parse_args(ctx, args)


params = typer.Typer(
    name="params",
    cls=_ShowsByDefault,
    help="Show the rules, or what a rule's parameters mean, accept, default to, and are on a job.",
)


@params.command(_SHOW)
@command(loads_rules=("own_rule", "rules_package"))
def show(
    rule: Annotated[
        str | None,
        argument("RULE", "A rule of any family, in any case, or its beginning; else all.", autocompletion=rule_names),
    ] = None,
    *,
    job: Annotated[str | None, job_option("Show what that job runs with, and why.")] = None,
    defaults: Annotated[DefaultsOf | None, defaults_option("Show these defaults alone.")] = None,
    where: Where,
) -> Result:
    """Show the rules in a line each, or the parameters of one. The word show may be left out.

    Examples: `trainguard params`, `trainguard params ClassImbalance`, `trainguard params step --job my-job`,
    `trainguard params HostMemory --rules-package examples/example_rules`
    """
    from trainguard.cli.commands.params.shown import GROUPS, parameters_result, rules_result
    from trainguard.cli.services.names import known_job, rule_named

    name, record = None if rule is None else rule_named(rule, GROUPS), None
    if job is not None:
        from trainguard.cli.services.deployment import connect

        record = known_job(connect(where).stores.jobs, job)
    return rules_result(record) if name is None else parameters_result(name, record, defaults)


@params.command()
@command(loads_rules=("own_rule", "rules_package"))
def validate(
    given: Annotated[
        list[str],
        argument("FILE|TAG", "A JSON file (settings, tags, or a CreateTrainingJob request), or trainguard:NAME=VALUE."),
    ],
    *,
    stack: Stack = DEFAULT_STACK,
) -> Result:
    """Check settings before a job starts with them: all that is wrong, at once. It needs no deployment.

    The exit code is 1 when anything is wrong, and 2 when a file cannot be read.

    Examples: `trainguard params validate settings.json`,
    `trainguard params validate trainguard:stop-rules=all trainguard:stop-grace=10m`
    """
    from trainguard.cli.commands.params.validation import validated

    return validated(given, stack)
