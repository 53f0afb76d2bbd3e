"""Names of the rules over training steps, in their order, for who knows settings and imports no rule."""

FAMILY, TITLE = "training", "Training health"
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
SCALAR_NAMES = f"{FAMILY}/ScalarNames"
SETTINGS: tuple[str, ...] = (SCALAR_NAMES,)
"""Groups of settings that are no rule's."""

NAMES: tuple[str, ...] = tuple(f"{FAMILY}/{rule}" for rule in (*_TENSOR_RULES, *_TRUSTED_RULES))
