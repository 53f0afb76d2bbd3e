"""What a rule is: validated parameters, bounded state, and a pure judgement of it.

The engine owns ordering, snapshots, kept points and episodes; a rule folds what it is shown into its own state and
says, from state alone, whether its condition holds now. So a verdict is a function of the state, and the state a
function of the set of applied objects.
"""

import re
from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec

from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.spec import RuleSpec
from trainguard.telemetry.framework import FrameworkEvents

MIN_WINDOW_POINTS = 20
MAX_WINDOW_POINTS = 2_500
"""250 s at 100 ms, the shortest interval of the managed service; with eight GPUs about 85 kB of an item before it is
compressed, which holds 400 kB afterwards."""


Percent = Annotated[float, msgspec.Meta(ge=0.0, le=100.0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]
NonNegative = Annotated[float, msgspec.Meta(ge=0.0)]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]
PositiveInt = Annotated[int, msgspec.Meta(gt=0)]
WindowPoints = Annotated[int, msgspec.Meta(ge=1, le=MAX_WINDOW_POINTS)]


class RuleParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a rule under the managed service's names; a field's constraints are its type.

    ``scan_interval_us`` is accepted as the managed service does; evaluation is once an applied minute.
    """

    ignores_unknown: ClassVar[bool] = False
    """Whether a parameter that nobody knows is passed over and said, in place of a fault."""

    accepted: ClassVar[re.Pattern[str]] = re.compile("")
    """What is passed over without a word, of a rule that passes over anything."""

    scan_interval_us: PositiveInt = 60_000_000

    @classmethod
    def settable(cls) -> frozenset[str]:
        """Return the names of the parameters that a user may set."""
        return frozenset(cls.__struct_fields__)

    def in_force(self) -> dict[str, Any]:
        """Return the values by name, as people read what a rule runs with."""
        return self.completed(msgspec.structs.asdict(self))

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return values by name as people read them."""
        return values

    @classmethod
    def defaults(cls) -> dict[str, float | int | str | None]:
        """Return the defaults by name as settings give them, also of a rule with a parameter that must be given."""
        fields = msgspec.structs.fields(cls)
        return _as_given(cls.completed({field.name: _default(field) for field in fields}))

    def as_given(self) -> dict[str, float | int | str | None]:
        """Return the values by name as settings give them: several in one text, separated by commas."""
        return _as_given(self.in_force())


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _as_given(values: dict[str, Any]) -> dict[str, float | int | str | None]:
    return {
        name: ", ".join(map(_plain, value)) if isinstance(value, tuple) else value for name, value in values.items()
    }


def _plain(value: float | int | str) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


P = TypeVar("P", bound=RuleParameters)
S = TypeVar("S", bound=msgspec.Struct)


class Rule(ABC, Generic[P]):
    """What the three kinds of rules share.

    ``spec`` is what is said of the rule elsewhere, its name included; a class that gives only ``name`` gets one by
    `trainguard.rules.registry.spec_of`. ``parameters_type`` is its parameter class, whose defaults are the documented
    ones.
    """

    spec: ClassVar[RuleSpec]
    name: ClassVar[str]
    parameters_type: type[P]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take the name from the spec."""
        super().__init_subclass__(**kwargs)
        spec = vars(cls).get("spec")
        if isinstance(spec, RuleSpec) and "name" not in vars(cls):
            cls.name = spec.name

    @abstractmethod
    def clear_after_s(self, parameters: P, interval_s: float) -> float:
        """Seconds of event time without violation after which an episode of firing has ended: three windows."""


class SystemRule(Rule[P], Generic[P, S]):
    """A rule over one node's system metrics."""

    state_type: type[S]

    @abstractmethod
    def window_points(self, parameters: P, interval_s: float) -> int:
        """How many kept points the rule looks back on; 0 when it looks at none. Raises RuleConfigError over 2,500."""

    @abstractmethod
    def observe(self, state: S, minute: NodeMinute, parameters: P) -> None:
        """Fold one applied minute into ``state``; called in order of time, once a minute."""

    @abstractmethod
    def judge(self, state: S, view: NodeView, parameters: P) -> RuleResult:
        """Say what ``state`` means now; pure."""


class FrameworkRule(Rule[P], Generic[P, S]):
    """A rule over the framework events of one node's processes."""

    state_type: type[S]

    @abstractmethod
    def observe(self, state: S, events: FrameworkEvents, parameters: P) -> None:
        """Fold the events of one object into ``state``; called in order of time for each process."""

    @abstractmethod
    def judge(self, state: S, view: FrameworkView, parameters: P) -> RuleResult:
        """Say what ``state`` means now; pure."""


class JobRule(Rule[P], Generic[P]):
    """A rule over a whole job, judged from its nodes' states; it has no state of its own.

    It may share its name and parameters with a rule over one node, whose verdict it then completes.
    """

    @abstractmethod
    def judge(self, view: JobView, parameters: P) -> RuleResult:
        """Say what the job's nodes mean now; pure."""


class JoinedRule(JobRule[P], Generic[P, S]):
    """A rule that needs both streams of a node: it collects from framework events, and is judged over the job.

    What it has collected on a node is in ``JobView.nodes[node].collected`` under its name.
    """

    state_type: type[S]

    @abstractmethod
    def observe(self, state: S, events: FrameworkEvents, parameters: P) -> None:
        """Fold the events of one object into ``state``; called in order of time for each process."""


AnySystemRule = SystemRule[Any, Any]
AnyFrameworkRule = FrameworkRule[Any, Any]
AnyJobRule = JobRule[Any]
AnyJoinedRule = JoinedRule[Any, Any]
AnyRule = Rule[Any]
