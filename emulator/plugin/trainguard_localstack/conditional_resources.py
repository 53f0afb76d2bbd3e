"""What is not there by its condition is not looked at: properties of such a resource, and a branch of ``Fn::If``.

LocalStack 4.9.2 evaluates them, before and after an update, and refuses the template where they take an attribute of
another resource that is not there. CloudFormation does not.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from localstack.services.cloudformation.engine.v2 import change_set_model_preproc as preproc
from localstack.services.cloudformation.engine.v2.change_set_model import Nothing, is_nothing

_BEFORE, _AFTER = 0, 1


def install() -> None:
    """Let an attribute be nothing where the reading of it is used by nobody."""
    model = preproc.ChangeSetModelPreproc
    visit, attribute = model.visit_node_resource, model._resolve_attribute
    unused: list[tuple[bool, bool]] = [(False, False)]
    """Whether the reading before, and the one after, is used by nobody; innermost last."""

    @contextlib.contextmanager
    def without(before: bool, after: bool) -> Iterator[None]:
        unused.append((before or unused[-1][_BEFORE], after or unused[-1][_AFTER]))
        try:
            yield
        finally:
            unused.pop()

    def visit_resource(self: Any, node_resource: Any) -> Any:
        before, after = _presence(self, node_resource)
        if not before and not after:
            return preproc.PreprocEntityDelta(before=Nothing, after=Nothing)
        with without(not before, not after):
            return visit(self, node_resource)

    def visit_if(self: Any, node_intrinsic_function: Any) -> Any:
        name, holds, fails = node_intrinsic_function.arguments.array
        condition = self.visit(name)
        delta = preproc.PreprocEntityDelta()
        if not is_nothing(condition.before):
            with without(before=False, after=True):
                chosen = holds if self._resolve_condition(condition.before).before else fails
                delta.before = self.visit(chosen).before
        if not is_nothing(condition.after):
            with without(before=True, after=False):
                chosen = holds if self._resolve_condition(condition.after).after else fails
                delta.after = self.visit(chosen).after
        return delta

    def resolve_attribute(self: Any, arguments: Any, select_before: bool) -> Any:
        side = _BEFORE if select_before else _AFTER
        if unused[-1][side] and not _is_there(self, arguments, side):
            return Nothing
        return attribute(self, arguments, select_before)

    model.visit_node_resource = visit_resource
    model.visit_node_intrinsic_function_fn_if = visit_if
    model._resolve_attribute = resolve_attribute


def _presence(model: Any, node: Any) -> tuple[bool, bool]:
    """Return presence before the update and after it; true without a condition."""
    if is_nothing(node.condition_reference):
        return True, True
    found = model._resolve_resource_condition_reference(node.condition_reference)
    return not is_nothing(found.before) and bool(found.before), not is_nothing(found.after) and bool(found.after)


def _is_there(model: Any, arguments: Any, side: int) -> bool:
    name = arguments.split(".")[0] if isinstance(arguments, str) else arguments[0]
    resources = model._change_set.update_model.node_template.resources.resources
    return all(_presence(model, node)[side] for node in resources if node.name == name)
