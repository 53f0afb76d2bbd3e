"""TreeDepth: a tree of an XGBoost model is too deep.

Source: AWS documentation of TreeDepth: the depth is the logarithm to base 2 of the greatest node number, which in an
unbalanced tree is less than its depth. What is added: ``true_depth`` follows the branches instead.
"""

import math
from typing import ClassVar

import numpy as np

from trainguard.errors import TensorUnusableError
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import xgboost_text
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked, used
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.rules.training.xgboost_text import DEPTH, TreeKind
from trainguard.tensors.step_view import StepView, is_numeric

NODES, IDS, YES, NO = "trees/Node", "trees/ID", "trees/Yes", "trees/No"


class TreeDepthParameters(StepParameters, frozen=True, kw_only=True):
    """``depth`` in levels below the root."""

    rule_name: ClassVar[str] = "TreeDepth"

    depth: float = 4.0
    true_depth: bool = False


SPEC = RuleSpec(
    name="training/TreeDepth",
    family="training",
    title="Depth of trees",
    looks_at="the tree that a round of XGBoost adds",
    fires_when="it is too deep",
    condition="a tree is deeper than {depth} levels",
    measures=(Measure("depth of the tree", "levels"),),
    counts=STEPS,
    parameters={
        "depth": ParameterHelp("levels", "a deeper tree counts"),
        "true_depth": ParameterHelp("", "whether branches are followed, in place of the greatest node number"),
        **RANGE_HELP,
    },
    text=xgboost_text.tree_depth,
)


class TreeDepth(StepRule[TreeDepthParameters, StepState]):
    """Fires while the newest tree is too deep."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = TreeDepthParameters
    state_type = StepState
    needs = xgboost_text.TREES_NEEDS

    def check(self, state: StepState, step: StepView, parameters: TreeDepthParameters) -> Check | None:
        """Work out the depth of the step's tree."""
        if NODES not in step.names:
            return None
        depth = used(state, _true_depth if parameters.true_depth else _depth_by_number, step, NODES)
        if depth is None:
            return None
        kind = TreeKind.DEEP if depth > parameters.depth else TreeKind.FINE
        reading = Reading(NODES, float(depth), parameters.depth, depth > parameters.depth, float(depth), kind)
        return checked(step, [reading], lambda each: (measured(DEPTH, each, "levels"),))


def _depth_by_number(step: StepView, tensor: str) -> int | None:
    nodes = step.value(tensor)
    if not nodes.size:
        return None
    highest = float(np.max(nodes)) if is_numeric(nodes) else math.nan
    if not math.isfinite(highest) or highest < 0:
        raise TensorUnusableError(tensor, step.step, "it holds no node numbers")
    return max(int(highest).bit_length() - 1, 0)


def _true_depth(step: StepView, tensor: str) -> int | None:
    """Follow the branches down from each root, which is a node that no other one leads to."""
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
