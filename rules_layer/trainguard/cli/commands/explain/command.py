"""``trainguard explain``."""

from typing import Annotated

import typer

from trainguard.cli.options import DEFAULT_STACK, AsJson, Job, OwnRule, OwnRules, Profile, Region, Stack, rule_names


def explain(
    job: Job,
    rule: Annotated[
        str,
        typer.Argument(
            metavar="RULE",
            help="The rule's name in any case, or its beginning.",
            autocompletion=rule_names,
            show_default=False,
        ),
    ],
    *,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="N", help="On one node, such as algo-3; else on the job.", show_default=False),
    ] = None,
    own_rule: OwnRule = None,
    rules_package: OwnRules = None,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Say why a rule is in the state in which it is: what it measured, since when, what was done, what comes.

    Examples: `trainguard explain my-job lowgpu`, `trainguard explain my-job step --node algo-2 --json`
    """
    from trainguard.cli.services.own_rules import know

    know(rule=own_rule, package=rules_package)
    from trainguard.cli.commands.explain.run import explain_command
    from trainguard.cli.services.deployment import Where

    where = Where(stack=stack, region=region, profile=profile)
    raise typer.Exit(explain_command(where, job, rule, node=node, as_json=as_json))
