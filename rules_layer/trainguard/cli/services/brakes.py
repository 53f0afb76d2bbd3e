"""The operators' brakes for commands that show them beside something else."""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from trainguard.aws.brakes import SsmBrakes
from trainguard.aws.clients import Clients
from trainguard.cli.output.rendering import Block, Cell, Grid, Shown, TerminalColumn, heading, table
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services.deployment import Deployment
from trainguard.core.brakes import LONGEST_NAME, NO_BRAKES, Brake, BrakeList
from trainguard.core.errors import PortUnavailableError, RequestError

BRAKES_OUTPUT = "BrakesParameter"


def known_brakes(deployment: Deployment) -> BrakeList:
    """Return the brakes; where they cannot be read, that as a fault. An older stack has none."""
    if BRAKES_OUTPUT not in deployment.outputs:
        return NO_BRAKES
    try:
        return brake_store(deployment).read()
    except PortUnavailableError as fault:
        return BrakeList(faults=(f"The brakes are not known: {fault}",))


def brake_entries(brakes: Iterable[Brake], now: float) -> list[Mapping[str, Any]]:
    """Return the brakes as `--json` has them, the newest last."""
    return [msgspec.structs.asdict(each) | {"in_force": each.in_force(now)} for each in brakes]


def brake_table(brakes: Iterable[Brake], now: float) -> Grid:
    def until(brake: Brake) -> str:
        ended = "" if brake.in_force(now) else (" (released)" if brake.released_by else " (over)")
        return f"{'it is released' if brake.until is None else brake.until}{ended}"

    cells: Mapping[TerminalColumn, Callable[[Brake], Shown]] = {
        TerminalColumn("brake"): lambda brake: Cell(brake.id, "bold yellow" if brake.in_force(now) else "dim"),
        TerminalColumn("holds back", folds=True): lambda brake: brake.scope,
        TerminalColumn("since", drops=1): lambda brake: brake.since,
        TerminalColumn("until"): until,
        TerminalColumn("by", folds=True, drops=2): lambda brake: brake.by,
        TerminalColumn("why", folds=True): lambda brake: brake.why,
    }
    return table(brakes, cells)


def with_brakes(result: CommandResult, found: BrakeList, now: float, job: str | None = None) -> CommandResult:
    """Return a command's result with the brakes in force, on a job or on any, before all else."""
    brakes = [each for each in found.in_force(now) if job is None or each.job in {None, job}]
    shown: list[Block] = [heading("Brakes in force"), brake_table(brakes, now)] if brakes else []
    document = result.document if isinstance(result.document, Mapping) else msgspec.structs.asdict(result.document)
    return replace(
        result,
        document={**document, "brakes": brake_entries(brakes, now)},
        blocks=[*shown, *result.blocks],
        notes=[*result.notes, *found.faults],
    )


def put_brake(store: SsmBrakes, make: Callable[[str], Brake], now: float) -> tuple[Brake, BrakeList]:
    """Add the brake that is made of an identity; return it and all there are. Raises RequestError where none can be."""
    try:
        brake = make(f"b-{secrets.token_hex(3)}")
        found = store.change(lambda brakes: [*brakes, brake], now=now)
    except (ValueError, msgspec.ValidationError) as fault:
        raise RequestError(str(fault), "`trainguard brake list` shows the brakes there are.") from fault
    return brake, found


def brake_store(deployment: Deployment) -> SsmBrakes:
    return SsmBrakes(client=lambda: deployment.clients.ssm, parameter=deployment.output(BRAKES_OUTPUT))


def caller(clients: Clients) -> str:
    """Return who asks, as AWS knows them; the parameter's history has it too."""
    try:
        sts = clients.create("sts", None)
        return str(sts.get_caller_identity()["Arn"])[:LONGEST_NAME]  # type: ignore[attr-defined]
    except (ClientError, BotoCoreError):
        return "unknown"
