"""The rules over training steps, as stateless instances in the order in which they are shown."""

from collections.abc import Mapping
from typing import Any

from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import RuleSpec, SettingsSpec
from trainguard.rules.training.exploding_tensor import ExplodingTensor
from trainguard.rules.training.loss_not_decreasing import LossNotDecreasing
from trainguard.rules.training.not_learning import NotLearning
from trainguard.rules.training.overfit import Overfit, Overtraining
from trainguard.rules.training.plateau import Plateau
from trainguard.rules.training.selection import SCALAR_NAMES_SPEC, ScalarNamesParameters
from trainguard.rules.training.spikes_and_drift import GradientNormDrift, LossSpike
from trainguard.rules.training.stalled_training import StalledTrainingRule
from trainguard.rules.training.step_rule import StepRule
from trainguard.rules.training.tensors.activations import DeadRelu, SaturatedActivation
from trainguard.rules.training.tensors.classes import ClassImbalance, Confusion
from trainguard.rules.training.tensors.inputs import CheckInputImages, NLPSequenceRatio
from trainguard.rules.training.tensors.sameness import RanksOutOfSync, SimilarAcrossRuns, UnchangedTensor
from trainguard.rules.training.tensors.values import AllZero, TensorVariance
from trainguard.rules.training.tensors.weights import PoorWeightInitialization, VanishingGradient, WeightUpdateRatio
from trainguard.rules.training.tensors.xgboost import CreateXgboostReport, FeatureImportanceOverweight, TreeDepth
from trainguard.rules.training.training_diverged import TrainingDiverged

AnyStepRule = StepRule[Any, Any]

TENSOR_RULES: tuple[AnyStepRule, ...] = (
    VanishingGradient(),
    ExplodingTensor(),
    PoorWeightInitialization(),
    SaturatedActivation(),
    DeadRelu(),
    WeightUpdateRatio(),
    AllZero(),
    ClassImbalance(),
    LossNotDecreasing(),
    Overfit(),
    Overtraining(),
    SimilarAcrossRuns(),
    StalledTrainingRule(),
    TensorVariance(),
    UnchangedTensor(),
    CheckInputImages(),
    NLPSequenceRatio(),
    Confusion(),
    FeatureImportanceOverweight(),
    TreeDepth(),
    CreateXgboostReport(),
)
"""The rules of the managed service, in the order of its documentation of training."""

TRUSTED_RULES: tuple[AnyStepRule, ...] = (
    TrainingDiverged(),
    NotLearning(),
    Plateau(),
    LossSpike(),
    GradientNormDrift(),
    RanksOutOfSync(),
)
"""Those that run where nobody chose any, beside ExplodingTensor and StalledTrainingRule."""
TRAINING_RULES: tuple[AnyStepRule, ...] = (*TENSOR_RULES, *TRUSTED_RULES)
PARAMETERS_TYPES: Mapping[str, type[RuleParameters]] = {rule.name: rule.parameters_type for rule in TRAINING_RULES}
SETTINGS_TYPES: Mapping[str, type[RuleParameters]] = {SCALAR_NAMES_SPEC.name: ScalarNamesParameters}
SETTINGS_SPECS: Mapping[str, SettingsSpec] = {SCALAR_NAMES_SPEC.name: SCALAR_NAMES_SPEC}
SPECS: Mapping[str, RuleSpec] = {rule.name: rule.spec for rule in TRAINING_RULES}
