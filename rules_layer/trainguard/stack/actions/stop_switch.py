"""What may forbid a stop: the stack's value, which a deployment may write any time, and what operators set beside it.

These are a stricter override for the whole stack, and brakes, also on one job or rule.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from trainguard.core.brakes import NO_BRAKES, Braked, BrakeList

_VALUE_LIMIT = 40


class StopSwitch(StrEnum):
    """Values of the stop switch, the strictest last."""

    ENABLED = "enabled"
    DRY_RUN = "dry-run"
    DISABLED = "disabled"


_STRICTNESS = {switch: place for place, switch in enumerate(StopSwitch)}


@dataclass(frozen=True, slots=True)
class StopSwitches:
    """Both values and the brakes as they are stored; ``override`` is None where there is none."""

    deployed: str
    override: str | None = None
    brakes: BrakeList = NO_BRAKES

    def objection(self, *, job: str, rule: str, now: float) -> str | None:
        """Return why no stop may be made, by the switch or a brake; None where one may, or a dry run.

        A brake that cannot be read forbids stops. So does one on evaluation: whether a finding goes on is unknown.
        """
        if self.in_force is StopSwitch.DISABLED:
            return self.why
        if self.brakes.faults:
            return f"an operators' brake cannot be read: {self.brakes.faults[0]}"
        for what, of_rule in ((Braked.STOPS, rule), (Braked.EVALUATION, None)):
            brake = self.brakes.on(what, job=job, rule=of_rule, now=now)
            if brake is not None:
                return f"an operator has braked {brake.scope}: {brake.words}"
        return None

    @property
    def in_force(self) -> StopSwitch:
        """The stricter of the two; a value that is none of the three counts as disabled."""
        return max((meaning(value) for _, value in self._given()), key=_STRICTNESS.__getitem__)

    @property
    def why(self) -> str:
        """Phrase that names each value as strict as the one in force."""
        strictest = [(name, value) for name, value in self._given() if meaning(value) is self.in_force]
        return " and ".join(f"{name} is {value[:_VALUE_LIMIT]!r}" for name, value in strictest)

    def _given(self) -> Iterator[tuple[str, str]]:
        yield "the stop switch", self.deployed
        if self.override is not None:
            yield "its override", self.override


def is_known(value: str) -> bool:
    """Whether a value is one of the three, letter for letter."""
    return value in set(StopSwitch)


def meaning(value: str) -> StopSwitch:
    """Return a stored value's meaning: anything but the three is ``disabled``."""
    return StopSwitch(value) if is_known(value) else StopSwitch.DISABLED
