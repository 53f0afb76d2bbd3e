"""FeatureImportanceOverweight, TreeDepth and CreateXgboostReport. Source: AWS documentation of the three."""

import math

import numpy as np

from trainguard.core.errors import TensorUnusableError
from trainguard.core.finding import Fact
from trainguard.formats.tensors.step_view import StepView, is_numeric
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import above, checked, known, measured, scalar, step_check, used
from trainguard.rules.training.selection import matching, selected
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import filled, said, step_spec, worded

HOLDS, FEATURE_KINDS, TREE_KINDS = "holds", ("overweight", "fine"), ("too deep", "fine")


def _features(sheet: FactSheet) -> Words:
    top = int(sheet.number("top_features"))
    names = [str(each.value) for each in sheet.all("feature")]
    listed = ", ".join([*names, *(["…"] if top > len(names) else [])])
    sentence = (
        "{top_features} of {features} used features ({listed}) {made/make} up a share of {importance_share} of all "
        "importance, {importance_share:against above|not above}"
    )
    return said(
        sheet,
        filled(sheet, sentence, listed=listed),
        "Check these features for leakage of the label, and the others for errors. A model of "
        f"{sheet['nfeatures'].value} used features or fewer always fires: lower nfeatures for it.",
        "a few features made up nearly all importance",
    )


MOST_SHOWN = 5


class FeatureImportanceOverweightParameters(StepParameters, frozen=True, kw_only=True):
    threshold: NonNegative = 0.8
    nfeatures: PositiveInt = 3
    tensor_regex: str = ".*feature_importance/weight"


class FeatureImportanceOverweight(StepRule[FeatureImportanceOverweightParameters, StepState]):
    spec = step_spec(
        "FeatureImportanceOverweight",
        title="Feature importance",
        looks_at="the importance of each feature of an XGBoost model",
        fires_when="a few features make up nearly all of it",
        condition="the {nfeatures} most important features make up more than a share of {threshold} of all importance",
        measures=(Measure("share of the most important features"),),
        parameters={
            "threshold": ParameterHelp("", "a share above it is too high"),
            "nfeatures": ParameterHelp("features", "how many of the most important ones are added up"),
            "tensor_regex": ParameterHelp("pattern", "a regular expression that names of importances match"),
        },
        needs=(
            "It checks the importance of features of an XGBoost model: record it with "
            "CollectionConfig(name='feature_importance')."
        ),
        changes={"": ChangeCode.FIX_FEATURES},
        say=_features,
        kinds=FEATURE_KINDS,
    )

    def check(
        self, state: StepState, step: StepView, parameters: FeatureImportanceOverweightParameters
    ) -> Check | None:
        importances = sorted(known(state, scalar, step, matching(step, parameters.tensor_regex)), reverse=True)
        total = sum(value for value, _ in importances)
        if not total:
            return None
        top = importances[: parameters.nfeatures]
        reading = above(top[0][1], sum(value for value, _ in top) / total, parameters.threshold)
        counts = (
            Fact(name="top_features", value=len(top)),
            Fact(name="features", value=len(importances)),
            Fact(name="nfeatures", value=parameters.nfeatures),
        )
        names = [name if place == 0 else name.rpartition("/")[2] for place, (_, name) in enumerate(top[:MOST_SHOWN])]
        shown = [Fact(name="feature", value=name) for name in names]
        facts = (measured("importance_share", reading, "share"), *counts, *shown)
        return checked(step, [reading], lambda _: facts, kinds=FEATURE_KINDS)


NODES, IDS, YES, NO = "trees/Node", "trees/ID", "trees/Yes", "trees/No"


class TreeDepthParameters(StepParameters, frozen=True, kw_only=True):
    depth: float = 4.0
    true_depth: bool = False


class TreeDepth(StepRule[TreeDepthParameters, StepState]):
    spec = step_spec(
        "TreeDepth",
        title="Depth of trees",
        looks_at="the tree that a round of XGBoost adds",
        fires_when="it is too deep",
        condition="a tree is deeper than {depth} levels",
        measures=(Measure("depth of the tree", "levels"),),
        parameters={
            "depth": ParameterHelp("levels", "a deeper tree counts"),
            "true_depth": ParameterHelp("", "whether branches are followed, in place of the greatest node number"),
        },
        needs="It checks the trees of an XGBoost model: record them with CollectionConfig(name='trees').",
        changes={"": ChangeCode.FIX_FEATURES},
        say=worded(
            "the tree in {tree_depth.series} {had/has} {tree_depth:counted level} below its root, "
            "{tree_depth:against above|not above}",
            "Lower max_depth, or raise min_child_weight or gamma: deep trees fit single samples.",
            "a tree became too deep",
        ),
        kinds=TREE_KINDS,
    )

    def check(self, state: StepState, step: StepView, parameters: TreeDepthParameters) -> Check | None:
        if NODES not in step.names:
            return None
        depth = used(state, _true_depth if parameters.true_depth else _depth_by_number, step, NODES)
        if depth is None:
            return None
        readings = [above(NODES, float(depth), parameters.depth)]
        return checked(step, readings, ("tree_depth", "levels"), kinds=TREE_KINDS)


def _depth_by_number(step: StepView, tensor: str) -> int | None:
    nodes = step.value(tensor)
    if not nodes.size:
        return None
    highest = float(np.max(nodes)) if is_numeric(nodes) else math.nan
    if not math.isfinite(highest) or highest < 0:
        raise TensorUnusableError(tensor, step.step, "it holds no node numbers")
    return max(int(highest).bit_length() - 1, 0)


def _true_depth(step: StepView, tensor: str) -> int | None:
    ids = [_text(each) for each in step.value(IDS).ravel()]
    branches = {
        node: [_text(child) for child in children]
        for node, *children in zip(ids, step.value(YES).ravel(), step.value(NO).ravel(), strict=False)
    }
    level = set(branches) - {child for children in branches.values() for child in children}
    if branches and not level:
        raise TensorUnusableError(tensor, step.step, "its branches lead in a circle")
    depth = -1
    seen: set[str] = set()
    while level:
        depth += 1
        seen |= level
        level = {child for node in level for child in branches[node] if child in branches} - seen
    return depth if branches else None


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


COLLECTIONS = ("metrics", "feature_importance", "predictions", "labels")


class CreateXgboostReport(StepRule[StepParameters, StepState]):
    """Never fires: it counts the steps that a report on the XGBoost model has something of."""

    spec = step_spec(
        "CreateXgboostReport",
        title="XGBoost report",
        looks_at="metrics, feature importance, labels and predictions of an XGBoost model",
        fires_when="never: it asks for a report",
        condition="never",
        informs_only=True,
        needs=(
            "The report needs collections metrics, feature_importance, predictions and labels, and hyperparameters "
            "at step 0: record each with a CollectionConfig."
        ),
        say=worded("it holds {tensors:,} of the tensors that the report is made of"),
        kinds=(HOLDS,),
    )

    def check(self, state: StepState, step: StepView, parameters: StepParameters) -> Check | None:
        tensors = len(selected(step, COLLECTIONS, None))
        if not tensors:
            return None
        return step_check(step, [Fact(name="tensors", value=tensors)], fires=False, kind=HOLDS)
