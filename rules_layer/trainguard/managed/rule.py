"""Parameters, window and report of the eleven sub-rules."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, get_args

import msgspec

from trainguard.managed.framework_stream import FrameworkWindow
from trainguard.managed.system_stream import SystemWindow

# Most rules drop their state then.
MAX_DATAPOINTS = 1_000_000

STEP_NAME = "Step:ModeKeys"

Number = int | float
P = TypeVar("P", bound="ManagedRuleParameters")


class ManagedRuleParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a sub-rule under the managed service's names, with the defaults of the container's code.

    ``documented`` holds the documentation's defaults where they differ; ``texts`` are no numbers.
    """

    documented: ClassVar[Mapping[str, Number | str | None]] = {}
    texts: ClassVar[frozenset[str]] = frozenset()

    def text(self) -> str:
        """Return the report's ``ManagedRuleParameters``."""
        return "\n".join(f"{name}:{value}" for name, value in self.shown())

    def shown(self) -> list[tuple[str, Number | str | None]]:
        """Return the names and values that the report shows, in its order: all fields, unless said otherwise."""
        return [(name, getattr(self, name)) for name in self.__struct_fields__]


@dataclass(frozen=True, slots=True)
class ManagedWindow:
    """What every sub-rule is fed: a closed window, in epoch microseconds, and its samples and events."""

    start_us: int
    end_us: int
    system: SystemWindow
    framework: FrameworkWindow


class CompatibleRule(ABC, Generic[P]):
    """A sub-rule of the managed report: owns its state for the whole job and is fed window after window.

    ``triggered``, ``violations``, ``details`` and ``datapoints`` are what its report says; ``details`` keeps the
    original's order of keys.
    """

    name: ClassVar[str]
    parameters_type: type[P]

    def __init_subclass__(cls) -> None:
        """Take the name of the rule from its class, and the type of its parameters from the base."""
        cls.name = cls.__name__.removeprefix("Managed")
        (cls.parameters_type,) = get_args(vars(cls)["__orig_bases__"][0])

    def __init__(self, parameters: P, first_us: int) -> None:
        self.parameters = parameters
        self.first_us = first_us
        self.triggered = self.violations = self.datapoints = 0
        self.details: dict[str, Any] = {}

    @abstractmethod
    def observe(self, window: ManagedWindow) -> None:
        """Fold one window in."""

    def finish(self) -> None:
        """Compute what only the last state of ``details`` needs; called once, after the last window."""
        return

    def report(self) -> dict[str, Any]:
        """Return the report with its keys in the original's order."""
        return {
            "RuleTriggered": self.triggered,
            "Violations": self.violations,
            "Details": self.details,
            "Datapoints": self.datapoints,
            "RuleParameters": self.parameters.text(),
        }


AnyCompatibleRule = CompatibleRule[Any]
