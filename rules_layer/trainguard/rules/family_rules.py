"""Names of rules of other families than the profiler's: reading settings imports none of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import RuleSpec, SettingsSpec

TRAINING, TRAINING_TITLE = "training", "Training health"

_TENSOR_RULES = (
    "VanishingGradient",
    "ExplodingTensor",
    "PoorWeightInitialization",
    "SaturatedActivation",
    "DeadRelu",
    "WeightUpdateRatio",
    "AllZero",
    "ClassImbalance",
    "LossNotDecreasing",
    "Overfit",
    "Overtraining",
    "SimilarAcrossRuns",
    "StalledTrainingRule",
    "TensorVariance",
    "UnchangedTensor",
    "CheckInputImages",
    "NLPSequenceRatio",
    "Confusion",
    "FeatureImportanceOverweight",
    "TreeDepth",
    "CreateXgboostReport",
)

_TRUSTED_RULES = ("TrainingDiverged", "NotLearning", "Plateau", "LossSpike", "GradientNormDrift", "RanksOutOfSync")

SCALAR_NAMES = f"{TRAINING}/ScalarNames"
TRAINING_SETTINGS: tuple[str, ...] = (SCALAR_NAMES,)
TRAINING_NAMES: tuple[str, ...] = tuple(f"{TRAINING}/{rule}" for rule in (*_TENSOR_RULES, *_TRUSTED_RULES))


@dataclass(frozen=True, slots=True)
class FamilyRules:
    """A family's rules: their names, and the module that has them as ``PARAMETERS_TYPES`` and ``SPECS``, by name.

    ``settings`` are groups that no rule owns: the module's ``SETTINGS_TYPES`` and ``SETTINGS_SPECS``.
    """

    family: str
    title: str
    names: tuple[str, ...]
    module: str
    settings: tuple[str, ...] = ()

    def parameters_types(self) -> Mapping[str, type[RuleParameters]]:
        module = import_module(self.module)
        types: Mapping[str, type[RuleParameters]] = {**module.PARAMETERS_TYPES, **module.SETTINGS_TYPES}
        return types

    def specs(self) -> Mapping[str, RuleSpec]:
        specs: Mapping[str, RuleSpec] = import_module(self.module).SPECS
        return specs

    def settings_specs(self) -> Mapping[str, SettingsSpec]:
        specs: Mapping[str, SettingsSpec] = import_module(self.module).SETTINGS_SPECS
        return specs


KERNELS = FamilyRules(
    "kernels",
    "Kernel profiles",
    (
        "kernels/GpuBusyLow",
        "kernels/GpuGap",
        "kernels/LoaderBound",
        "kernels/LaunchBound",
        "kernels/SmallKernelStorm",
        "kernels/SyncStall",
        "kernels/ExposedCommunication",
        "kernels/MemcpyBound",
        "kernels/PageableCopy",
        "kernels/WrongParallel",
        "kernels/TensorCoresIdle",
        "kernels/LowPrecisionUnused",
        "kernels/SlowOperators",
        "kernels/SmUnderfilled",
        "kernels/TraceStepOutlier",
        "kernels/GpuMemoryFull",
        "kernels/GpuMemoryRanOut",
        "kernels/GpuMemoryFragmented",
        "kernels/GpuMemoryGrows",
        "kernels/GpuMemoryHeld",
        "kernels/QueueFull",
        "kernels/TraceQuality",
        "kernels/LateRank",
        "kernels/SlowRank",
    ),
    "trainguard.kernels.rules.registry",
)

OTHER_FAMILIES: tuple[FamilyRules, ...] = (
    FamilyRules(TRAINING, TRAINING_TITLE, TRAINING_NAMES, "trainguard.rules.training.registry", TRAINING_SETTINGS),
    KERNELS,
)


def bare(rule: str) -> str:
    return rule.rpartition("/")[2]


def names() -> Iterator[str]:
    """Iterate over the names of all rules of other families."""
    for family in OTHER_FAMILIES:
        yield from family.names


def spec_of_other(rule: str) -> RuleSpec | None:
    """Return the spec of a rule of another family, which is imported then; None of any other rule."""
    found = next((family for family in OTHER_FAMILIES if rule in family.names), None)
    return None if found is None else found.specs()[rule]


def settings_spec(group: str) -> SettingsSpec | None:
    """Return what is said about a group of settings, whose family is imported then; None of any other name."""
    found = next((family for family in OTHER_FAMILIES if group in family.settings), None)
    return None if found is None else found.settings_specs()[group]


def parameters_type_of_other(name: str) -> type[RuleParameters] | None:
    """Return the parameter class of a rule of another family, or of a group of settings; None of any other name."""
    found = next((family for family in OTHER_FAMILIES if name in (*family.names, *family.settings)), None)
    return None if found is None else found.parameters_types()[name]
