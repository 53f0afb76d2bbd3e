"""Names of the rules over training steps, in their order, for who knows settings and imports no rule."""

FAMILY = "training"
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
_TRUSTED_RULES = (
    "TrainingDiverged",
    "NotLearning",
    "Plateau",
    "LossSpike",
    "GradientNormDrift",
    "RanksOutOfSync",
)
SETTINGS: tuple[str, ...] = (f"{FAMILY}/ScalarNames",)
"""Groups of settings that are no rule's."""

NAMES: tuple[str, ...] = tuple(f"{FAMILY}/{rule}" for rule in (*_TENSOR_RULES, *_TRUSTED_RULES))
