"""The deployment's stop switch: the value that the stack deploys, and the operators' override, which it never writes.

A deployment may write its own value at any time. So an emergency ``disabled`` lies in the override, and the stricter of
the two is in force.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

_VALUE_LIMIT = 40


class StopSwitch(StrEnum):
    """What the stop switch may say, the strictest last."""

    ENABLED = "enabled"
    DRY_RUN = "dry-run"
    DISABLED = "disabled"


_STRICTNESS = {switch: place for place, switch in enumerate(StopSwitch)}


@dataclass(frozen=True, slots=True)
class StopSwitches:
    """Both values as they are stored.

    Attributes
    ----------
    deployed : str
        Value of the stack's own parameter.
    override : str or None
        Value of the operators' parameter; None where there is none.
    """

    deployed: str
    override: str | None = None

    @property
    def in_force(self) -> StopSwitch:
        """The stricter of the two; a value that is none of the three counts as disabled."""
        return max((meaning(value) for _, value in self._given()), key=_STRICTNESS.__getitem__)

    @property
    def why(self) -> str:
        """Phrase that names each value which is as strict as what is in force."""
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
    """Return what a stored value stands for: anything but the three is ``disabled``."""
    return StopSwitch(value) if is_known(value) else StopSwitch.DISABLED
