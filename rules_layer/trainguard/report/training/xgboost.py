"""What a digest keeps of an XGBoost model: its hyperparameters, and how important its features are."""

import msgspec

from trainguard.formats.tensors.step_view import StepView
from trainguard.report.training.heat_map import ReadBudget
from trainguard.rules.training.readings import scalar

IMPORTANCE = "feature_importance/"
HYPERPARAMETERS = "hyperparameters/"
# Tensors so named are written by the hook of XGBoost alone.
MARKS = (IMPORTANCE, HYPERPARAMETERS, "trees/")

TYPES = ("weight", "gain", "cover")
MOST_FEATURES = 1_000
MOST_SETTINGS = 64
LONGEST = 300


class Model(msgspec.Struct, kw_only=True):
    """An XGBoost model.

    Attributes
    ----------
    objective : str or None
    settings : dict of str to str
        Its hyperparameters.
    importance_step : int or None
        The newest step with importance of features.
    importance : dict of str to dict of str to float
        By type the features, in order of their numbers, with their shares (0 to 1) of all importance.
    features_left_out : int
        Features of that step beyond the first thousand.
    """

    objective: str | None = None
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    importance_step: int | None = None
    importance: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    features_left_out: int = 0

    def fold(self, step: StepView, budget: ReadBudget) -> None:
        for name in step.names:
            if name.startswith(HYPERPARAMETERS):
                value = budget.scalar(_setting, step, name)
                key = name.removeprefix(HYPERPARAMETERS)[:LONGEST]
                has_room = len(self.settings) < MOST_SETTINGS or key in self.settings or key == "objective"
                if value is not None and has_room:
                    self.settings[key] = value
        self.objective = self.settings.get("objective", self.objective)

    def keep_importance(self, step: StepView, budget: ReadBudget) -> None:
        found: dict[str, dict[str, float]] = {}
        left_out = 0
        for kind in TYPES:
            prefix = f"{IMPORTANCE}{kind}/"
            names = sorted((name for name in step.names if name.startswith(prefix)), key=feature_order)
            left_out = max(left_out, len(names) - MOST_FEATURES)
            features = {}
            for name in names[:MOST_FEATURES]:
                share = budget.scalar(scalar, step, name)
                if share is not None:
                    features[name.removeprefix(prefix)[:LONGEST]] = share
            if features:
                found[kind] = features
        if found:
            self.importance, self.importance_step, self.features_left_out = found, step.step, left_out


def has_importance(step: StepView) -> bool:
    return any(name.startswith(IMPORTANCE) for name in step.names)


def is_of_xgboost(step: StepView) -> bool:
    """Whether a step holds what only the hook of XGBoost writes."""
    return any(name.startswith(MARKS) for name in step.names)


def feature_order(name: str) -> tuple[int, str]:
    """Order features by the number at the end of their names: f2 before f10."""
    digits = len(name) - len(name.rstrip("0123456789"))
    number = name[len(name) - digits :] if digits else ""
    return (int(number[:18]) if number.isascii() and number else 0, name)


def _setting(step: StepView, name: str) -> str:
    entries = step.value(name).reshape(-1)
    return str(entries[0])[:LONGEST] if entries.size else ""
