"""The rules of other families than the profiler's by name, each with its module: reading settings imports none."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import RuleSpec

TRAINING, TRAINING_TITLE = "training", "Training health"

# The rules of the managed service over training, in the order of its documentation.
TENSOR_RULES: Mapping[str, str] = {
    "VanishingGradient": "tensors.weights",
    "ExplodingTensor": "exploding_tensor",
    "PoorWeightInitialization": "tensors.weights",
    "SaturatedActivation": "tensors.activations",
    "DeadRelu": "tensors.activations",
    "WeightUpdateRatio": "tensors.weights",
    "AllZero": "tensors.values",
    "ClassImbalance": "tensors.classes",
    "LossNotDecreasing": "loss_not_decreasing",
    "Overfit": "overfit",
    "Overtraining": "overfit",
    "SimilarAcrossRuns": "tensors.sameness",
    "StalledTrainingRule": "stalled_training",
    "TensorVariance": "tensors.values",
    "UnchangedTensor": "tensors.sameness",
    "CheckInputImages": "tensors.inputs",
    "NLPSequenceRatio": "tensors.inputs",
    "Confusion": "tensors.classes",
    "FeatureImportanceOverweight": "tensors.xgboost",
    "TreeDepth": "tensors.xgboost",
    "CreateXgboostReport": "tensors.xgboost",
}
# This product's own, which follow them.
TRUSTED_RULES: Mapping[str, str] = {
    "TrainingDiverged": "training_diverged",
    "NotLearning": "not_learning",
    "Plateau": "plateau",
    "LossSpike": "spikes_and_drift",
    "GradientNormDrift": "spikes_and_drift",
    "RanksOutOfSync": "tensors.replicas",
}
# In the order in which they are shown.
KERNEL_RULES: Mapping[str, str] = {
    "GpuBusyLow": "idle",
    "GpuGap": "idle",
    "LoaderBound": "host",
    "LaunchBound": "host",
    "SmallKernelStorm": "host",
    "SyncStall": "host",
    "ExposedCommunication": "parallel",
    "MemcpyBound": "memory",
    "PageableCopy": "memory",
    "WrongParallel": "parallel",
    "TensorCoresIdle": "compute",
    "LowPrecisionUnused": "compute",
    "SlowOperators": "operators",
    "SmUnderfilled": "compute",
    "TraceStepOutlier": "idle",
    "GpuMemoryFull": "memory",
    "GpuMemoryRanOut": "allocator",
    "GpuMemoryFragmented": "allocator",
    "GpuMemoryGrows": "allocator",
    "GpuMemoryHeld": "allocator",
    "QueueFull": "host",
    "TraceQuality": "trace_quality",
    "LateRank": "ranks",
    "SlowRank": "ranks",
}


def _named(family: str, rules: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{family}/{rule}" for rule in rules)


def made(package: str, rules: Mapping[str, str]) -> tuple[Any, ...]:
    """Return an instance of each rule's class; AttributeError of a module below ``package`` that lacks its class."""
    return tuple(getattr(import_module(f"{package}.{module}"), rule)() for rule, module in rules.items())


SCALAR_NAMES = f"{TRAINING}/ScalarNames"
TRAINING_SETTINGS: tuple[str, ...] = (SCALAR_NAMES,)
TRAINING_NAMES: tuple[str, ...] = _named(TRAINING, {**TENSOR_RULES, **TRUSTED_RULES})


@dataclass(frozen=True, slots=True)
class FamilyRules:
    """A family's rules and ``settings``, groups that no rule owns: their names, and the module that has them, by name.

    It has them as ``PARAMETERS_TYPES`` and ``SPECS``; reading settings imports none.
    """

    family: str
    title: str
    names: tuple[str, ...]
    module: str
    settings: tuple[str, ...] = ()

    def parameters_types(self) -> Mapping[str, type[RuleParameters]]:
        types: Mapping[str, type[RuleParameters]] = import_module(self.module).PARAMETERS_TYPES
        return types

    def specs(self) -> Mapping[str, RuleSpec]:
        specs: Mapping[str, RuleSpec] = import_module(self.module).SPECS
        return specs


KERNELS = FamilyRules(
    "kernels", "Kernel profiles", _named("kernels", KERNEL_RULES), "trainguard.kernels.rules.registry"
)
OTHER_FAMILIES: tuple[FamilyRules, ...] = (
    FamilyRules(TRAINING, TRAINING_TITLE, TRAINING_NAMES, "trainguard.rules.training.registry", TRAINING_SETTINGS),
    KERNELS,
)


def bare(rule: str) -> str:
    return rule.rpartition("/")[2]


def names() -> tuple[str, ...]:
    return tuple(name for family in OTHER_FAMILIES for name in family.names)


def family_of(name: str) -> FamilyRules | None:
    """Return the family of a rule of another family, or of a group of settings; None of any other name."""
    return next((each for each in OTHER_FAMILIES if name in each.names or name in each.settings), None)
