"""``trainguard notifications``."""

from typing import Annotated

import typer

from trainguard.cli.options import DEFAULT_STACK, AsJson, Profile, Region, Stack, refuse


def notifications(
    *,
    prefix: Annotated[
        list[str] | None,
        typer.Option("--prefix", metavar="TEXT", help="Announce keys with this beginning alone.", show_default=False),
    ] = None,
    without_eventbridge: Annotated[
        bool, typer.Option("--without-eventbridge", help="Take EventBridge off the bucket, too.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the stack's notifications off the bucket.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Write the configuration; else it is shown alone.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it is written.")] = False,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Have an existing bucket notify the stack's queue of new objects, beside all other notifications that it has.

    Without --apply nothing is written: the change is shown, with the command of AWS that makes it.

    Examples: `trainguard notifications`, `trainguard notifications --prefix runs/ --without-eventbridge --apply`
    """
    from trainguard.cli.commands.notifications.run import NotificationsRequest, notifications_command
    from trainguard.cli.services.deployment import Where

    if remove:
        refuse("--remove", {"--prefix": prefix, "--without-eventbridge": without_eventbridge})
    if not apply:
        refuse("a configuration that is shown alone", {"--yes": yes})
    request = NotificationsRequest(
        where=Where(stack=stack, region=region, profile=profile),
        prefixes=tuple(prefix or ()),
        without_eventbridge=without_eventbridge,
        remove=remove,
        apply=apply,
        asks=not yes,
        as_json=as_json,
    )
    raise typer.Exit(notifications_command(request))
