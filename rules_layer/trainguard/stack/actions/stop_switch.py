"""The stop switch: the stack's value, which a deployment may write any time, and the operators' stricter override."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

_VALUE_LIMIT = 40


class StopSwitch(StrEnum):
    """Values of the stop switch, the strictest last."""

    ENABLED = "enabled"
    DRY_RUN = "dry-run"
    DISABLED = "disabled"


_STRICTNESS = {switch: place for place, switch in enumerate(StopSwitch)}


@dataclass(frozen=True, slots=True)
class StopSwitches:
    """Both values as they are stored; ``override`` is None where there is none."""

    deployed: str
    override: str | None = None

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
