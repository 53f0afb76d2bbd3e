"""``trainguard explain``."""

import time
from typing import Annotated

from trainguard.cli.command import Result, command
from trainguard.cli.options import Job, Where, argument, option, rule_names


@command(loads_rules=("own_rule", "rules_package"))
def explain(
    job: Job,
    rule: Annotated[str, argument("RULE", "The rule's name in any case, or its beginning.", autocompletion=rule_names)],
    *,
    node: Annotated[str | None, option("--node", "N", "On one node, such as algo-3; else on the job.")] = None,
    where: Where,
) -> Result:
    """Say why a rule is in the state in which it is: what it measured, since when, what was done, what comes.

    Examples: `trainguard explain my-job lowgpu`, `trainguard explain my-job step --node algo-2 --json`
    """
    from trainguard.cli.commands.explain.blocks import FOREIGN, explanation_blocks
    from trainguard.cli.commands.explain.explanation import explained
    from trainguard.cli.output.result import CommandResult
    from trainguard.cli.services.deployment import connect
    from trainguard.cli.services.job_list import read_job
    from trainguard.cli.services.names import EVERY_RULE, rule_named

    record, rows = read_job(connect(where).stores, job)
    name, now = rule_named(rule, [stored.rule for stored in rows]), time.time()
    found = explained(job, record, rows, rule=name, node=node)
    notes = [] if name in EVERY_RULE else [FOREIGN.format(name)]
    return CommandResult(document=found.document(now), blocks=explanation_blocks(found, now=now), notes=notes)
