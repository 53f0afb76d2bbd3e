"""Small changes of a module's code, one a mutant: each is a fault that some test must find."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: ``source`` is the whole module with it, ``line`` where it is, ``what`` the change in words."""

    file: Path
    line: int
    what: str
    source: str


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module; none of docstrings, annotations, messages of errors, and names of types."""
    tree = ast.parse(file.read_text())
    _without_constant_places(tree)
    places = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt)]
    for index, node in enumerate(places):
        for number in range(len(_changes(node))):
            changed = copy.deepcopy(tree)
            copied = [each for each in ast.walk(changed) if isinstance(each, ast.expr | ast.stmt)][index]
            what, apply = _changes(copied)[number]
            before = ast.unparse(copied).split("\n")[0][:70]
            apply()
            source = ast.unparse(ast.fix_missing_locations(changed))
            yield Mutant(file, node.lineno, f"{what}: {before}", source)


def count_of(file: Path) -> int:
    """Return how many mutants a module has."""
    tree = ast.parse(file.read_text())
    _without_constant_places(tree)
    return sum(len(_changes(node)) for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt))


def _without_constant_places(tree: ast.AST) -> None:
    """Mark what is not to be changed: docstrings, annotations, decorators, texts, errors that are raised."""
    for node in ast.walk(tree):
        held: list[Any] = []
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            held.append(node.annotation)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            held += node.decorator_list
            held += [node.returns] if isinstance(node, ast.FunctionDef) and node.returns else []
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            held.append(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            held.append(node)
        for each in held:
            for inner in ast.walk(each):
                inner.fixed = True  # type: ignore[attr-defined]  # a mark of ours


def _changes(node: ast.AST) -> list[tuple[str, Any]]:  # noqa: PLR0911 - one line a kind of change
    """Return the changes of one node: words, and what makes it."""
    if getattr(node, "fixed", False):
        return []
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        return [("another comparison", lambda: node.ops.__setitem__(0, _COMPARISONS[type(node.ops[0])]()))]
    if isinstance(node, ast.BoolOp):
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return [("and for or", lambda: setattr(node, "op", other))]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return [("another operator", lambda: setattr(node, "op", _ARITHMETIC[type(node.op)]()))]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return [("the other truth", lambda: setattr(node, "value", not node.value))]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return [("another number", lambda: setattr(node, "value", node.value + 1))]  # type: ignore[operator]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [("the other branch", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test)))]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return [("no call", lambda: setattr(node, "value", ast.Constant(None)))]
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        return [("nothing returned", lambda: setattr(node, "value", ast.Constant(None)))]
    return []
