"""moto's update expressions, checked in time that grows with their length, not with its square."""

from functools import cache
from typing import Any

import pytest
from moto.dynamodb.parsing import ast_nodes
from moto.dynamodb.parsing.validators import ActionCountValidator

# Its file has no types.
NODES: Any = ast_nodes


def hasten(patch: pytest.MonkeyPatch) -> None:
    """Let moto look at each node once, and ask each class once what it is."""
    patch.setattr(NODES.DepthFirstTraverser, "traverse_node_recursively", _traverse)
    # Of the whole expression alone: the clauses of its parts are among them.
    patch.setattr(ActionCountValidator, "traverse", ActionCountValidator.verify_action_counts)


@cache
def _is(kind: Any, kinds: tuple[Any, ...]) -> bool:
    return issubclass(kind, kinds)


def _traverse(self: Any, node: Any, child_id: int = -1, kinds: tuple[Any, ...] | None = None) -> Any:
    kinds = self.nodes_to_be_processed() if kinds is None else kinds
    kind: Any = type(node)
    if not _is(kind, (NODES.Node,)):
        return node
    parent = node.parent
    for number, child in enumerate(node.children or ()):
        self.pre_processing_of_child(node, number)
        _traverse(self, child, number, kinds)
    if _is(kind, kinds):
        node = self.process(node)
        node.parent = parent
        if parent is not None:
            parent.children[child_id] = node
    return node
