"""Runs in memory: steps as rules see them, from plain arrays."""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainguard.core.errors import RunMissingError, TelemetryFormatError, TensorMissingError, TensorTooLargeError
from trainguard.formats.tensors.scalars.names import ERRORS, ScalarNames
from trainguard.formats.tensors.step_view import Mode, ReductionKind, StepView, Tensor
from trainguard.rules.family_rules import bare
from trainguard.rules.parameters import parameters_of
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.training.registry import TRAINING_RULES, AnyStepRule
from trainguard.rules.training.step_rule import RunView, StepState

# Entries a block: few, so that most tensors have several blocks and rows are cut.
BLOCK = 7

RULES: Mapping[str, AnyStepRule] = {bare(rule.name): rule for rule in TRAINING_RULES}


@dataclass
class Run:
    """Steps in order, and the other runs that they may be compared with."""

    steps: list["Step"] = field(default_factory=list)
    others: dict[str, "Run"] = field(default_factory=dict)

    def add(self, step: int, tensors: Mapping[str, Any] | None = None, **how: Any) -> "Step":
        """Append a step of arrays by name; ``how`` as the fields of `Step`."""
        mode = how.pop("mode", Mode.GLOBAL)
        in_mode = sum(each.mode is mode for each in self.steps)
        added = Step(
            run=self,
            step=step,
            mode=mode,
            mode_step=how.pop("mode_step", step if mode is Mode.GLOBAL else in_mode),
            at=how.pop("at", 1_000.0 + step),
            tensors={name: np.asarray(value) for name, value in (tensors or {}).items()},
            **how,
        )
        self.steps.append(added)
        return added


@dataclass
class Step:
    """One step. ``reductions`` are by tensor: ``abs_mean``, ``max``; ``too_large`` and ``broken`` name tensors."""

    run: Run
    step: int
    mode: Mode
    mode_step: int
    at: float
    tensors: dict[str, Tensor]
    collections: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reductions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    too_large: Set[str] = frozenset()
    broken: Set[str] = frozenset()
    timed: bool = True
    logged: bool = False

    @property
    def names(self) -> Sequence[str]:
        return sorted({*self.tensors, *self.reductions})

    def members(self, collection: str) -> Set[str]:
        if collection == ERRORS and ERRORS not in self.collections:
            return ScalarNames().members(ERRORS, self.names)
        return frozenset(self.collections.get(collection, ())) & frozenset(self.names)

    def shape(self, name: str) -> tuple[int, ...] | None:
        self._check(name)
        return self.tensors[name].shape if name in self.tensors else self.shapes.get(name)

    def has_value(self, name: str) -> bool:
        return name in self.tensors

    def value(self, name: str) -> Tensor:
        if name in self.too_large:
            raise TensorTooLargeError(name, self.step, 1_000_000_000, 67_108_864)
        return self._entries(name)

    def blocks(self, name: str) -> Iterator[Tensor]:
        entries = self._entries(name).reshape(-1)
        for start in range(0, entries.size, BLOCK):
            yield entries[start : start + BLOCK]

    def _check(self, name: str) -> None:
        if name in self.broken:
            raise TelemetryFormatError(name, "the frame is cut off")

    def _entries(self, name: str) -> Tensor:
        self._check(name)
        if name not in self.tensors:
            raise TensorMissingError(name, self.step)
        return self.tensors[name]

    def reduction(self, name: str, kind: ReductionKind, *, absolute: bool = False) -> float | None:
        self._check(name)
        return self.reductions.get(name, {}).get(f"abs_{kind}" if absolute else kind)

    def earlier(self, name: str, count: int) -> Sequence[StepView]:
        before = [
            each for each in self.run.steps if each.step < self.step and each.mode is self.mode and name in each.names
        ]
        return before[::-1][:count]

    def other_run(self, run: str) -> StepView | None:
        if run not in self.run.others:
            raise RunMissingError(run, "there is no such run")
        return next((each for each in self.run.others[run].steps if each.step == self.step), None)


def reduced(values: Any) -> dict[str, float]:
    """Return all reductions of an array, as they are saved."""
    found: dict[str, float] = {}
    with np.errstate(all="ignore"):
        for prefix, each in (("", np.asarray(values, float)), ("abs_", np.abs(np.asarray(values, float)))):
            found |= {
                f"{prefix}min": float(each.min()),
                f"{prefix}max": float(each.max()),
                f"{prefix}mean": float(each.mean()),
                f"{prefix}std": float(each.std()),
                f"{prefix}variance": float(each.var()),
                f"{prefix}sum": float(each.sum()),
                f"{prefix}prod": float(each.prod()),
                f"{prefix}l1": float(np.abs(each).sum()),
                f"{prefix}l2": math.sqrt(float((each * each).sum())),
            }
    return found


@dataclass(frozen=True)
class Outcome:
    """What a rule has said about a run."""

    state: StepState
    result: RuleResult

    @property
    def steps(self) -> list[int]:
        return self.state.steps


def parameters(rule: str, **given: object) -> Any:
    """Return a rule's parameters from texts, as users set them."""
    settings = {f"{rule}_{name}": str(value) for name, value in given.items()}
    return parameters_of(RULES[rule].name, RULES[rule].parameters_type, settings)


def observed(rule: str, run: Run, **given: object) -> Outcome:
    """Show a whole run to a rule."""
    each, values = RULES[rule], parameters(rule, **given)
    state = each.state_type()
    for step in run.steps:
        each.observe(state, step, values)
    return Outcome(state, judgement(each, state, len(run.steps), values, closed=True))


def judgement(rule: AnyStepRule, state: StepState, steps: int, values: Any, *, closed: bool = False) -> RuleResult:
    """Return what a rule says about a run of so many steps."""
    return rule.judge(state, RunView(steps, closed), values)


def fired(rule: str, run: Run, **given: object) -> list[int]:
    """Return at which steps a rule fires."""
    return observed(rule, run, **given).steps
