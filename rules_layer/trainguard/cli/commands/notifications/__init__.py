"""``trainguard notifications``."""

import sys
from typing import Annotated

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import Where, option, refuse


@command()
def notifications(
    *,
    prefix: Annotated[list[str] | None, option("--prefix", "TEXT", "Announce keys with this beginning alone.")] = None,
    without_eventbridge: Annotated[
        bool, typer.Option("--without-eventbridge", help="Take EventBridge off the bucket, too.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the stack's notifications off the bucket.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Write the configuration; else it is shown alone.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it is written.")] = False,
    where: Where,
    as_json: bool,
) -> Result:
    """Have an existing bucket notify the stack's queue of new objects, beside all other notifications that it has.

    Without --apply nothing is written: the change is shown, with the command of AWS that makes it.

    Examples: `trainguard notifications`, `trainguard notifications --prefix runs/ --without-eventbridge --apply`
    """
    if remove:
        refuse("--remove", {"--prefix": prefix, "--without-eventbridge": without_eventbridge})
    if not apply:
        refuse("a configuration that is shown alone", {"--yes": yes})
    from trainguard.cli.output.rendering import show, stdout_console
    from trainguard.cli.services.bucket_notifications import ExistingBucket, change_blocks, change_result
    from trainguard.cli.services.deployment import find_deployment
    from trainguard.core.errors import RequestError

    if apply and not yes and (as_json or not sys.stdin.isatty()):
        raise RequestError("--apply asks before it writes, and there is no terminal to answer on", "Add --yes.")
    bucket = ExistingBucket(find_deployment(where), where.profile)
    before = bucket.read()
    after = (
        bucket.without(before) if remove else bucket.announcing(before, prefix or (), events=not without_eventbridge)
    )
    if after == before or not apply:
        return change_result(bucket, before, after)
    if not yes:
        show(stdout_console(), change_blocks(bucket, before, after))
        if not typer.confirm(f"Write these notifications to {bucket.name}?"):
            return change_result(bucket, before, after, refused=True)
    bucket.replace(before, after)
    return change_result(bucket, before, after, written=True)
