"""What the rules over training steps cost at a step of 1,000 reductions, beside plain numpy over the same values."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pytest

from tests.support.run_folder import MemoryFiles
from tests.support.steps import RULES, parameters
from tests.support.tensor_files import HookWriter
from trainguard.core.errors import TensorMissingError
from trainguard.formats.tensors.debug.ledger import StepLedger
from trainguard.formats.tensors.debug.run import DebugStep, complete_steps, find_run
from trainguard.formats.tensors.step_view import Mode, ReductionKind, StepView, Tensor

pytestmark = pytest.mark.perf

TENSORS = 1_000
FIVE = ("abs_mean", "variance", "min", "max", "l2")
STEPS = 25
LIMIT_S = 0.005
# With the index and the frames of the step read as the evaluator reads them.
READ_RATIO_LIMIT = 20.0

GIVEN: dict[str, dict[str, Any]] = {
    "AllZero": {"collection_names": "gradients"},
    "TensorVariance": {"collection_names": "gradients", "max_threshold": "5"},
    "UnchangedTensor": {"collection_names": "gradients"},
    "SimilarAcrossRuns": {"other_trial": "other"},
}
NAMES = tuple(sorted(f"gradient/layer{index}.weight" for index in range(TENSORS)))


class ReducedStep:
    """A step of gradients of which reductions were saved, of a loss and of activation inputs, at hand.

    ``before`` are the steps before it, the newest first.
    """

    mode = Mode.GLOBAL
    timed = True
    logged = False

    def __init__(self, step: int, saved: Mapping[str, Mapping[str, float]], before: "Sequence[ReducedStep]") -> None:
        self.step = self.mode_step = step
        self.at = float(step)
        self.names: Sequence[str] = sorted(saved)
        self._saved = {
            (name, kind.removeprefix("abs_"), kind.startswith("abs_")): value
            for name, of_tensor in saved.items()
            for kind, value in of_tensor.items()
        }
        self._before = before
        self._members = {
            "gradients": frozenset(name for name in saved if name.startswith("gradient/")),
            "losses": frozenset({"loss"}),
        }

    def members(self, collection: str) -> Set[str]:
        return self._members.get(collection, frozenset())

    def shape(self, name: str) -> tuple[int, ...] | None:
        return (1,) if name == "loss" else None

    def has_value(self, name: str) -> bool:
        return False

    def value(self, name: str) -> Tensor:
        raise TensorMissingError(name, self.step)

    def blocks(self, name: str) -> Iterator[Tensor]:
        raise TensorMissingError(name, self.step)

    def reduction(self, name: str, kind: ReductionKind, *, absolute: bool = False) -> float | None:
        return self._saved.get((name, kind, absolute))

    def earlier(self, name: str, count: int) -> Sequence[StepView]:
        return self._before[:count]

    def other_run(self, run: str) -> StepView | None:
        return None


def reduced_steps(kinds: Sequence[str]) -> list[ReducedStep]:
    """Return steps of 1,000 reductions, as many of each gradient as there are kinds; and of a loss and two inputs."""
    random = np.random.default_rng(0)
    steps: list[ReducedStep] = []
    for step in range(STEPS):
        numbers = random.uniform(0.1, 1.0, TENSORS).tolist()
        saved = {
            name: dict(zip(kinds, numbers[place * len(kinds) :], strict=False))
            for place, name in enumerate(NAMES[: TENSORS // len(kinds)])
        }
        saved |= {"loss": {"mean": 2.0 - 0.01 * step}}
        saved |= {f"layer{place}.relu_input_0": {"variance": 1.0 + place} for place in range(2)}
        steps.append(ReducedStep(step, saved, steps[:-4:-1]))
    return steps


def quickest(calls: Sequence[Callable[[], object]]) -> float:
    """Return the seconds of the quickest call."""
    times = []
    for call in calls:
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def plain(saved: dict[str, float]) -> tuple[bool, bool]:
    """Judge the same values with numpy, tensor by tensor: whether one has vanished, and whether one exploded."""
    values = [np.asarray(value) for value in saved.values()]
    return any(bool(np.less(value, 1e-7)) for value in values), not all(bool(np.isfinite(value)) for value in values)


# Those that can judge by reductions; to SimilarAcrossRuns no reduction says that two tensors are the same.
USE_GRADIENTS = frozenset({"VanishingGradient", "ExplodingTensor", "AllZero", "UnchangedTensor"})


@pytest.mark.parametrize(
    ("kinds", "used"),
    [
        (("abs_mean",), USE_GRADIENTS | {"GradientNormDrift"}),
        (FIVE, USE_GRADIENTS | {"GradientNormDrift", "TensorVariance", "PoorWeightInitialization"}),
    ],
)
def test_rules_over_1000_reductions_take_under_5_ms(kinds: Sequence[str], used: frozenset[str]) -> None:
    steps = reduced_steps(kinds)
    prepared = [(rule, rule.state_type(), parameters(name, **GIVEN.get(name, {}))) for name, rule in RULES.items()]

    def observe(step: ReducedStep) -> None:
        for rule, state, values in prepared:
            rule.observe(state, step, values)

    spent = quickest([lambda step=step: observe(step) for step in steps])  # type: ignore[misc]
    judged = {name for name, (_, state, _) in zip(RULES, prepared, strict=True) if state.evaluated}
    os.write(
        1, f"\n1,000 reductions, {len(kinds)} a tensor: {spent * 1e3:.2f} ms, {len(judged)} rules judge\n".encode()
    )
    assert judged >= used
    assert spent <= LIMIT_S


def test_step_of_1000_reductions_takes_a_bounded_numpy_multiple() -> None:
    random = np.random.default_rng(0)
    writer = HookWriter().collections({"gradients": ([], ["^gradient"])})
    values = [dict(zip(NAMES, random.uniform(0.1, 1.0, TENSORS).tolist(), strict=True)) for _ in range(STEPS)]
    for step, saved in enumerate(values):
        writer.step(step, {f"smdebug/reductions/abs_mean/{name}": np.float32(saved[name]) for name in NAMES})
    files = MemoryFiles(writer.end().files)
    prepared = [(rule, rule.state_type(), parameters(name, **GIVEN.get(name, {}))) for name, rule in RULES.items()]

    def observe(step: DebugStep) -> None:
        for rule, state, given in prepared:
            rule.observe(state, step, given)

    steps = complete_steps(files, find_run(files, "run"), StepLedger())
    spent = quickest([lambda: observe(next(steps))] * STEPS)
    beside = quickest([lambda saved=saved: plain(saved) for saved in values])  # type: ignore[misc]
    assert prepared[0][1].evaluated == STEPS
    measured = f"read and judged {spent * 1e3:.2f} ms, numpy {beside * 1e3:.2f} ms"
    assert spent <= READ_RATIO_LIMIT * beside, measured
