"""The protocol of rules: validated parameters, bounded state, and a pure judgement.

The engine owns ordering, snapshots, kept points and episodes; a rule judges from its state alone. So a verdict is a
function of the state, and the state a function of the set of applied objects.
"""

import inspect
import math
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar, get_args

import msgspec

from trainguard.core.errors import RuleLoadError
from trainguard.rules.rule_result import RuleResult, Text
from trainguard.rules.spec import FRAMEWORK, SYSTEM, RuleSpec

if TYPE_CHECKING:
    from trainguard.formats.profile.columns import FrameworkEvents
    from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeMinute, NodeView

MIN_WINDOW_POINTS = 20
# 250 s at 100 ms, the managed service's shortest interval; with eight GPUs about 85 kB before compression.
MAX_WINDOW_POINTS = 2_500

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

    # Whether an unknown parameter is passed over and said, in place of a fault.
    ignores_unknown: ClassVar[bool] = False

    # What is passed over without a word, of a rule that passes over anything.
    accepted: ClassVar[re.Pattern[str]] = re.compile("")

    scan_interval_us: PositiveInt = 60_000_000

    @classmethod
    def settable(cls) -> frozenset[str]:
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
    """The base of all rules.

    A class that gives only ``name`` gets a ``spec`` by `trainguard.rules.registry.spec_of`. ``parameters_type`` and
    ``state_type`` are those that its base is parametrised with, unless it names others.
    """

    spec: ClassVar[RuleSpec]
    name: ClassVar[str]
    parameters_type: type[P]
    # Three evaluations, once a minute, for any parameters.
    clear_s: ClassVar[float] = 180.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take the name from the spec, and the types of parameters and state from the base."""
        super().__init_subclass__(**kwargs)
        spec = vars(cls).get("spec")
        if isinstance(spec, RuleSpec) and "name" not in vars(cls):
            cls.name = spec.name
        for of in (of for base in vars(cls).get("__orig_bases__", ()) for of in get_args(base)):
            if isinstance(of, type) and issubclass(of, msgspec.Struct):
                field = "parameters_type" if issubclass(of, RuleParameters) else "state_type"
                if field not in vars(cls):
                    setattr(cls, field, of)

    @property
    def text(self) -> Text:
        """What makes the words of its judgements; TypeError of a rule whose spec has none."""
        if self.spec.text is None:
            raise TypeError(f"{self.name} has no text")
        return self.spec.text

    def clear_after_s(self, parameters: P, interval_s: float) -> float:
        """Seconds of event time without violation after which an episode of firing has ended: three windows."""
        return self.clear_s


class SystemRule(Rule[P], Generic[P, S]):
    """A rule over one node's system metrics."""

    state_type: type[S]

    def window_points(self, parameters: P, interval_s: float) -> int:
        """How many kept points the rule looks back on; 0 when it looks at none. Raises RuleConfigError over 2,500."""
        return 0

    @abstractmethod
    def observe(self, state: S, minute: "NodeMinute", parameters: P) -> None:
        """Fold one applied minute into ``state``; called in order of time, once a minute."""

    @abstractmethod
    def judge(self, state: S, view: "NodeView", parameters: P) -> RuleResult:
        """Say what ``state`` means now; pure."""


class FrameworkRule(Rule[P], Generic[P, S]):
    """A rule over the framework events of one node's processes."""

    state_type: type[S]

    @abstractmethod
    def observe(self, state: S, events: "FrameworkEvents", parameters: P) -> None:
        """Fold the events of one object into ``state``; called in order of time for each process."""

    @abstractmethod
    def judge(self, state: S, view: "FrameworkView", parameters: P) -> RuleResult:
        """Say what ``state`` means now; pure."""


class JobRule(Rule[P], Generic[P]):
    """A rule over a whole job, judged from its nodes' states; it has no state of its own.

    It may share its name and parameters with a rule over one node, whose verdict it then completes.
    """

    @abstractmethod
    def judge(self, view: "JobView", parameters: P) -> RuleResult:
        """Say what the job's nodes mean now; pure."""


class JoinedRule(JobRule[P], Generic[P, S]):
    """A rule that needs both streams of a node: it collects from framework events, and is judged over the job.

    What it has collected on a node is in ``JobView.nodes[node].collected`` under its name.
    """

    state_type: type[S]

    @abstractmethod
    def observe(self, state: S, events: "FrameworkEvents", parameters: P) -> None:
        """Fold the events of one object into ``state``; called in order of time for each process."""


AnySystemRule = SystemRule[Any, Any]
AnyFrameworkRule = FrameworkRule[Any, Any]
AnyJobRule = JobRule[Any]
AnyJoinedRule = JoinedRule[Any, Any]
AnyRule = Rule[Any]
_FIRES = "fires when "
_OWN_CONDITION = "its own condition holds"


def spec_of_rule(rule: Rule[Any]) -> RuleSpec:
    """Return a rule's own spec, or one that is derived from its kind and the first sentence of its class."""
    given = getattr(rule, "spec", None)
    if isinstance(given, RuleSpec) and given.name == rule.name:
        return given
    looks_at, inputs = "the job", frozenset[Any]()
    if isinstance(rule, SystemRule):
        looks_at, inputs = "each node", SYSTEM
    elif isinstance(rule, FrameworkRule | JoinedRule):
        looks_at, inputs = "each node's framework events", FRAMEWORK
    condition = _condition(type(rule).__doc__)
    return RuleSpec(
        name=rule.name,
        looks_at=looks_at,
        fires_when=condition,
        # Braces would stand for parameters.
        condition=condition.replace("{", "{{").replace("}", "}}"),
        inputs=inputs,
    )


def spec_of_unknown(name: str) -> RuleSpec:
    return RuleSpec(name=name, looks_at="", fires_when=_OWN_CONDITION, condition=_OWN_CONDITION)


def _condition(docstring: str | None) -> str:
    """Return when a rule fires, by the first sentence of its class: ``Fires when …``."""
    sentence = " ".join(inspect.cleandoc(docstring or "").partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    if sentence.lower().startswith(_FIRES):
        return sentence[len(_FIRES) :]
    return f"{_OWN_CONDITION} ({sentence})" if sentence else _OWN_CONDITION


# What one rule may keep of one stream, encoded: eight such rules leave half of an item to those of TrainGuard.
STATE_CAP_BYTES = 4_096


def is_custom(rule: Rule[Any]) -> bool:
    """Whether a rule is not TrainGuard's own."""
    return type(rule).__module__.partition(".")[0] != "trainguard"


def check_clear_after(rule: str, seconds: Any) -> float:
    """Return what a rule says about its episodes' end; raises RuleLoadError when it is no time."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.0 <= seconds < math.inf:
        raise RuleLoadError(rule, "clear_after_s", seconds, "a number of seconds from 0")
    return float(seconds)


def check_window(rule: str, points: Any) -> int:
    """Return how many kept points a rule looks back on; raises RuleLoadError when it is no such number."""
    if isinstance(points, bool) or not isinstance(points, int) or not 0 <= points <= MAX_WINDOW_POINTS:
        raise RuleLoadError(rule, "window_points", points, f"a whole number from 0 to {MAX_WINDOW_POINTS:,}")
    return points


def packed_state(rule: str, state: Any) -> bytes:
    """Return a rule's state as it is stored; raises RuleLoadError when it cannot be, or is too large."""
    try:
        data = msgspec.msgpack.encode(state)
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise RuleLoadError(rule, "state", f"{type(fault).__name__}: {fault}", "what msgspec can encode") from fault
    if len(data) > STATE_CAP_BYTES:
        raise RuleLoadError(rule, "state", f"{len(data):,} bytes", f"at most {STATE_CAP_BYTES:,}")
    return data
