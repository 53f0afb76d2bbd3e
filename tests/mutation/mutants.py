"""Small changes of a module's code, one a mutant: each is a fault that some test must find."""

import ast
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


def count_of(file: Path) -> int:
    """Return how many mutants a module has: no docstring, annotation, decorator, text or error is changed."""
    return len(_places(_parsed(file)))


def mutant_of(file: Path, number: int) -> Mutant:
    """Return one mutant of a module, by its number from 0."""
    tree = _parsed(file)
    node, which = _places(tree)[number]
    what, apply = _changes(node)[which]
    before = ast.unparse(node).split("\n")[0][:70]
    apply()
    return Mutant(file, node.lineno, f"{what}: {before}", ast.unparse(ast.fix_missing_locations(tree)))


def _parsed(file: Path) -> ast.Module:
    tree = ast.parse(file.read_text())
    _mark_fixed(tree)
    return tree


def _places(tree: ast.AST) -> list[tuple[Any, int]]:
    return [(node, which) for node in ast.walk(tree) for which in range(len(_changes(node)))]


def _mark_fixed(tree: ast.AST) -> None:
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
        return [("another number", lambda: setattr(node, "value", node.value + 1))]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [("the other branch", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test)))]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return [("no call", lambda: setattr(node, "value", ast.Constant(None)))]
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        return [("nothing returned", lambda: setattr(node, "value", ast.Constant(None)))]
    return []
