"""``trainguard stops``: reads both stop switches, and writes the operators' own.

The stack is found in whatever state it is: stops must be forbidden also where a deployment has failed.
"""

import time
from collections.abc import Sequence

from trainguard.aws.aws_errors import translated
from trainguard.aws.ssm import SsmStopSwitch
from trainguard.cli.options import Where
from trainguard.cli.output.aws_advice import advised
from trainguard.cli.output.rendering import Block, Line, TerminalFacts
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services.brakes import known_brakes, with_brakes
from trainguard.cli.services.deployment import Deployment, look_up
from trainguard.core.brakes import Braked, BrakeList
from trainguard.core.errors import PortUnavailableError
from trainguard.stack.actions.stop_switch import StopSwitch, StopSwitches

OWN_OUTPUT = "StopSwitchParameter"
OVERRIDE_OUTPUT = "StopSwitchOverrideParameter"

_PATTERN = f"^({'|'.join(StopSwitch)})$"
_MEANINGS = {
    StopSwitch.ENABLED: "TrainGuard may stop training jobs whose owners allow it",
    StopSwitch.DRY_RUN: "TrainGuard stops nothing, and alerts say what it would have stopped",
    StopSwitch.DISABLED: "TrainGuard stops nothing",
}
_UNKNOWN = "unknown"


def shown_switch(where: Where) -> CommandResult:
    deployment = look_up(where)
    switches, now = _read(deployment), time.time()
    result = _result(deployment, switches.deployed, switches.override)
    found = known_brakes(deployment)
    held = tuple(each for each in found.brakes if each.what is not Braked.ALERTS)
    return with_brakes(result, BrakeList(held, found.faults), now)


def written_switch(word: str, where: Where) -> CommandResult:
    """Write the operators' switch; return what is in force then."""
    value = StopSwitch(word)
    deployment = look_up(where)
    with translated("ssm", "PutParameter"):
        deployment.clients.ssm.put_parameter(
            Name=deployment.output(OVERRIDE_OUTPUT),
            Value=value,
            Type="String",
            Overwrite=True,
            AllowedPattern=_PATTERN,
            Description="Operators' stop switch of TrainGuard: enabled, dry-run or disabled. No upgrade writes it.",
        )
    try:
        deployed = _read(deployment).deployed
    except PortUnavailableError as fault:
        # The switch is written, although it may not be read.
        note = f"The stack's own value is unknown: {advised(fault)}"
        return _result(deployment, None, value, written=value, notes=[note])
    return _result(deployment, deployed, value, written=value)


def _read(deployment: Deployment) -> StopSwitches:
    own, override = deployment.output(OWN_OUTPUT), deployment.output(OVERRIDE_OUTPUT)
    return SsmStopSwitch(client=deployment.clients.ssm, parameter=own, override=override).read()


def _result(
    deployment: Deployment,
    deployed: str | None,
    override: str | None,
    *,
    written: StopSwitch | None = None,
    notes: Sequence[str] = (),
) -> CommandResult:
    """Return the stricter of both switches, None where unreadable, as what is in force."""
    in_force = StopSwitch.DISABLED if override == StopSwitch.DISABLED else None
    if deployed is not None:
        in_force = StopSwitches(deployed, override).in_force
    blocks: list[Block] = [
        TerminalFacts(
            [
                ("stack", f"{deployment.stack}, account {deployment.account}, {deployment.region}"),
                ("in force", _UNKNOWN if in_force is None else f"{in_force}: {_MEANINGS[in_force]}"),
                ("deployed", _UNKNOWN if deployed is None else deployed),
                ("override", "none" if override is None else override),
            ]
        )
    ]
    if written is StopSwitch.ENABLED and in_force not in {None, written}:
        blocks.append(Line(f"The stack deploys {deployed!r}: deploy it with -c stop_switch=enabled."))
    if written is not None:
        blocks.append(Line("It counts from the next decision on. A stop that was decided before is not taken back."))
    document = {
        "stack": deployment.stack,
        "region": deployment.region,
        "account": deployment.account,
        "in_force": in_force,
        "deployed": deployed,
        "override": override,
        "parameter": deployment.output(OWN_OUTPUT),
        "override_parameter": deployment.output(OVERRIDE_OUTPUT),
    }
    return CommandResult(document=document, blocks=blocks, notes=notes)
