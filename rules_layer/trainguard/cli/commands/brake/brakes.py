"""``trainguard brake``: lists, adds and releases brakes. The stack is found in whatever state it is."""

from trainguard.cli.options import Where
from trainguard.cli.output.rendering import Block, Line
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import iso
from trainguard.cli.services.brakes import BRAKES_OUTPUT, brake_entries, brake_store, brake_table, caller, put_brake
from trainguard.cli.services.deployment import Deployment, look_up
from trainguard.cli.services.names import rule_named
from trainguard.core.brakes import Brake, Braked, BrakeList, new_brake, released
from trainguard.core.errors import RequestError, UnknownNameError
from trainguard.rules import family_rules

_AT_ONCE = "It reaches running jobs within a minute."


def listed(where: Where, *, now: float) -> CommandResult:
    deployment = look_up(where)
    return _result(deployment, brake_store(deployment).read(), now)


def added(
    what: str, where: Where, *, why: str, job: str | None, rule: str | None, until: float | None, now: float
) -> CommandResult:
    """Add a brake; raises RequestError for what no brake can be."""
    deployment = look_up(where)
    try:
        name = None if rule is None else rule_named(rule, family_rules.names())
    except UnknownNameError as fault:
        raise RequestError(str(fault), "Name a custom rule's package with --rules-package DIR.") from fault
    by = caller(deployment.clients)

    def make(identity: str) -> Brake:
        return new_brake(identity, Braked(what), by=by, why=why, now=now, job=job, rule=name, until=until)

    brake, found = put_brake(brake_store(deployment), make, now)
    return _result(deployment, found, now, said=f"Added {brake.id}: {brake.scope}. {_AT_ONCE}")


def released_brakes(brake_id: str | None, where: Where, *, now: float) -> CommandResult:
    """Release a brake, or all; raises RequestError for one that is not in force."""
    deployment = look_up(where)
    store, by = brake_store(deployment), caller(deployment.clients)
    before = store.read()
    ids = {each.id for each in before.in_force(now) if brake_id in {None, each.id}}
    if brake_id is not None and not ids:
        there = ", ".join(each.id for each in before.in_force(now)) or "none"
        raise RequestError(f"no brake {brake_id!r} is in force", f"In force: {there}.")
    if not ids and not before.faults:
        return _result(deployment, before, now)
    found = store.change(lambda brakes: released(brakes, ids, by=by, now=now), now=now)
    return _result(deployment, found, now, said=f"Released {', '.join(sorted(ids)) or 'none'}. {_AT_ONCE}")


def _result(deployment: Deployment, found: BrakeList, now: float, *, said: str | None = None) -> CommandResult:
    """Return the brakes as they are; of faults it says that they are not written again where somebody has written."""
    blocks: list[Block] = [] if said is None else [Line(said)]
    blocks.append(brake_table(found.brakes, now) if found.brakes else Line("No brake is on."))
    document = {
        "generated_at": iso(now),
        "stack": deployment.stack,
        "region": deployment.region,
        "account": deployment.account,
        "parameter": deployment.output(BRAKES_OUTPUT),
        "brakes": brake_entries(found.brakes, now),
        "faults": found.faults,
    }
    written = "It is not written again: the parameter's history has it."
    then = "Until then nothing is stopped." if said is None else written
    return CommandResult(document=document, blocks=blocks, notes=[f"{fault}. {then}" for fault in found.faults])
