"""The words of rules over XGBoost models."""

from enum import StrEnum

from trainguard.rules.training.tensor_words import against, said, shown, step_text
from trainguard.rules.units import counted
from trainguard.rules.words import FactSheet, Words

REPORT_NEEDS = (
    "The report needs collections metrics, feature_importance, predictions and labels, and hyperparameters at step "
    "0: record each with a CollectionConfig."
)
FEATURES_NEEDS = (
    "It checks the importance of features of an XGBoost model: record it with "
    "CollectionConfig(name='feature_importance')."
)
TREES_NEEDS = "It checks the trees of an XGBoost model: record them with CollectionConfig(name='trees')."
IMPORTANCE, DEPTH = "importance_share", "tree_depth"


class ReportKind(StrEnum):
    """What CreateXgboostReport says of a step."""

    HOLDS = "holds"


class FeaturesKind(StrEnum):
    """What FeatureImportanceOverweight finds at a step."""

    OVERWEIGHT = "overweight"
    FINE = "fine"


class TreeKind(StrEnum):
    """What TreeDepth finds at a step."""

    DEEP = "too deep"
    FINE = "fine"


def _report(sheet: FactSheet) -> Words:
    tensors = f"{sheet['tensors'].value:,} of the tensors that the report is made of"
    return said(sheet, f"it holds {tensors}", "", "")


def _features(sheet: FactSheet) -> Words:
    share, top = sheet[IMPORTANCE], int(sheet.number("top_features"))
    names = [str(each.value) for each in sheet.all("feature")]
    listed = ", ".join([*names, *(["…"] if top > len(names) else [])])
    of, make = f"{top} of {sheet['features'].value} used features ({listed})", "made" if sheet.past else "make"
    compared = against(sheet, IMPORTANCE, "above", "not above")
    return said(
        sheet,
        f"{of} {make} up a share of {shown(share)} of all importance, {compared}",
        "Check these features for leakage of the label, and the others for errors. A model of "
        f"{sheet['nfeatures'].value} used features or fewer always fires: lower nfeatures for it.",
        "a few features made up nearly all importance",
    )


def _tree(sheet: FactSheet) -> Words:
    depth, has = sheet[DEPTH], "had" if sheet.past else "has"
    levels = counted(int(depth.value), "level")
    compared = against(sheet, DEPTH, "above", "not above")
    return said(
        sheet,
        f"the tree in {depth.series} {has} {levels} below its root, {compared}",
        "Lower max_depth, or raise min_child_weight or gamma: deep trees fit single samples.",
        "a tree became too deep",
    )


create_xgboost_report = step_text("CreateXgboostReport", REPORT_NEEDS, _report)
feature_importance_overweight = step_text("FeatureImportanceOverweight", FEATURES_NEEDS, _features)
tree_depth = step_text("TreeDepth", TREES_NEEDS, _tree)
